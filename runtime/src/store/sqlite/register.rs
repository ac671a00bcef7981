//! The contracts that the ledger knows.

use rusqlite::{Connection, OptionalExtension};

use crate::{
    BuildError,
    effect::tx::Transaction,
    request::contract::Contract,
    store::{
        CheckContract, StoreError,
        sqlite::{
            Core,
            call::unreadable,
            own::Own,
            statements::{FIND_CONTRACT, FIND_TOOL, INSERT_TOOL, UPSERT_CONTRACT},
        },
    },
};

/// Versions end below this: they have at most nine digits.
const VERSION_BITS: u32 = 30;

/// Where a contract is kept. As one number it is the id that the core hands around, from
/// which a call's tool is known without a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContractRow {
    pub(super) tool: i64,
    pub(super) version: u32,
}

impl ContractRow {
    pub(super) fn id(self) -> i64 {
        (self.tool << VERSION_BITS) | i64::from(self.version)
    }

    pub(super) fn from_id(id: i64) -> Self {
        let version = id & ((1 << VERSION_BITS) - 1);
        Self {
            tool: id >> VERSION_BITS,
            version: u32::try_from(version).unwrap_or(u32::MAX),
        }
    }
}

/// Records the contracts, in one transaction if the ledger knows less than any of them says.
pub(super) fn register(
    core: &Core,
    transaction: &Transaction,
    contracts: &[Contract],
    check: &CheckContract<'_>,
) -> Result<Vec<i64>, BuildError> {
    // A server that starts while another one writes needs no lock if nothing is new.
    if let Some(ids) = known(transaction.connection(), contracts, check)? {
        return Ok(ids);
    }
    let deadline = core
        .clock
        .monotonic()
        .saturating_add(core.opener.options.budget);
    let locked = transaction
        .lock(|| core.clock.monotonic() < deadline)
        .map_err(|error| BuildError::Store(unreadable(error)))?;
    if !locked {
        return Err(BuildError::Store(
            StoreError::new("another process keeps the database locked; end it, or build again")
                .retryable(),
        ));
    }
    let ids = record(transaction.connection(), contracts, check)?;
    transaction
        .command(Own::Commit)
        .map_err(|error| BuildError::Store(unreadable(error)))?;
    Ok(ids)
}

/// The ids if what the ledger keeps covers every contract. A refusal needs no lock either:
/// what the ledger keeps only grows, and contradicts the contract then as well.
fn known(
    connection: &Connection,
    contracts: &[Contract],
    check: &CheckContract<'_>,
) -> Result<Option<Vec<i64>>, BuildError> {
    let mut ids = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let Some(tool) = find_tool(connection, &contract.tool)? else {
            return Ok(None);
        };
        let row = ContractRow {
            tool,
            version: contract.version,
        };
        let Some(stored) = find(connection, row)? else {
            return Ok(None);
        };
        if check(&stored, contract)?.is_some() {
            return Ok(None); // Another process may be about to add something too.
        }
        ids.push(row.id());
    }
    Ok(Some(ids))
}

fn record(
    connection: &Connection,
    contracts: &[Contract],
    check: &CheckContract<'_>,
) -> Result<Vec<i64>, BuildError> {
    let mut ids = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let known = find_tool(connection, &contract.tool)?;
        let tool = known.map_or_else(|| record_tool(connection, &contract.tool), Ok)?;
        let row = ContractRow {
            tool,
            version: contract.version,
        };
        let widest = match find(connection, row)? {
            None => Some(contract.json.clone()),
            Some(stored) => check(&stored, contract)?,
        };
        if let Some(widest) = widest {
            connection
                .execute(
                    UPSERT_CONTRACT,
                    (tool, contract.version, widest.to_string()),
                )
                .map_err(store)?;
        }
        ids.push(row.id());
    }
    Ok(ids)
}

fn record_tool(connection: &Connection, name: &str) -> Result<i64, BuildError> {
    connection.execute(INSERT_TOOL, [name]).map_err(store)?;
    Ok(connection.last_insert_rowid())
}

fn find_tool(connection: &Connection, name: &str) -> Result<Option<i64>, BuildError> {
    connection
        .query_row(FIND_TOOL, [name], |row| row.get(0))
        .optional()
        .map_err(store)
}

fn find(
    connection: &Connection,
    row: ContractRow,
) -> Result<Option<serde_json::Value>, BuildError> {
    let text: Option<String> = connection
        .query_row(FIND_CONTRACT, (row.tool, row.version), |row| row.get(0))
        .optional()
        .map_err(store)?;
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|error| {
            let what = "a contract in the ledger is not JSON; the ledger was changed from outside";
            BuildError::Store(StoreError::new(what).caused_by(error))
        })
}

fn store(error: rusqlite::Error) -> BuildError {
    BuildError::Store(unreadable(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_row_survives_its_id() {
        for tool in [1, 2, 1_000_000] {
            for version in [1, 2, 999_999_999] {
                let row = ContractRow { tool, version };
                assert_eq!(ContractRow::from_id(row.id()), row);
            }
        }
    }
}
