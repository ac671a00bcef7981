//! A process that a test starts, races against others, and kills.
//!
//! It says `ready` on its standard output and waits for a line on its standard input before
//! it does what is asked:
//!
//! - `call DB KEY`: one call; prints the reply.
//! - `race DB KEY THREADS`: the same call from each thread at once; prints the replies.
//! - `distinct DB PREFIX THREADS CALLS`: calls with keys of their own; prints the replies.
//! - `hold DB`: holds the write lock, says `held`, and waits for another line.

use std::{
    env,
    error::Error,
    io::{self, Write},
    sync::Barrier,
    thread,
};

use idempotent_tool::{Caller, SqliteStore, Toolbox};
use idempotent_tool_tests::{caller, create_notes, toolbox};
use rusqlite::Connection;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["call", db, key] => race(db, key, 1),
        ["race", db, key, threads] => race(db, key, threads.parse()?),
        ["distinct", db, prefix, threads, calls] => {
            distinct(db, prefix, threads.parse()?, calls.parse()?)
        }
        ["hold", db] => hold(db),
        _ => Err("usage: driver call|race|distinct|hold DB …".into()),
    }
}

fn race(db: &str, key: &str, threads: usize) -> Result<(), Box<dyn Error>> {
    let (tools, ada) = open(db)?;
    wait_for_line("ready")?;
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                call(&tools, &ada, key);
            });
        }
    });
    Ok(())
}

fn distinct(db: &str, prefix: &str, threads: usize, calls: usize) -> Result<(), Box<dyn Error>> {
    let (tools, ada) = open(db)?;
    wait_for_line("ready")?;
    thread::scope(|scope| {
        for thread in 0..threads {
            let (tools, ada) = (&tools, &ada);
            scope.spawn(move || {
                for number in 0..calls {
                    call(tools, ada, &format!("{prefix}-{thread}-{number}"));
                }
            });
        }
    });
    Ok(())
}

fn hold(db: &str) -> Result<(), Box<dyn Error>> {
    let connection = Connection::open(db)?;
    wait_for_line("ready")?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    wait_for_line("held")?;
    connection.execute_batch("ROLLBACK")?;
    Ok(())
}

fn open(db: &str) -> Result<(Toolbox, Caller), Box<dyn Error>> {
    let store = SqliteStore::open(db)?;
    create_notes(&store)?;
    Ok((toolbox(&store)?, caller()?))
}

fn call(tools: &Toolbox, caller: &Caller, key: &str) {
    let arguments = json!({ "idempotency_key": key, "body": "milk" });
    let reply = tools.call_blocking(caller, "write_note", arguments);
    println!("{}", reply.to_json());
}

fn wait_for_line(word: &str) -> io::Result<()> {
    println!("{word}");
    io::stdout().flush()?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}
