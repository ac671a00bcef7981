//! The demonstration: the failures that a happy path never meets, on a real SQLite file.
//!
//! Each check prints what was done, what was observed, and the rows in both tables.

use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Barrier,
    thread,
    time::{Duration, SystemTime},
};

use idempotent_tool::{
    Caller, EmptyScope, Failure, ManualClock, Reply, Scope, SqliteStore, Status, Toolbox, Tx,
    idempotent_tool,
};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::tools::{self, Note, Revoked};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Does what its name says and tells what it observed.
type Check = fn(&Demo) -> Outcome<String>;

/// The checks in order, by the name that the last line gives them.
const CHECKS: [(&str, Check); 8] = [
    ("concurrent retries", concurrent_retries),
    ("lost response", lost_response),
    ("payload conflict", payload_conflict),
    ("second principal", second_principal),
    ("revoked permission", revoked_permission),
    ("kill", kill),
    ("expired key", expired_key),
    ("old version", old_version),
];

/// The line that the child process prints once the note is written and the receipt isn't.
const EFFECT_WRITTEN: &str = "the note is written, the receipt is not";

const BODY: &str = "Investigate the failing parser fixture.";

struct Demo {
    db: PathBuf,
    store: SqliteStore,
    tools: Toolbox,
    revoked: Revoked,
    clock: ManualClock,
}

/// Runs all checks in a temporary folder.
///
/// # Errors
///
/// The first check that failed, by its name.
pub fn run() -> Outcome {
    let folder = tempfile::tempdir()?;
    let db = folder.path().join("notes.sqlite3");
    let clock = ManualClock::new(SystemTime::now());
    let store = SqliteStore::options().clock(clock.clone()).open(&db)?;
    tools::create_table(&store)?;
    let revoked = Revoked::default();
    let tools = tools::toolbox(&store, revoked.clone())?;
    let demo = Demo {
        db,
        store,
        tools,
        revoked,
        clock,
    };

    println!("On a SQLite file in a temporary folder, removed at the end:\n");
    for (name, check) in CHECKS {
        let observed =
            check(&demo).map_err(|error| format!("the check `{name}` failed: {error}"))?;
        let (notes, receipts) = demo.rows()?;
        println!("{name:<19} {observed}; notes {notes}, receipts {receipts}");
    }
    println!("\nPassed: {}", CHECKS.map(|(name, _)| name).join(", "));
    Ok(())
}

impl Demo {
    fn call(&self, caller: &Caller, key: &str, body: &str) -> Reply {
        call(&self.tools, caller, key, body)
    }

    fn rows(&self) -> Outcome<(i64, i64)> {
        rows(&self.db)
    }
}

fn call(tools: &Toolbox, caller: &Caller, key: &str, body: &str) -> Reply {
    tools.call_blocking(
        caller,
        "create_note",
        json!({ "idempotency_key": key, "body": body }),
    )
}

fn rows(db: &Path) -> Outcome<(i64, i64)> {
    let connection = Connection::open(db)?;
    Ok(connection.query_row(
        "SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM idempotent_receipts)",
        (),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?)
}

fn caller(principal: &str) -> Result<Caller, EmptyScope> {
    let scope = Scope::builder()
        .account("account-17")
        .principal(principal)
        .workspace("project-9")
        .build()?;
    Ok(Caller::new(scope))
}

fn ada() -> Result<Caller, EmptyScope> {
    caller("user-42")
}

fn expect(holds: bool, what: &str, reply: &Reply) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(format!("expected {what}, got {}", reply.to_json()).into())
    }
}

fn note_id(reply: &Reply) -> Outcome<Value> {
    let result = reply
        .result()
        .ok_or_else(|| format!("no result in {}", reply.to_json()))?;
    Ok(serde_json::from_str::<Value>(result.get())?["note_id"].clone())
}

fn expect_rejected(reply: &Reply, code: &str) -> Outcome {
    expect(
        reply.error_code() == Some(code),
        &format!("the code `{code}`"),
        reply,
    )
}

fn expect_added(demo: &Demo, before: (i64, i64), added: i64) -> Outcome {
    let after = demo.rows()?;
    if after == (before.0 + added, before.1 + added) {
        return Ok(());
    }
    Err(format!("expected {added} more rows in each table than {before:?}, got {after:?}").into())
}

fn concurrent_retries(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let caller = ada()?;
    let barrier = Barrier::new(8);
    let replies: Vec<Reply> = thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    demo.call(&caller, "one-intended-note", BODY)
                })
            })
            .collect();
        callers
            .into_iter()
            .filter_map(|caller| caller.join().ok())
            .collect()
    });
    let first = replies.first().ok_or("no caller came back")?;
    let id = note_id(first)?;
    for reply in &replies {
        expect(note_id(reply)? == id, "the same note for all", reply)?;
        expect(
            reply.operation_id() == first.operation_id(),
            "one operation",
            reply,
        )?;
    }
    let replayed = replies.iter().filter(|reply| reply.is_replayed()).count();
    expect(
        replies.len() == 8 && replayed == 7,
        "one execution and seven replays",
        first,
    )?;
    expect_added(demo, before, 1)?;
    Ok("eight callers raced one key: one note, seven replays".into())
}

fn lost_response(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let caller = ada()?;
    drop(demo.call(&caller, "lost-response", "A second note"));
    // Another store on the file, as a new process would open it.
    let store = SqliteStore::options()
        .clock(demo.clock.clone())
        .open(&demo.db)?;
    let restarted = tools::toolbox(&store, demo.revoked.clone())?;
    let second = call(&restarted, &caller, "lost-response", "A second note");
    let third = demo.call(&caller, "lost-response", "A second note");
    expect(second.is_replayed(), "a replay", &second)?;
    expect(
        note_id(&second)? == note_id(&third)?,
        "the same note",
        &third,
    )?;
    expect_added(demo, before, 1)?;
    Ok("the answer was dropped and asked for again: the same note, replayed".into())
}

fn payload_conflict(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let reply = demo.call(&ada()?, "one-intended-note", "Different arguments");
    expect_rejected(&reply, "payload_conflict")?;
    expect_added(demo, before, 0)?;
    Ok("the key came with another body: refused with `payload_conflict`".into())
}

fn second_principal(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let hers = demo.call(&ada()?, "one-intended-note", BODY);
    let his = demo.call(&caller("user-43")?, "one-intended-note", BODY);
    expect(!his.is_replayed(), "a first execution", &his)?;
    expect(note_id(&his)? != note_id(&hers)?, "a note of his own", &his)?;
    expect_added(demo, before, 1)?;
    Ok("another principal used the same key: a note of its own".into())
}

fn revoked_permission(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let caller = ada()?;
    demo.revoked.revoke("create_note");
    let known = demo.call(&caller, "one-intended-note", BODY);
    let unknown = demo.call(&caller, "never-used", BODY);
    demo.revoked.restore("create_note");
    expect_rejected(&known, "denied")?;
    expect(
        known.to_json() == unknown.to_json(),
        "the same words whether or not the key exists",
        &unknown,
    )?;
    expect_added(demo, before, 0)?;
    Ok("the permission was taken away: the replay is `denied`, an unknown key likewise".into())
}

fn kill(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let mut child = Command::new(env::current_exe()?)
        .arg("write-half")
        .arg("--db")
        .arg(&demo.db)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the child has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    child.kill()?;
    let status = child.wait()?;
    if line.trim() != EFFECT_WRITTEN || status.success() {
        return Err(format!("the child was not killed half way: {line:?}, {status}").into());
    }
    expect_added(demo, before, 0)?;
    let retry = demo.call(&ada()?, "killed-half-way", BODY);
    expect(!retry.is_replayed(), "a first execution", &retry)?;
    expect_added(demo, before, 1)?;
    Ok(
        "a process was killed between note and receipt: neither was left, the retry made one"
            .into(),
    )
}

fn expired_key(demo: &Demo) -> Outcome<String> {
    let caller = ada()?;
    let first = demo.call(&caller, "soon-old", BODY);
    expect(first.status() == Status::Succeeded, "a note", &first)?;
    let before = demo.rows()?;
    demo.clock.advance(Duration::from_hours(31 * 24));
    let unpruned = demo.call(&caller, "soon-old", BODY);
    demo.store.prune(1_000)?;
    let pruned = demo.call(&caller, "soon-old", BODY);
    expect_rejected(&unpruned, "key_expired")?;
    expect_rejected(&pruned, "key_expired")?;
    expect_added(demo, before, 0)?;
    Ok("a key was retried after its 30 days: refused with `key_expired`, not executed".into())
}

fn old_version(demo: &Demo) -> Outcome<String> {
    let before = demo.rows()?;
    let caller = ada()?;
    let old_server = tools::builder(&demo.store, demo.revoked.clone())
        .tool::<tools::create_note_v1>()
        .build()?;
    let first = call(&old_server, &caller, "used-under-v1", BODY);
    let arguments = json!({ "idempotency_key": "used-under-v1", "body": BODY, "pinned": false });
    let retried = demo.tools.call_blocking(&caller, "create_note", arguments);
    expect(retried.is_replayed(), "a replay", &retried)?;
    expect(
        note_id(&retried)? == note_id(&first)?,
        "the note made under v1",
        &retried,
    )?;

    let new_server = tools::builder(&demo.store, demo.revoked.clone())
        .tool::<tools::create_note>()
        .build()?;
    let unserved = call(&new_server, &caller, "used-under-v1", BODY);
    expect_rejected(&unserved, "version_conflict")?;
    expect_added(demo, before, 1)?;
    Ok(
        "a key used under v1 came in v2's shape: served by v1; `version_conflict` without v1"
            .into(),
    )
}

/// The child process of the check `kill`: begins a call, writes the note, and waits to
/// be killed before the receipt is written.
///
/// # Errors
///
/// When the file can't be opened, or when nobody kills it.
pub fn write_half(db: &Path) -> Outcome {
    /// Writes the note, then never returns.
    #[idempotent_tool(
        operation = "create_note:v2",
        title = "Create note",
        destructive = false
    )]
    fn write_half(
        tx: &Tx,
        #[schemars(length(min = 1, max = 10_000))] body: String,
        #[serde(default)] pinned: bool,
    ) -> Result<Note, Failure> {
        let note = tools::insert(tx, &body, pinned)?;
        println!("{EFFECT_WRITTEN}");
        let mut nothing = String::new();
        std::io::stdin()
            .read_line(&mut nothing)
            .map_err(|error| Failure::new("not_killed", "nobody killed this").with_source(error))?;
        Ok(note)
    }

    let store = SqliteStore::open(db)?;
    let tools = tools::builder(&store, Revoked::default())
        .tool::<write_half>()
        .build()?;
    let reply = call(&tools, &ada()?, "killed-half-way", BODY);
    Err(format!("expected to be killed, got {}", reply.to_json()).into())
}
