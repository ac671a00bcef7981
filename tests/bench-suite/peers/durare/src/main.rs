//! The article's note as a workflow of durare: one transaction, keyed by the workflow's id.
//!
//! `peer-durare FILE CALLERS SECONDS` prints calls per second, and the 50th and 99th
//! percentile of their latency in microseconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use durare::{
    DurableContext, DurableEngine, Result, SqliteProvider, Tx, WorkflowOptions, params,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const SCOPE: &str = r#"["account-17","user-42","project-9"]"#;
const BODY: &str = "Investigate the failing parser fixture.";

#[derive(Serialize, Deserialize, Clone)]
struct NewNote {
    body: String,
}

#[derive(Serialize, Deserialize, Clone)]
struct Note {
    note_id: String,
}

#[durare::transaction]
async fn create_table(ctx: &DurableContext, tx: &mut Tx<'_>) -> Result<()> {
    tx.execute(
        "CREATE TABLE IF NOT EXISTS notes
         (id TEXT PRIMARY KEY, scope TEXT NOT NULL, body TEXT NOT NULL)",
        &params![],
    )
    .await?;
    Ok(())
}

#[durare::transaction]
async fn insert_note(ctx: &DurableContext, tx: &mut Tx<'_>, body: String) -> Result<Note> {
    let note_id = Uuid::now_v7().to_string();
    tx.execute(
        "INSERT INTO notes (id, scope, body) VALUES (?, ?, ?)",
        &params![note_id.clone(), SCOPE.to_owned(), body],
    )
    .await?;
    Ok(Note { note_id })
}

#[durare::workflow]
async fn set_up(ctx: DurableContext, _: ()) -> Result<()> {
    create_table(&ctx).await
}

#[durare::workflow]
async fn create_note(ctx: DurableContext, note: NewNote) -> Result<Note> {
    insert_note(&ctx, note.body).await
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, callers, seconds] = arguments.as_slice() else {
        eprintln!("usage: peer-durare FILE CALLERS SECONDS");
        std::process::exit(2);
    };
    let callers: usize = callers.parse().expect("a number of callers");
    let time = Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let provider = SqliteProvider::connect(&format!("sqlite://{path}")).await?;
    let engine = Arc::new(DurableEngine::new(Arc::new(provider)).await?);
    engine.launch().await?;
    engine.start_with(SetUp, (), WorkflowOptions::with_id("set-up")).await?.await?;

    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let key = Uuid::new_v4().to_string();
                    let note = NewNote { body: BODY.to_owned() };
                    let handle =
                        engine.start_with(CreateNote, note, WorkflowOptions::with_id(key)).await;
                    let _note: Note = handle.expect("a start").await.expect("a note");
                    latencies.push(began.elapsed().as_secs_f64() * 1e6);
                }
                latencies
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a caller"));
    }
    let elapsed = began.elapsed().as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    let at = |permille: usize| latencies.get(latencies.len() * permille / 1000).copied().unwrap_or(0.0);
    println!("{} {} {}", latencies.len() as f64 / elapsed, at(500), at(990));
    Ok(())
}
