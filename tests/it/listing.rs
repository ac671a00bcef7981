//! The listing: schemas and description as callers get them, as snapshots.

use expect_test::expect_file;
use idempotent_tool::{Attempt, AttemptError, Failure, Toolbox, Tx, idempotent_tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::Ledger;

#[derive(Deserialize, Serialize, JsonSchema)]
struct Money {
    /// In the currency's smallest unit.
    #[schemars(range(min = 1))]
    amount: u32,
    currency: Currency,
}

#[derive(Deserialize, Serialize, JsonSchema)]
enum Currency {
    Eur,
    Usd,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind")]
#[expect(dead_code, reason = "only its schema is used")]
enum Target {
    Card {
        number: String,
    },
    Account {
        iban: String,
        reference: Option<String>,
    },
}

impl Default for Target {
    fn default() -> Self {
        Self::Card {
            number: String::new(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct Transfer {
    /// The id of the transfer.
    transfer_id: u64,
    fee: Option<Money>,
}

/// Transfer money to a card or an account.
///
/// The money leaves at once.
///
/// # Errors
///
/// When the account is empty.
#[idempotent_tool(
    operation = "transfer:v3",
    title = "Transfer money",
    retention = "7d",
    open_world = true
)]
fn transfer(
    _tx: &Tx,
    /// What to transfer.
    money: Money,
    to: Target,
    /// What the receiver reads.
    #[schemars(length(min = 1, max = 140))]
    text: Option<String>,
    #[serde(default = "yes")] at_once: bool,
) -> Result<Transfer, Failure> {
    let _ = (&to, &text, at_once);
    Ok(Transfer {
        transfer_id: 1,
        fee: Some(money),
    })
}

fn yes() -> bool {
    true
}

fn listing() -> Value {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<transfer>()
        .build()
        .unwrap();
    serde_json::to_value(tools.describe("transfer").unwrap()).unwrap()
}

#[test]
fn the_listing_is_what_it_was() {
    let listing = serde_json::to_string_pretty(&listing()).unwrap();
    expect_file!["./snapshots/transfer.json"].assert_eq(&(listing + "\n"));
}

#[idempotent_tool(operation = "count:v1")]
fn count_v1(_tx: &Tx, word: String) -> Result<u8, Failure> {
    Ok(u8::try_from(word.len()).unwrap_or(u8::MAX))
}

/// Count the letters of a word.
#[idempotent_tool(operation = "count:v2")]
fn count_v2(_tx: &Tx, word: String, unit: Option<String>) -> Result<String, Failure> {
    Ok(format!("{} {}", word.len(), unit.unwrap_or_default()))
}

#[test]
fn two_versions_are_listed_as_the_highest_with_the_results_of_both() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<count_v1>()
        .tool::<count_v2>()
        .build()
        .unwrap();
    let listing = serde_json::to_string_pretty(tools.describe("count").unwrap()).unwrap();
    expect_file!["./snapshots/two_versions.json"].assert_eq(&(listing + "\n"));
}

/// Deploy what is in the repository.
#[idempotent_tool(operation = "deploy:v1", inspect = "Look at the provider's page")]
async fn deploy(_attempt: &Attempt, commit: String) -> Result<String, AttemptError> {
    Ok(commit)
}

#[tokio::test]
async fn an_external_tool_is_listed_with_its_handles() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<deploy>()
        .build()
        .unwrap();
    let listing: Vec<_> = tools.list().collect();
    let listing = serde_json::to_string_pretty(&listing).unwrap();
    expect_file!["./snapshots/external.json"].assert_eq(&(listing + "\n"));
}

#[test]
fn the_schemas_are_what_every_client_takes() {
    let listing = listing();
    let (input, output) = (&listing["inputSchema"], &listing["outputSchema"]);
    for schema in [input, output] {
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        let text = schema.to_string();
        for keyword in ["$ref", "$defs", "nullable", "$schema"] {
            assert!(
                !text.contains(&format!("\"{keyword}\"")),
                "{keyword}: {text}"
            );
        }
    }
    assert!(!input.to_string().contains("\"null\""), "{input}");
    assert!(output.get("oneOf").is_none() && output.get("anyOf").is_none());
    assert_eq!(
        input["required"],
        serde_json::json!(["idempotency_key", "money", "to"])
    );
}

#[test]
fn the_description_says_how_to_call_and_no_rust() {
    let listing = listing();
    let description = listing["description"].as_str().unwrap();
    for part in [
        "Transfer money to a card or an account.",
        "Make a new `idempotency_key`",
        "reuses the same key and the same arguments",
        "valid for 7 days",
        "returns the recorded result",
    ] {
        assert!(description.contains(part), "{part}: {description}");
    }
    assert!(!description.contains("# Errors"), "{description}");
}
