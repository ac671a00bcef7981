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
            own::Own,
            statements::{INSERT_TOOL, UPSERT_CONTRACT},
            writer::Memo,
        },
    },
};

/// Records the contracts, in one transaction if any of them is new.
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
    let locked = transaction
        .lock(|| core.clock.monotonic() < deadline)
        .map_err(store)?;
    if !locked {
        return Err(BuildError::Store(
            StoreError::new("another process keeps the database locked; end it, or build again")
                .retryable(),
        ));
    }
    memo.confirm_locked(core, transaction)
        .map_err(BuildError::Store)?;
    for contract in &contracts {
        record(transaction, contract)?;
    }
    core.check_files().map_err(BuildError::Store)?;
    transaction.command(Own::Commit).map_err(store)?;
    core.check_files().map_err(BuildError::Store)?;
    Ok(contracts)
}

/// Whether every contract is recorded as it is now.
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
            Found::Same(_) => (),
            // New, or changed in a way that is checked under the lock.
            Found::Other(..) | Found::Nothing(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// The tool's id if the ledger has the contract as it is; `None` if it is to be recorded
/// under the write lock.
pub(super) fn locate(
    transaction: &Transaction,
    contract: &Registered,
) -> Result<Option<i64>, Refused> {
    match find(transaction, contract)? {
        Found::Same(tool) => Ok(Some(tool)),
        Found::Other(..) | Found::Nothing(_) => Ok(None),
    }
}

/// The tool's id. The write lock is held: a contract that is missing or may be changed is
/// recorded.
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

/// Records a contract, unless the ledger has one that it may not take the place of.
fn record(transaction: &Transaction, contract: &Registered) -> Result<i64, Refused> {
    let tool = match find(transaction, contract)? {
        Found::Same(tool) => return Ok(tool),
        Found::Other(tool, stored) => {
            (contract.check)(&stored, &contract.contract).map_err(Refused::Contract)?;
            tool
        }
        Found::Nothing(Some(tool)) => tool,
        Found::Nothing(None) => {
            let connection = transaction.connection();
            connection
                .execute(INSERT_TOOL, [&contract.contract.tool])
                .map_err(Refused::Database)?;
            connection.last_insert_rowid()
        }
    };
    transaction
        .connection()
        .execute(
            UPSERT_CONTRACT,
            (tool, contract.contract.version, &contract.text),
        )
        .map_err(Refused::Database)?;
    Ok(tool)
}

/// What the ledger has of a contract.
enum Found {
    /// The same, and the tool's id.
    Same(i64),
    /// Another one, in its stored form.
    Other(i64, serde_json::Value),
    /// None; and the tool's id, if it has other versions of it.
    Nothing(Option<i64>),
}

fn find(transaction: &Transaction, contract: &Registered) -> Result<Found, Refused> {
    let Contract {
        tool: name,
        version,
        json,
    } = &contract.contract;
    let tool: Option<i64> = transaction
        .own(Own::FindTool, |find| {
            find.query_row([name], |row| row.get(0)).optional()
        })
        .map_err(Refused::Database)?;
    let Some(tool) = tool else {
        return Ok(Found::Nothing(None));
    };
    let stored: Option<String> = transaction
        .own(Own::FindContract, |find| {
            find.query_row((tool, version), |row| row.get(0)).optional()
        })
        .map_err(Refused::Database)?;
    let Some(stored) = stored else {
        return Ok(Found::Nothing(Some(tool)));
    };
    if stored == contract.text {
        return Ok(Found::Same(tool));
    }
    let stored = serde_json::from_str(&stored).map_err(|error| {
        let what = "a contract in the ledger is not JSON; the ledger was changed from outside";
        Refused::Contract(BuildError::Store(StoreError::new(what).caused_by(error)))
    })?;
    Ok(if stored == *json {
        Found::Same(tool)
    } else {
        Found::Other(tool, stored)
    })
}

fn store(error: rusqlite::Error) -> BuildError {
    BuildError::Store(unreadable(error))
}
