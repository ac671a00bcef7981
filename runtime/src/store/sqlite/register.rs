//! The contracts that the ledger knows.

use std::sync::Arc;

use rusqlite::OptionalExtension;

use crate::{
    BuildError,
    effect::tx::Transaction,
    request::{
        contract::Contract,
        registered::{CheckContract, Registered},
    },
    store::{
        StoreError,
        sqlite::{
            Core,
            call::unreadable,
            exclusive::{self, Failed, Terms},
            own::Own,
            statements::{INSERT_TOOL, UPSERT_CONTRACT},
            writer::Memo,
        },
    },
};

/// Records the contracts, in one transaction if the ledger knows less than any of them says.
pub(super) fn register(
    core: &Core,
    memo: &mut Memo,
    transaction: &Transaction,
    contracts: Vec<Contract>,
    check: CheckContract,
) -> Result<Vec<Arc<Registered>>, BuildError> {
    let contracts: Vec<_> = contracts
        .into_iter()
        .map(|contract| Arc::new(Registered::new(contract, check)))
        .collect();
    // A server that starts while another one writes needs no lock if nothing is new.
    if are_known(core, memo, transaction, &contracts)? {
        return Ok(contracts);
    }
    let deadline = core
        .clock
        .monotonic()
        .saturating_add(core.opener.options.budget);
    let waits = || core.clock.monotonic() < deadline;
    let terms = Terms {
        synced: false,
        is_there: None,
    };
    let recorded = exclusive::run(
        core,
        memo,
        transaction,
        None,
        waits,
        &terms,
        |_, transaction| {
            for contract in &contracts {
                record(transaction, contract)?;
            }
            Ok(())
        },
    );
    recorded.map_err(|failed: Failed<BuildError>| match failed {
        Failed::Busy | Failed::Late => BuildError::Store(
            StoreError::new("another process keeps the database locked; end it, or build again")
                .retryable(),
        ),
        Failed::Refused(error) => error,
        Failed::Nothing(error) | Failed::Cleared(error) | Failed::Unknown(error) => {
            BuildError::Store(error)
        }
    })?;
    Ok(contracts)
}

/// Whether what the ledger keeps covers every contract. A refusal needs no lock either: what
/// the ledger keeps only grows, and contradicts the contract then as well.
fn are_known(
    core: &Core,
    memo: &mut Memo,
    transaction: &Transaction,
    contracts: &[Arc<Registered>],
) -> Result<bool, BuildError> {
    let before = core.watch.before();
    transaction.command(Own::Begin).map_err(store)?;
    // Its first look is the transaction's first read.
    let known = look(transaction, contracts);
    memo.confirm(core, transaction, before)
        .map_err(store)?
        .map_err(BuildError::Store)?;
    core.check_files().map_err(BuildError::Store)?;
    transaction.command(Own::Rollback).map_err(store)?;
    known
}

fn look(transaction: &Transaction, contracts: &[Arc<Registered>]) -> Result<bool, BuildError> {
    for contract in contracts {
        match find(transaction, contract)? {
            Found::Covered(_) => (),
            // Another process may be about to add something too.
            Found::Narrower(..) | Found::Nothing(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Where a tool's receipts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Located {
    /// The tool's id, if the ledger has the tool at all.
    pub(super) tool: Option<i64>,
    /// What the ledger keeps covers the contract; else that is to be recorded under the
    /// write lock, and the receipts of other versions are there even so.
    pub(super) is_covered: bool,
}

/// Where a tool's receipts are, and whether its contract is to be recorded.
pub(super) fn locate(transaction: &Transaction, contract: &Registered) -> Result<Located, Refused> {
    let found = find(transaction, contract)?;
    Ok(Located {
        is_covered: matches!(found, Found::Covered(_)),
        tool: match found {
            Found::Covered(tool) | Found::Narrower(tool, _) => Some(tool),
            Found::Nothing(tool) => tool,
        },
    })
}

/// The tool's id. The write lock is held: a contract that the ledger doesn't cover is recorded.
pub(super) fn ensure(transaction: &Transaction, contract: &Registered) -> Result<i64, Refused> {
    record(transaction, contract)
}

/// Why a contract is not registered.
#[derive(Debug)]
pub(super) enum Refused {
    /// A statement failed.
    Database(rusqlite::Error),
    /// The ledger has one that it may not take the place of, or that can't be read.
    Contract(BuildError),
}

impl From<Refused> for BuildError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Database(error) => store(error),
            Refused::Contract(error) => error,
        }
    }
}

impl Refused {
    /// What is said where it was registered before: a failed statement, or a ledger that was
    /// put back.
    pub(super) fn again(self) -> rusqlite::Result<StoreError> {
        match self {
            Self::Database(error) => Err(error),
            Self::Contract(BuildError::Store(error)) => Ok(error),
            Self::Contract(other) => Ok(StoreError::new(
                "the ledger has another contract of this tool than the one that this process was \
                 built with, as after a restore; start the version that fits the ledger, or \
                 restore a later copy",
            )
            .caused_by(other)),
        }
    }
}

/// Records a contract, unless the ledger has one that contradicts it.
fn record(transaction: &Transaction, contract: &Registered) -> Result<i64, Refused> {
    let connection = transaction.connection();
    let (tool, text) = match find(transaction, contract)? {
        Found::Covered(tool) => return Ok(tool),
        Found::Narrower(tool, widest) => (tool, widest.to_string()),
        Found::Nothing(Some(tool)) => (tool, contract.text.clone()),
        Found::Nothing(None) => {
            let rows = connection
                .execute(INSERT_TOOL, [&contract.contract.tool])
                .map_err(Refused::Database)?;
            gave_an_id(rows).map_err(Refused::Database)?;
            (connection.last_insert_rowid(), contract.text.clone())
        }
    };
    connection
        .execute(UPSERT_CONTRACT, (tool, contract.contract.version, text))
        .map_err(Refused::Database)?;
    Ok(tool)
}

/// Fails if an insertion that gives a scope or a tool its id gave none, since the ledger's
/// count of ids was taken away: the id of the last row inserted is another's then.
pub(super) fn gave_an_id(rows: usize) -> rusqlite::Result<()> {
    if rows == 1 {
        Ok(())
    } else {
        Err(rusqlite::Error::StatementChangedRows(rows))
    }
}

/// What the ledger has of a contract.
enum Found {
    /// The same or a wider one, and the tool's id.
    Covered(i64),
    /// A narrower one, the tool's id, and what the ledger is to keep.
    Narrower(i64, serde_json::Value),
    /// None; and the tool's id, if it has other versions of it.
    Nothing(Option<i64>),
}

fn find(transaction: &Transaction, contract: &Registered) -> Result<Found, Refused> {
    let tool: Option<i64> = transaction
        .own(Own::FindTool, |find| {
            find.query_row([&contract.contract.tool], |row| row.get(0))
                .optional()
        })
        .map_err(Refused::Database)?;
    let Some(tool) = tool else {
        return Ok(Found::Nothing(None));
    };
    let stored: Option<String> = transaction
        .own(Own::FindContract, |find| {
            find.query_row((tool, contract.contract.version), |row| row.get(0))
                .optional()
        })
        .map_err(Refused::Database)?;
    let Some(stored) = stored else {
        return Ok(Found::Nothing(Some(tool)));
    };
    if stored == contract.text {
        return Ok(Found::Covered(tool));
    }
    let stored = serde_json::from_str(&stored).map_err(|error| {
        let what = "a contract in the ledger is not JSON; the ledger was changed from outside";
        Refused::Contract(BuildError::Store(StoreError::new(what).caused_by(error)))
    })?;
    match (contract.check)(&stored, &contract.contract).map_err(Refused::Contract)? {
        None => Ok(Found::Covered(tool)),
        Some(widest) => Ok(Found::Narrower(tool, widest)),
    }
}

fn store(error: rusqlite::Error) -> BuildError {
    BuildError::Store(unreadable(error))
}
