//! A copy that is put back into the open file, as SQLite's own backup does it: what the
//! database no longer has is answered by nobody.

use std::{path::Path, time::Duration};

use idempotent_tool::{Failure, Reply, SqliteStore, Status, Toolbox, Tx, idempotent_tool};
use idempotent_tool_tests::toolbox;
use rusqlite::{Connection, backup::Backup};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, assert_code, assert_succeeded, caller, key},
    pace::alone,
    provider::{BY_KEY, Lab, deploy_by_key},
};

/// A copy of the ledger as it is now.
fn copy(ledger: &Ledger, name: &str) -> std::path::PathBuf {
    let path = ledger.folder.path().join(name);
    let own = Connection::open(ledger.path()).unwrap();
    own.execute("VACUUM INTO ?1", [path.to_str().unwrap()])
        .unwrap();
    path
}

/// Puts the copy into the file that the store has open.
fn restore(copy: &Path, into: &Path) {
    let copy = Connection::open(copy).unwrap();
    let mut open = Connection::open(into).unwrap();
    let backup = Backup::new(&copy, &mut open).unwrap();
    backup
        .run_to_completion(1_000, Duration::ZERO, None)
        .unwrap();
}

fn note(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": "milk" })
}

fn write(tools: &Toolbox, who: &str, name: &str) -> Reply {
    tools.call_blocking(&caller(who), "write_note", note(name))
}

/// The scopes of the notes, oldest first.
fn scopes_of_notes(ledger: &Ledger) -> Vec<String> {
    let own = Connection::open(ledger.path()).unwrap();
    let mut notes = own.prepare("SELECT scope FROM notes ORDER BY id").unwrap();
    let scopes = notes.query_map((), |row| row.get(0)).unwrap();
    scopes.map(Result::unwrap).collect()
}

/// No receipt is in a scope or of a tool that the ledger doesn't have.
fn assert_whole(path: &Path) {
    let own = Connection::open(path).unwrap();
    let lost: i64 = own
        .query_row(
            "SELECT count(*) FROM idempotent_receipts
             WHERE scope NOT IN (SELECT id FROM idempotent_scopes)
             OR tool NOT IN (SELECT id FROM idempotent_tools)",
            (),
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(lost, 0);
}

#[test]
fn a_key_whose_effect_is_gone_runs_again_in_its_own_scope() {
    for restarts in [false, true] {
        let ledger = Ledger::new();
        let mut tools = toolbox(&ledger.store).unwrap();
        assert_succeeded(&write(&tools, "ada", "first"), false);
        let copy = copy(&ledger, "copy");
        assert_succeeded(&write(&tools, "bob", "bob's"), false);
        assert_succeeded(&write(&tools, "bob", "bob's"), true);
        restore(&copy, &ledger.path());
        if restarts {
            tools = toolbox(&ledger.reopen()).unwrap();
        }
        // The database has neither the note nor the receipt.
        assert_succeeded(&write(&tools, "bob", "bob's"), false);
        assert_succeeded(&write(&tools, "bob", "another"), false);
        // Carol is new, as bob was; she uses his keys for her own notes.
        assert_succeeded(&write(&tools, "carol", "hers"), false);
        assert_succeeded(&write(&tools, "carol", "another"), false);
        assert_succeeded(&write(&tools, "carol", "bob's"), false);
        assert_succeeded(&write(&tools, "ada", "first"), true);
        assert_eq!(ledger.rows(), (6, 6), "restarts: {restarts}");
        assert_whole(&ledger.path());
        let scopes = scopes_of_notes(&ledger);
        let of = |who: &str| scopes.iter().filter(|scope| scope.contains(who)).count();
        assert_eq!((of("ada"), of("bob"), of("carol")), (1, 2, 3));
    }
}

#[test]
fn a_receipt_that_comes_back_with_a_copy_is_replayed() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let first = write(&tools, "bob", "kept");
    let with = copy(&ledger, "with");
    let own = Connection::open(ledger.path()).unwrap();
    own.execute_batch("DELETE FROM idempotent_receipts; DELETE FROM notes")
        .unwrap();
    drop(own);
    let other = write(&tools, "bob", "kept");
    assert_succeeded(&other, false);
    restore(&with, &ledger.path());
    let again = write(&tools, "bob", "kept");
    assert_succeeded(&again, true);
    assert_eq!(again.operation_id(), first.operation_id());
    assert_ne!(again.operation_id(), other.operation_id());
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_copy_from_before_the_tool_was_registered_gets_its_contract_again() {
    let ledger = Ledger::new();
    let copy = copy(&ledger, "copy");
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "first"), false);
    restore(&copy, &ledger.path());
    assert_succeeded(&write(&tools, "ada", "first"), false);
    assert_succeeded(&write(&tools, "ada", "first"), true);
    assert_whole(&ledger.path());
    let own = Connection::open(ledger.path()).unwrap();
    let contracts: i64 = own
        .query_row(
            "SELECT count(*) FROM idempotent_contracts AS c JOIN idempotent_tools AS t
             ON t.id = c.tool WHERE t.name = 'write_note'",
            (),
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(contracts, 1);
    // A restart finds it.
    let again = toolbox(&ledger.reopen()).unwrap();
    assert_succeeded(&write(&again, "ada", "first"), true);
}

/// A tool has receipts of its other versions even where this one's contract is missing.
#[test]
fn a_receipt_is_found_before_its_tools_contract_is_registered_again() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    // Another process, which has not seen the key.
    let other = toolbox(&ledger.reopen()).unwrap();
    let first = write(&tools, "ada", "first");
    assert_succeeded(&first, false);
    let copy = copy(&ledger, "copy");
    let own = Connection::open(&copy).unwrap();
    own.execute("DELETE FROM idempotent_contracts", ()).unwrap();
    drop(own);
    restore(&copy, &ledger.path());
    let again = write(&other, "ada", "first");
    assert_succeeded(&again, true);
    assert_eq!(again.operation_id(), first.operation_id());
    assert_succeeded(&write(&other, "ada", "second"), false);
    assert_eq!(ledger.rows(), (2, 2));
}

/// Writes a note under another name.
#[idempotent_tool(operation = "another_note:v1")]
fn another_note(tx: &Tx, body: String) -> Result<String, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(body)
}

/// In the copy the id of `write_note` belongs to another tool.
#[test]
fn a_tools_id_in_a_copy_is_looked_up_by_its_name() {
    let ledger = Ledger::new();
    let empty = copy(&ledger, "empty");
    let notes = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&notes, "ada", "same"), false);
    // The copy is used meanwhile, by a toolbox with another tool.
    let store = SqliteStore::open(&empty).unwrap();
    let other = Toolbox::builder(store)
        .without_authorization()
        .tool::<another_note>()
        .build()
        .unwrap();
    let ada = caller("ada");
    assert_succeeded(
        &other.call_blocking(&ada, "another_note", note("same")),
        false,
    );
    drop(other);
    restore(&empty, &ledger.path());
    // Equal scope, key and arguments, and another tool: never its result.
    let reply = write(&notes, "ada", "same");
    assert_succeeded(&reply, false);
    assert_ne!(reply.result().unwrap().get(), "\"milk\"");
    assert_eq!(ledger.rows(), (2, 2));
    assert_whole(&ledger.path());
}

#[test]
fn a_copy_with_another_contract_of_the_tool_is_not_used_by_it() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "first"), false);
    let copy = copy(&ledger, "copy");
    let other = Connection::open(&copy).unwrap();
    let changed = other
        .execute(
            "UPDATE idempotent_contracts SET contract = replace(contract, '\"body\"', '\"text\"')
             WHERE tool = (SELECT id FROM idempotent_tools WHERE name = 'write_note')",
            (),
        )
        .unwrap();
    assert_eq!(changed, 1);
    drop(other);
    restore(&copy, &ledger.path());
    let refused = write(&tools, "ada", "second");
    assert_code(&refused, "storage");
    assert!(!refused.is_retryable(), "{}", refused.to_json());
    assert_eq!(ledger.rows(), (1, 1));
    // The other tool's contract is as it was.
    let reply = tools.call_blocking(&caller("ada"), "refuse_note", note("third"));
    assert_code(&reply, "refused");
}

#[test]
fn a_copy_of_an_older_version_is_refused_until_the_store_is_opened_anew() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "first"), false);
    let older = ledger.folder.path().join("older");
    let own = Connection::open(&older).unwrap();
    own.execute_batch(include_str!("../../../runtime/src/store/sqlite/schema.sql"))
        .unwrap();
    own.execute_batch("CREATE TABLE notes (id INTEGER PRIMARY KEY, scope TEXT, body TEXT)")
        .unwrap();
    drop(own);
    restore(&older, &ledger.path());
    for name in ["first", "second"] {
        let refused = write(&tools, "ada", name);
        assert_code(&refused, "storage");
        assert!(!refused.is_retryable(), "{}", refused.to_json());
    }
    let refused = ledger.store.prune(10).map(|_| ());
    let transact = ledger.store.transact_blocking(|_| Ok::<_, Failure>(()));
    assert!(
        transact
            .unwrap_err()
            .to_string()
            .contains("open the store anew")
    );
    assert!(refused.is_err());
    assert!(toolbox(&ledger.store).is_err());
    let anew = toolbox(&ledger.reopen()).unwrap();
    assert_succeeded(&write(&anew, "ada", "first"), false);
    // The ledger is this version's again.
    assert_succeeded(&write(&tools, "ada", "first"), true);
}

#[test]
fn a_copy_of_no_ledger_is_refused() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "first"), false);
    let bare = ledger.folder.path().join("bare");
    let own = Connection::open(&bare).unwrap();
    own.execute_batch("CREATE TABLE notes (id INTEGER PRIMARY KEY, scope TEXT, body TEXT)")
        .unwrap();
    drop(own);
    restore(&bare, &ledger.path());
    for name in ["first", "second"] {
        assert_code(&write(&tools, "ada", name), "storage");
    }
}

/// The lock is another connection's until the copy is back.
#[test]
fn a_batch_that_waits_for_the_lock_meanwhile_believes_the_copy() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "first"), false);
    let copy = copy(&ledger, "copy");
    assert_succeeded(&write(&tools, "bob", "lost"), false);
    let mut holder = Connection::open(ledger.path()).unwrap();
    let source = Connection::open(&copy).unwrap();
    let backup = Backup::new(&source, &mut holder).unwrap();
    // All but the last step: it holds the write lock from the first one on.
    while backup.step(1).unwrap() != rusqlite::backup::StepResult::Done {
        if backup.progress().remaining == 1 {
            break;
        }
    }
    std::thread::scope(|scope| {
        let bob = scope.spawn(|| write(&tools, "bob", "other"));
        let carol = scope.spawn(|| write(&tools, "carol", "other"));
        // They wait for the lock, or come after it: the answers are the same.
        backup.step(-1).unwrap();
        drop(backup);
        assert_succeeded(&bob.join().unwrap(), false);
        assert_succeeded(&carol.join().unwrap(), false);
    });
    assert_succeeded(&write(&tools, "bob", "lost"), false);
    assert_succeeded(&write(&tools, "carol", "lost"), false);
    assert_eq!(ledger.rows(), (5, 5));
    assert_whole(&ledger.path());
}

/// Has a call of another tool carried out.
#[idempotent_tool(operation = "enqueue_one:v1")]
fn enqueue_one(tx: &Tx, name: String) -> Result<(), Failure> {
    let image = json!({ "image": crate::common::marked("web:9") });
    tx.enqueue::<deploy_by_key>(&key(&name), &image)?;
    Ok(())
}

#[test]
fn what_is_enqueued_after_a_restore_is_of_a_tool_that_the_ledger_knows() {
    alone(async {
        let lab = Lab::new([]);
        let tools = Toolbox::builder(lab.ledger.store.clone())
            .without_authorization()
            .state(lab.provider.clone())
            .tool::<deploy_by_key>()
            .tool::<enqueue_one>()
            .build()
            .unwrap();
        let ada = caller("ada");
        let enqueue = |name: &str| json!({ "idempotency_key": key(name), "name": name });
        let fresh = Ledger::new();
        let empty = copy(&fresh, "empty");
        let reply = tools.call(&ada, "enqueue_one", enqueue("one")).await;
        assert_succeeded(&reply, false);
        restore(&empty, &lab.ledger.path());
        let reply = tools.call(&ada, "enqueue_one", enqueue("two")).await;
        assert_succeeded(&reply, false);
        assert_whole(&lab.ledger.path());
    });
}

#[test]
fn an_external_operation_after_a_restore_is_of_a_tool_that_the_ledger_knows() {
    alone(async {
        let lab = Lab::new([]);
        let fresh = Ledger::new();
        let empty = copy(&fresh, "empty");
        assert_succeeded(&lab.call(BY_KEY, "one").await, false);
        restore(&empty, &lab.ledger.path());
        let reply = lab.call(BY_KEY, "two").await;
        assert_eq!(reply.status(), Status::Succeeded, "{}", reply.to_json());
        assert_whole(&lab.ledger.path());
        assert_succeeded(&lab.call(BY_KEY, "two").await, true);
    });
}
