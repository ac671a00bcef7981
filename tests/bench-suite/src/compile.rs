//! What a tool adds to the build of the crate that declares it.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::report::{Asked, Report, Row};

const ROUNDS: usize = 3;
const MANY: usize = 51;

pub(crate) fn run(report: &mut Report) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (profile, asked) in [("dev", Asked::AtMost(0.06)), ("release", Asked::Stated)] {
        let folder = tempfile::tempdir().expect("a folder");
        let one = write_crate(root, folder.path(), 1);
        let many = write_crate(root, folder.path(), MANY);
        build(root, &one, profile); // The dependencies.
        let (mut with_one, mut with_many) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            with_one.push(build(root, &one, profile));
            with_many.push(build(root, &many, profile));
        }
        let added = with_one
            .iter()
            .zip(&with_many)
            .map(|(one, many)| (many.as_secs_f64() - one.as_secs_f64()) / (MANY - 1) as f64);
        let one: Vec<f64> = with_one.iter().map(Duration::as_secs_f64).collect();
        report.row(Row::figure(
            format!("build time per tool, {profile}"),
            MANY,
            "s",
            asked,
            added.collect(),
            &one,
            "s for a crate with one tool",
        ));
    }
}

fn write_crate(root: &Path, folder: &Path, tools: usize) -> PathBuf {
    let folder = folder.join(format!("tools{tools}"));
    fs::create_dir_all(folder.join("src")).expect("a folder");
    let runtime = root
        .join("../../runtime")
        .canonicalize()
        .expect("the runtime");
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[workspace]\n[package]\nname = \"tools{tools}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
             [dependencies]\nidempotent-tool = {{ path = \"{}\" }}\n\
             schemars = \"1.2.3\"\nserde = {{ version = \"1.0.228\", features = [\"derive\"] }}\n",
            runtime.display()
        ),
    )
    .expect("a manifest");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file");
    let mut source = String::from(
        "use idempotent_tool::{Failure, Tx, idempotent_tool};\n\
         #[derive(serde::Serialize, schemars::JsonSchema)]\npub struct Note { id: i64 }\n",
    );
    for number in 0..tools {
        write!(
            source,
            "/// Create a note.\n#[idempotent_tool(operation = \"create_note_{number}:v1\")]\n\
             pub fn create_note_{number}(tx: &Tx, /// The text.\n\
             #[schemars(length(min = 1, max = 10_000))] body: String, pinned: bool) -> Result<Note, Failure> {{\n\
             tx.execute(\"INSERT INTO notes (body, pinned) VALUES (?1, ?2)\", (&body, pinned))?;\n\
             Ok(Note {{ id: {number} }})\n}}\n"
        )
        .expect("a string");
    }
    source.push_str(
        "pub fn register(builder: idempotent_tool::ToolboxBuilder<idempotent_tool::SqliteStore>)\n\
         -> Result<idempotent_tool::Toolbox, idempotent_tool::BuildError> {\n    builder\n",
    );
    for number in 0..tools {
        writeln!(source, "        .tool::<create_note_{number}>()").expect("a string");
    }
    source.push_str("        .build()\n}\nfn main() {}\n");
    fs::write(folder.join("src/main.rs"), source).expect("a source");
    folder
}

/// Builds the crate alone, anew.
fn build(root: &Path, folder: &Path, profile: &str) -> Duration {
    let main = folder.join("src/main.rs");
    let source = fs::read(&main).expect("the source");
    fs::write(&main, source).expect("the source"); // Newer than what was built of it.
    let began = Instant::now();
    let output = Command::new("cargo")
        .args(["build", "--quiet", "--profile", profile])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", root.join("../../target/bench-compile"))
        .env("CARGO_INCREMENTAL", "0")
        .output()
        .expect("cargo");
    assert!(
        output.status.success(),
        "the build failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    began.elapsed()
}
