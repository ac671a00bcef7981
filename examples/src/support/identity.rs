//! Who calls, where nobody is authenticated.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use idempotent_tool::{Caller, EmptyScope, OpenError, Scope, SqliteStore};

use super::clock::Ahead;

/// Where the ledger is, and whose operations it has.
///
/// Standard input authenticates nobody, so the identity is stated here, once.
#[derive(Debug, Args)]
pub struct Target {
    /// The SQLite file; made if it is missing
    #[arg(long)]
    pub db: PathBuf,
    /// The account that the caller belongs to
    #[arg(long, default_value = "local")]
    account: String,
    /// The caller
    #[arg(long, default_value = "operator")]
    principal: String,
    /// The project that the caller works in
    #[arg(long, default_value = "default")]
    workspace: String,
    /// Have the time of day this many seconds ahead, to see what a later start does
    #[arg(long, default_value_t = 0, hide = true)]
    ahead: u64,
}

impl Target {
    /// The caller of everything that comes over standard input.
    ///
    /// # Errors
    ///
    /// When all components are empty.
    pub fn caller(&self) -> Result<Caller, EmptyScope> {
        let scope = Scope::builder()
            .account(&self.account)
            .principal(&self.principal)
            .workspace(&self.workspace)
            .build()?;
        Ok(Caller::new(scope))
    }

    /// The ledger.
    ///
    /// # Errors
    ///
    /// When the file can't be opened or made.
    pub fn store(&self) -> Result<SqliteStore, OpenError> {
        let options = SqliteStore::options();
        if self.ahead == 0 {
            return options.open(&self.db);
        }
        let ahead = Ahead::new(Duration::from_secs(self.ahead));
        options.clock(ahead).open(&self.db)
    }
}
