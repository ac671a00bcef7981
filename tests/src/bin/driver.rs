//! A process that a test starts, races against others, and kills.
//!
//! It says `ready` on its standard output and waits for a line on its standard input before
//! it does what is asked:
//!
//! - `call DB KEY`: one call; prints the reply.
//! - `race DB KEY THREADS`: the same call from each thread at once; prints the replies.
//! - `distinct DB PREFIX THREADS CALLS`: calls with keys of their own; prints the replies.
//! - `batch DB CALLS REFUSED`: so many calls in one batch, and so many in the midst of them
//!   that write and then fail; prints each reply as it comes.
//! - `queue DB CALLS BYTES`: so many calls, each with a body of so many bytes, behind a piece
//!   of work that does not end before all have come, and a queue of 8 MiB; prints how many were busy at once, by
//!   how many KiB memory grew, and how many succeeded.
//! - `hold DB`: holds the write lock, says `held`, and waits for another line.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    sync::{Barrier, mpsc},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, SystemTime},
};

use idempotent_tool::{Caller, ManualClock, SqliteStore, Toolbox};
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
        ["batch", db, calls, refused] => batch(db, calls.parse()?, refused.parse()?),
        ["queue", db, calls, bytes] => queue(db, calls.parse()?, bytes.parse()?),
        ["hold", db] => hold(db),
        _ => Err("usage: driver call|race|distinct|batch|queue|hold DB …".into()),
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

/// The calls wait behind one piece of work, and so run together: in one transaction, since
/// no time passes that would end it early.
fn batch(db: &str, calls: usize, refused: usize) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new(SystemTime::now());
    let store = SqliteStore::options().clock(clock).open(db)?;
    create_notes(&store)?;
    let (tools, ada) = (toolbox(&store)?, caller()?);
    wait_for_line("ready")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let (leave, wait) = mpsc::channel::<()>();
        let first =
            tokio::spawn(async move { store.transact(move |_| wait.recv().map_err(|_| ())).await });
        tokio::task::yield_now().await;
        let half = calls / 2;
        let written = |number| (number, "write_note");
        let calls: Vec<_> = (0..half)
            .map(written)
            .chain((0..refused).map(|number| (number, "refuse_note")))
            .chain((half..calls).map(written))
            .map(|(number, tool)| {
                let (tools, ada) = (tools.clone(), ada.clone());
                tokio::spawn(async move {
                    let key = format!("batch-{number}");
                    let arguments = json!({ "idempotency_key": key, "body": "milk" });
                    let reply = tools.call(&ada, tool, arguments).await;
                    println!("{}", reply.to_json());
                })
            })
            .collect();
        tokio::task::yield_now().await;
        leave.send(())?;
        first.await?.map_err(|_| "the first piece of work failed")?;
        for call in calls {
            call.await?;
        }
        Ok(())
    })
}

fn queue(db: &str, calls: usize, bytes: usize) -> Result<(), Box<dyn Error>> {
    let store = SqliteStore::options()
        .queued_bytes(8 * 1024 * 1024)
        .budget(Duration::from_mins(10))
        .open(db)?;
    create_notes(&store)?;
    let (tools, ada) = (toolbox(&store)?, caller()?);
    wait_for_line("ready")?;
    let (entered, enter) = mpsc::channel::<()>();
    let (leave, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.transact_blocking(move |_| {
                entered.send(()).map_err(|_| ())?;
                wait.recv().map_err(|_| ())
            })
        });
        enter.recv()?;
        let before = resident()?;
        let body = "m".repeat(bytes);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = Vec::new();
        let mut busy = 0;
        for number in 0..calls {
            let arguments = json!({ "idempotency_key": format!("queue-{number}"), "body": body });
            let mut call = Box::pin(tools.call(&ada, "write_note", arguments));
            match call.as_mut().poll(&mut context) {
                Poll::Ready(reply) => busy += usize::from(reply.error_code() == Some("busy")),
                Poll::Pending => waiting.push(call),
            }
        }
        let grown = resident()?.saturating_sub(before);
        leave.send(())?;
        first
            .join()
            .map_err(|_| "the first piece of work panicked")?
            .map_err(|_| "it failed")?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let succeeded = runtime.block_on(async {
            let mut succeeded = 0;
            for call in waiting {
                succeeded += usize::from(call.await.result().is_some());
            }
            succeeded
        });
        println!("[{busy}, {grown}, {succeeded}]");
        Ok(())
    })
}

/// The resident memory of this process, in KiB.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no memory is told")?.parse()?)
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
