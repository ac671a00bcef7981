//! A contract that a toolbox was built with, as long as the toolbox lives.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde_json::Value;

use crate::{BuildError, request::contract::Contract};

/// Compares the contract that the ledger keeps of a version with a build's: what the ledger
/// is to keep from now on, if that is something else, or why the build may not start.
pub(crate) type CheckContract = fn(&Value, &Contract) -> Result<Option<Value>, BuildError>;

/// A contract, the check that `build()` has it pass, and what the store remembers of its
/// place. The ledger can be put back to before it was registered: then it is again.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) contract: Contract,
    pub(crate) check: CheckContract,
    /// The contract as the ledger keeps it.
    pub(crate) text: String,
    /// In which generation of the store's memory the tool's id was learnt; zero is in none.
    generation: AtomicU64,
    tool: AtomicI64,
}

impl Registered {
    pub(crate) fn new(contract: Contract, check: CheckContract) -> Self {
        Self {
            text: contract.json.to_string(),
            contract,
            check,
            generation: AtomicU64::new(0),
            tool: AtomicI64::new(0),
        }
    }

    /// The tool's id, if it was learnt in `generation`. For the store's writer alone.
    pub(crate) fn tool(&self, generation: u64) -> Option<i64> {
        (generation != 0 && self.generation.load(Ordering::Relaxed) == generation)
            .then(|| self.tool.load(Ordering::Relaxed))
    }

    /// Notes the tool's id. For the store's writer alone, of what is committed.
    pub(crate) fn learn(&self, generation: u64, tool: i64) {
        self.tool.store(tool, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
    }
}
