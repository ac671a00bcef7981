//! The keeper of one command: a process of its own, so that a command that has begun comes
//! to its end, and its end is recorded, though the server is killed.

use std::{
    env,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::evidence::Evidence;
use crate::support::Outcome;

/// What a keeper is told on its standard input. JSON, so that a half of it is nothing.
#[derive(Serialize, Deserialize)]
struct Task {
    command: String,
    /// Where the shell starts.
    folder: PathBuf,
}

/// Has a keeper run `command` and waits for it. The keeper goes on when this is dropped.
///
/// # Errors
///
/// When the keeper can't be started; nothing was run then. What came of it otherwise is in
/// the evidence.
pub async fn start(evidence: &Evidence, folder: &Path, command: &str) -> io::Result<()> {
    let task = Task {
        command: command.to_owned(),
        folder: folder.to_owned(),
    };
    let task = serde_json::to_vec(&task)?;
    let mut keeper = tokio::process::Command::new(env::current_exe()?)
        .arg("keep")
        .arg(evidence.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals to the server's group, as from a terminal, don't reach it.
        .process_group(0)
        .spawn()?;
    if let Some(mut input) = keeper.stdin.take() {
        // A keeper that is gone has said why in the evidence, or has done nothing.
        let _ = input.write_all(&task).await;
    }
    keeper.wait().await?;
    Ok(())
}

/// Runs the command that standard input holds, unless somebody has before.
///
/// # Errors
///
/// When the command was claimed before, or the disk or the system refuses.
pub fn keep(folder: PathBuf) -> Outcome {
    let mut task = Vec::new();
    io::stdin().read_to_end(&mut task)?;
    let task: Task = serde_json::from_slice(&task)?;
    let evidence = Evidence::in_folder(folder);
    let _alive = evidence.claim()?;
    let started = evidence.create_output().and_then(|output| {
        Command::new("/bin/sh")
            .arg("-c")
            .arg(&task.command)
            .current_dir(&task.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
    });
    let mut shell = match started {
        Ok(shell) => shell,
        Err(error) => {
            evidence.give_back()?;
            return Err(error.into());
        }
    };
    Ok(evidence.end(shell.wait()?)?)
}
