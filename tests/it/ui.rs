//! What the attribute accepts, and what it says about the rest.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// All cases in one function: they share one build of the dependencies.
#[test]
fn cases() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/pass/*.rs");
    for folder in folders_of_mistakes() {
        cases.compile_fail(format!("ui/{folder}/*.rs"));
    }
}

/// What rustc says in its own words may repeat.
#[test]
fn each_mistake_has_its_own_words() {
    let mut first_lines: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in folders_of_mistakes() {
        for stderr in files(&ui().join(&folder), "stderr") {
            let case = stderr.with_extension("rs");
            assert!(case.exists(), "{} is missing", case.display());
        }
        for path in files(&ui().join(folder), "rs") {
            let stderr = path.with_extension("stderr");
            let text = fs::read_to_string(&stderr).unwrap();
            let first = text
                .lines()
                .find(|line| line.starts_with("error"))
                .unwrap()
                .to_owned();
            let ours = !first.starts_with("error[E");
            if let Some(other) = first_lines.insert(first.clone(), path.clone())
                && ours
            {
                panic!(
                    "{} and {} both begin with `{first}`",
                    other.display(),
                    path.display()
                );
            }
        }
    }
    assert!(
        30 <= first_lines.len(),
        "only {} kinds of mistakes",
        first_lines.len()
    );
    assert!(15 <= files(&ui().join("pass"), "rs").len());
}

fn ui() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

fn folders_of_mistakes() -> Vec<String> {
    let folders = fs::read_dir(ui()).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = folders
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "pass")
        .collect();
    names.sort();
    names
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}
