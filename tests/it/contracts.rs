//! What may change under a version that a ledger already knows.

use std::time::{Duration, SystemTime};

use idempotent_tool::{
    BuildError, Failure, ManualClock, RunsOn, SqliteStore, Tool, Toolbox, Tx, idempotent_tool,
};
use serde_json::json;

use crate::common::{Ledger, ada, assert_code, assert_succeeded, key, marked, watch_logs};

mod original {
    use super::*;

    #[idempotent_tool(operation = "create_note:v1")]
    pub(super) fn create_note(
        tx: &Tx,
        #[schemars(length(max = 100))] body: String,
        #[serde(default)] copies: u8,
    ) -> Result<i64, Failure> {
        let _ = copies;
        tx.execute(
            "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
            (tx.scope(), &body),
        )?;
        Ok(tx.last_insert_rowid())
    }
}

/// Variants of `create_note:v1`: a module's name, then the parameters and the output.
macro_rules! variants {
    ($($module:ident($($parameters:tt)*) -> $output:ty = $value:expr;)*) => {
        $(mod $module {
            use super::*;

            #[allow(unused_variables, reason = "only the contract matters")]
            #[idempotent_tool(operation = "create_note:v1")]
            pub(super) fn create_note(tx: &Tx, $($parameters)*) -> Result<$output, Failure> {
                Ok($value)
            }
        })*
    };
}

fn seven() -> u8 {
    7
}

variants! {
    changed_default(
        #[schemars(length(max = 100))] body: String,
        #[serde(default = "seven")] copies: u8,
    ) -> i64 = 1;
    changed_type(
        #[schemars(length(max = 100))] body: String,
        #[serde(default)] copies: u16,
    ) -> i64 = 1;
    changed_constraint(
        #[schemars(length(max = 99))] body: String,
        #[serde(default)] copies: u8,
    ) -> i64 = 1;
    changed_result(
        #[schemars(length(max = 100))] body: String,
        #[serde(default)] copies: u8,
    ) -> String = String::new();
    removed_argument(#[serde(default)] copies: u8) -> i64 = 1;
    renamed_argument(
        #[schemars(length(max = 100))] text: String,
        #[serde(default)] copies: u8,
    ) -> i64 = 1;
    new_required_argument(
        #[schemars(length(max = 100))] body: String,
        #[serde(default)] copies: u8,
        folder: String,
    ) -> i64 = 1;
    now_required(#[schemars(length(max = 100))] body: String, copies: u8) -> i64 = 1;
    new_optional_arguments(
        /// A doc comment is no part of the contract.
        #[schemars(length(max = 100))]
        body: String,
        #[serde(default)] copies: u8,
        #[serde(default)] pinned: bool,
        folder: Option<String>,
    ) -> i64 = 1;
}

mod external {
    use idempotent_tool::{Attempt, AttemptError};

    use super::*;

    #[idempotent_tool(operation = "create_note:v1", inspect = "look")]
    pub(super) async fn create_note(
        _attempt: &Attempt,
        #[schemars(length(max = 100))] body: String,
        #[serde(default)] copies: u8,
    ) -> Result<i64, AttemptError> {
        drop(body);
        Ok(copies.into())
    }
}

fn build<T: Tool>(store: SqliteStore) -> Result<Toolbox, BuildError>
where
    T::Context: RunsOn<SqliteStore>,
{
    Toolbox::builder(store)
        .without_authorization()
        .tool::<T>()
        .build()
}

#[track_caller]
fn refused<T: Tool>(ledger: &Ledger, place: &str)
where
    T::Context: RunsOn<SqliteStore>,
{
    let error = build::<T>(ledger.reopen()).unwrap_err();
    assert!(
        matches!(error, BuildError::ContractChanged { .. }),
        "{error}"
    );
    let text = error.to_string();
    for part in ["`create_note:v1`", place, "new version"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_changed_contract_does_not_build_and_says_what_changed() {
    let ledger = Ledger::new();
    build::<original::create_note>(ledger.store.clone()).unwrap();
    refused::<changed_default::create_note>(&ledger, "copies");
    refused::<changed_type::create_note>(&ledger, "copies");
    refused::<changed_constraint::create_note>(&ledger, "body");
    refused::<changed_result::create_note>(&ledger, "result");
    refused::<removed_argument::create_note>(&ledger, "body");
    refused::<renamed_argument::create_note>(&ledger, "body");
    refused::<new_required_argument::create_note>(&ledger, "folder");
    refused::<now_required::create_note>(&ledger, "copies");
    // None of the refusals changed what the ledger knows.
    build::<original::create_note>(ledger.reopen()).unwrap();
}

/// A receipt is no operation that could be under way, and an operation no receipt.
#[tokio::test]
async fn an_effect_does_not_move_in_place() {
    let ledger = Ledger::new();
    build::<original::create_note>(ledger.store.clone()).unwrap();
    refused::<external::create_note>(&ledger, "outside the database");
    build::<original::create_note>(ledger.reopen()).unwrap();

    let ledger = Ledger::new();
    build::<external::create_note>(ledger.store.clone()).unwrap();
    refused::<original::create_note>(&ledger, "in the database");
    build::<external::create_note>(ledger.reopen()).unwrap();
}

#[test]
fn a_new_optional_argument_changes_no_fingerprint() {
    let ledger = Ledger::new();
    let arguments =
        json!({ "idempotency_key": key("before"), "body": marked("milk"), "copies": 0 });
    let before = build::<original::create_note>(ledger.store.clone()).unwrap();
    let first = before.call_blocking(&ada(), "create_note", arguments.clone());
    assert_succeeded(&first, false);

    let after = build::<new_optional_arguments::create_note>(ledger.reopen()).unwrap();
    let again = after.call_blocking(&ada(), "create_note", arguments);
    assert_succeeded(&again, true);
    assert_eq!(again.operation_id(), first.operation_id());
}

/// A ledger that `original` wrote with the first released layout, before `create_note:v1`
/// had its optional arguments. Never made again: it stands for the files that users have.
const FIXTURE: &[u8] = include_bytes!("fixtures/ledger-1.db");

#[test]
fn a_receipt_in_an_old_file_is_replayed_under_the_wider_contract() {
    watch_logs();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    std::fs::write(&path, FIXTURE).unwrap();
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(500_001));
    let store = SqliteStore::options().clock(clock).open(&path).unwrap();
    let tools = build::<new_optional_arguments::create_note>(store).unwrap();
    for (arguments, replayed) in [
        (json!({ "body": marked("milk") }), true),
        (
            json!({ "body": marked("milk"), "copies": 0, "pinned": false, "folder": null }),
            true,
        ),
        (json!({ "body": marked("milk"), "pinned": true }), false),
        (json!({ "body": marked("bread") }), false),
    ] {
        let mut arguments = arguments;
        arguments["idempotency_key"] = key("old-file").into();
        let reply = tools.call_blocking(&ada(), "create_note", arguments);
        if replayed {
            assert_succeeded(&reply, true);
            assert_eq!(reply.result().unwrap().get(), "1");
            let operation_id = reply.operation_id().unwrap().to_string();
            assert_eq!(operation_id, "op_01a22b9089a972948d72b227e2dd07bb");
        } else {
            assert_code(&reply, "payload_conflict");
        }
    }
}

/// What it serializes to as a default, `{}`, means something else as an argument.
#[derive(Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Lossy {
    #[serde(default = "some", skip_serializing_if = "Option::is_none")]
    limit: Option<u8>,
}

fn some() -> Option<u8> {
    Some(5)
}

#[idempotent_tool(operation = "lossy:v1")]
fn lossy(_tx: &Tx, #[serde(default)] options: Lossy) -> Result<Option<u8>, Failure> {
    Ok(options.limit)
}

#[test]
fn a_default_that_is_read_as_another_value_does_not_build() {
    let ledger = Ledger::new();
    let error = build::<lossy>(ledger.store.clone()).unwrap_err();
    assert!(matches!(error, BuildError::Schema { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("options") && text.contains("read back"),
        "{text}"
    );
}

#[test]
fn the_same_operation_twice_does_not_build() {
    let ledger = Ledger::new();
    let error = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<original::create_note>()
        .tool::<changed_type::create_note>()
        .build()
        .unwrap_err();
    assert!(
        matches!(error, BuildError::DuplicateOperation { .. }),
        "{error}"
    );
}

#[idempotent_tool(operation = "get_operation:v1")]
fn reserved(_tx: &Tx) -> Result<(), Failure> {
    Ok(())
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let ledger = Ledger::new();
    let error = Toolbox::builder(ledger.store.clone())
        .tool::<original::create_note>()
        .tool::<reserved>()
        .build()
        .unwrap_err();
    let BuildError::Several { problems, .. } = &error else {
        panic!("{error}")
    };
    assert!(problems.len() >= 2, "{error}");
    let text = error.to_string();
    assert!(text.contains("`get_operation` belongs") && text.contains("`create_note` has no"));
}
