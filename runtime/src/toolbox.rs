//! The registry of tools and the way of one call.

/// STUB
#[derive(Debug)]
pub struct Toolbox {}

/// STUB
#[derive(Debug)]
pub struct ToolboxBuilder<S> { _store: S }

/// Why a toolbox can't be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The ledger can't be read or written.
    #[error("the ledger can't be read or written")]
    Store(#[from] crate::store::StoreError),
}
