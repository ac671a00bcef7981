//! The demonstration: a real shell, killed servers, and a migration killed half way.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    process::Command,
    time::{Duration, Instant, sleep},
};

use crate::support::{
    Outcome,
    client::{PATIENCE, Server, is_under_way},
    report::{Report, expect, expect_status, observe, text},
};

/// How often a file is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Sooner than the deadline of `run_command`, by far.
const AT_ONCE: Duration = Duration::from_secs(5);

/// It writes a line, runs on, and would write another one much later.
const MIGRATION: &str =
    "echo 'step 1 done' | tee -a migration.log; sleep 600; echo 'step 2 done' >> migration.log";

/// Runs all checks, in temporary folders.
///
/// # Errors
///
/// The first check that failed, by its name.
pub async fn run() -> Outcome {
    println!("Servers and commands in processes of their own, killed and looked at again:\n");
    let report = Report::default();
    report.check("one session", one_session()).await?;
    report.check("at most once", at_most_once()).await?;
    report.check("killed server", killed_server()).await?;
    report.check("killed command", killed_command()).await?;
    report.check("killed migration", killed_migration()).await?;
    report.finish();
    Ok(())
}

/// A folder with a server's ledger, and its one session.
struct Lab {
    folder: TempDir,
    session_id: String,
}

impl Lab {
    async fn new() -> Outcome<(Self, Server)> {
        let mut lab = Self {
            folder: tempfile::tempdir()?,
            session_id: String::new(),
        };
        let mut server = lab.server().await?;
        let reply = server.call("open_session", &open()).await?;
        expect_status(&reply, "succeeded")?;
        text(&reply["result"], "session_id").clone_into(&mut lab.session_id);
        Ok((lab, server))
    }

    async fn server(&self) -> Outcome<Server> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("serve").arg("--db").arg(self.db());
        Server::start(command).await
    }

    fn db(&self) -> PathBuf {
        self.folder.path().join("terminal.sqlite3")
    }

    fn session(&self) -> PathBuf {
        let sessions = self.db().with_extension("sessions");
        sessions.join(&self.session_id)
    }

    fn arguments(&self, key: &str, command: &str) -> Value {
        json!({ "idempotency_key": key, "session_id": self.session_id, "command": command })
    }

    /// The lines of a file that commands write in the session's folder.
    fn lines(&self, file: &str) -> Outcome<Vec<String>> {
        let text = fs::read_to_string(self.session().join("work").join(file))?;
        Ok(text.lines().map(ToOwned::to_owned).collect())
    }

    async fn wait_for(&self, path: &Path) -> Outcome {
        let until = Instant::now() + PATIENCE;
        while !path.exists() {
            if until < Instant::now() {
                return Err("the command did not begin".into());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Makes the call that the reply names, and finds half of [`MIGRATION`].
    async fn expect_inspected(&self, server: &mut Server, reply: &Value) -> Outcome {
        let id = text(reply, "operation_id");
        let call = format!(
            "read_output with session_id {} and operation_id {id}",
            self.session_id
        );
        let is_named = text(reply, "next_action").contains(&call);
        expect(is_named, "the call that inspects it", reply)?;
        let output = self.read(server, id).await?;
        let half = text(&output, "output") == "step 1 done\n" && output["state"] == "abandoned";
        expect(half, "half of it", &output)?;
        observe("read_output", format_args!("{:?}", text(&output, "output")));
        Ok(())
    }

    async fn read(&self, server: &mut Server, operation_id: &str) -> Outcome<Value> {
        let reading = json!({ "session_id": self.session_id, "operation_id": operation_id });
        server.call("read_output", &reading).await
    }
}

fn open() -> Value {
    json!({ "idempotency_key": "one-session" })
}

fn expect_lines(lines: &[String], expected: &[&str]) -> Outcome {
    let what = format!("the lines {expected:?}");
    expect(lines == expected, &what, &format_args!("{lines:?}"))
}

async fn one_session() -> Outcome {
    let (lab, mut server) = Lab::new().await?;
    server.kill().await?;
    server = lab.server().await?;
    let reply = server.call("open_session", &open()).await?;
    let same = text(&reply["result"], "session_id") == lab.session_id;
    expect(
        same && reply["replayed"] == true,
        "the same session",
        &reply,
    )?;
    observe("opened, killed, opened again", "one session, replayed");
    server.kill().await?;
    Ok(())
}

async fn at_most_once() -> Outcome {
    let (lab, mut server) = Lab::new().await?;
    let arguments = lab.arguments("greet", "echo hello | tee -a greetings");
    let first = server.call("run_command", &arguments).await?;
    let id = text(&first, "operation_id").to_owned();
    server.follow(&id, |reply| !is_under_way(reply)).await?;
    let again = server.call("run_command", &arguments).await?;
    expect_status(&again, "succeeded")?;
    expect_lines(&lab.lines("greetings")?, &["hello"])?;
    let output = lab.read(&mut server, &id).await?;
    expect(text(&output, "output") == "hello\n", "the output", &output)?;
    observe(
        "run, and called again",
        "the shell ran it once; the tool says succeeded",
    );
    server.kill().await?;
    Ok(())
}

async fn killed_server() -> Outcome {
    let (lab, mut server) = Lab::new().await?;
    let arguments = lab.arguments(
        "build",
        "echo begun >> build.log; sleep 1; echo built >> build.log",
    );
    server.send("run_command", &arguments).await?;
    lab.wait_for(&lab.session().join("work/build.log")).await?;
    server.kill().await?;
    observe(
        "the server was killed",
        "the command had begun, and went on",
    );

    let mut server = lab.server().await?;
    let reply = server.call("run_command", &arguments).await?;
    let id = text(&reply, "operation_id").to_owned();
    let done = |reply: &Value| text(reply, "status") == "succeeded";
    let reply = server.follow(&id, done).await?;
    expect(reply["result"]["exit_code"] == 0, "its end", &reply)?;
    expect_lines(&lab.lines("build.log")?, &["begun", "built"])?;
    observe(
        "called again",
        "the shell ran it once; the tool says succeeded, by its evidence",
    );
    server.kill().await?;
    Ok(())
}

/// The server lives, and finds out that nobody watches over the command any more.
async fn killed_command() -> Outcome {
    let (lab, mut server) = Lab::new().await?;
    let arguments = lab.arguments("import", MIGRATION);
    let request = server.send("run_command", &arguments).await?;
    lab.wait_for(&lab.session().join("work/migration.log"))
        .await?;
    let reply = server.receive(request).await?;
    let id = text(&reply, "operation_id").to_owned();
    kill_group(&lab.session().join(&id).join("started")).await?;
    let killed = Instant::now();
    observe("a command was killed", "under a server that lives");

    let reply = server.follow(&id, |reply| !is_under_way(reply)).await?;
    expect_status(&reply, "outcome_unknown")?;
    let took = killed.elapsed();
    expect(
        took < AT_ONCE,
        "an answer at once",
        &format_args!("{took:?}"),
    )?;
    observe(
        "the tool says outcome_unknown",
        "without waiting for its deadline",
    );
    lab.expect_inspected(&mut server, &reply).await?;
    server.kill().await?;
    Ok(())
}

async fn killed_migration() -> Outcome {
    let (lab, mut server) = Lab::new().await?;
    let arguments = lab.arguments("migrate", MIGRATION);
    let reply = server.call("run_command", &arguments).await?;
    let id = text(&reply, "operation_id").to_owned();
    lab.wait_for(&lab.session().join("work/migration.log"))
        .await?;
    server.kill().await?;
    kill_group(&lab.session().join(&id).join("started")).await?;
    observe(
        "the migration was killed half way",
        "and its keeper and the server with it",
    );

    let mut server = lab.server().await?;
    server.call("run_command", &arguments).await?;
    let reply = server.follow(&id, |reply| !is_under_way(reply)).await?;
    expect_status(&reply, "outcome_unknown")?;
    observe("the tool says outcome_unknown", text(&reply, "next_action"));
    lab.expect_inspected(&mut server, &reply).await?;

    let inspected = server.look(&id).await?;
    expect_status(&inspected, "outcome_unknown")?;
    let attempts = inspected["attempts"].as_array().map_or(0, Vec::len);
    expect(attempts == 1, "one attempt", &inspected)?;

    for _ in 0..3 {
        let again = server.call("run_command", &arguments).await?;
        expect_status(&again, "outcome_unknown")?;
    }
    expect_lines(&lab.lines("migration.log")?, &["step 1 done"])?;
    observe("called three times more", "it was not run again");
    server.kill().await?;
    Ok(())
}

/// Kills a command, its keeper, and all that they started.
async fn kill_group(started: &Path) -> Outcome {
    let keeper = fs::read_to_string(started)?;
    let kill = format!("kill -9 -{}", keeper.trim());
    let killed = Command::new("/bin/sh").arg("-c").arg(kill).status().await?;
    expect(killed.success(), "a killed command", &killed)
}
