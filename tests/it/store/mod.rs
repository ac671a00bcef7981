//! The SQLite store: races, crashes, faults, shared commits, and what handlers may not do.

mod crashes;
mod disk;
mod faults;
mod guard;
mod handlers;
mod layout;
mod losses;
mod memory;
mod opening;
mod power;
mod races;
mod replaced_files;
mod restores;
mod shared_commits;
mod waiting;

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use serde_json::Value;

/// A process of `src/bin/driver.rs`.
struct Driver {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    /// Starts the process and waits until it is ready.
    fn start(arguments: &[&str], failpoint: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driver"));
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.env_remove("IDEMPOTENT_TOOL_FAILPOINT");
        if let Some(failpoint) = failpoint {
            command.env("IDEMPOTENT_TOOL_FAILPOINT", failpoint);
        }
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut driver = Self {
            child,
            input,
            output,
        };
        driver.expect("ready");
        driver
    }

    #[track_caller]
    fn expect(&mut self, word: &str) {
        assert_eq!(self.output.next().unwrap().unwrap(), word);
    }

    fn go(&mut self) {
        writeln!(self.input, "go").unwrap();
    }

    /// The replies that it printed, and how it ended.
    fn end(mut self) -> (Vec<Value>, ExitStatus) {
        let replies = self
            .output
            .map_while(Result::ok)
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect();
        (replies, self.child.wait().unwrap())
    }
}
