//! The embedded store: one SQLite file, the application's tables beside the ledger's.

/// STUB: store helper owns it.
#[derive(Debug, Clone)]
pub struct SqliteStore {}

impl crate::store::Store for SqliteStore {
    fn handle(&self) -> crate::store::StoreHandle {
        todo!()
    }
}
