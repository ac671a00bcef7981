//! The bound: the same note, written in shared commits, without any idempotency.

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use rusqlite::Connection;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{
    hand::{BODY, INSERT_NOTE, Layout, NOTES, SCOPE, tune},
    load::{AsyncCaller, Load, Measured, tasks},
};

/// As many as share a commit on our side.
const BATCH: usize = 128;

struct Job {
    body: String,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<(Vec<Job>, bool)>,
    work: Condvar,
}

struct Caller(Arc<Queue>);

impl Caller {
    fn push(&self) -> oneshot::Receiver<()> {
        let (done, answered) = oneshot::channel();
        self.0.jobs.lock().expect("a queue").0.push(Job {
            body: BODY.to_owned(),
            done,
        });
        self.0.work.notify_one();
        answered
    }
}

impl AsyncCaller for Caller {
    async fn call(&mut self) {
        self.push().await.expect("an answer");
    }
}

/// Plain notes from all callers, each of them in a task.
pub(crate) fn insert_from_tasks(path: &Path, load: Load) -> Measured {
    with_writer(path, |queue| tasks(load, |_| Caller(Arc::clone(queue))))
}

fn with_writer(path: &Path, run: impl FnOnce(&Arc<Queue>) -> Measured) -> Measured {
    let connection = Layout::Article.open(path);
    tune(&connection);
    connection.execute_batch(NOTES).expect("the notes");
    let queue = Arc::new(Queue::default());
    thread::scope(|scope| {
        scope.spawn(|| write(&connection_of(connection), &queue));
        let measured = run(&queue);
        queue.jobs.lock().expect("a queue").1 = true;
        queue.work.notify_one();
        measured
    })
}

/// Moves the connection into the thread that uses it.
fn connection_of(connection: Connection) -> Connection {
    connection
}

fn write(connection: &Connection, queue: &Queue) {
    loop {
        let mut waiting = queue.jobs.lock().expect("a queue");
        while waiting.0.is_empty() {
            if waiting.1 {
                return;
            }
            waiting = queue.work.wait(waiting).expect("a queue");
        }
        let count = waiting.0.len().min(BATCH);
        let batch: Vec<Job> = waiting.0.drain(..count).collect();
        drop(waiting);
        let run = |sql: &str| {
            connection
                .prepare_cached(sql)
                .and_then(|mut sql| sql.execute([]))
                .expect("a commit");
        };
        run("BEGIN IMMEDIATE");
        for job in &batch {
            connection
                .prepare_cached(INSERT_NOTE)
                .and_then(|mut insert| {
                    insert.execute((Uuid::now_v7().to_string(), SCOPE, &job.body))
                })
                .expect("a note");
        }
        run("COMMIT");
        for job in batch {
            // A caller that has left needs no answer.
            let _ = job.done.send(());
        }
    }
}
