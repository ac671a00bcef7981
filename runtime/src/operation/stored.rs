//! What a ledger retains of an operation.

use std::fmt;

use serde_json::value::RawValue;

use crate::{
    clock::Timestamp, operation::id::OperationId, request::arguments::fingerprint::Fingerprint,
};

/// A row of the ledger.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    /// A retained result.
    Receipt(Receipt),
    /// An external operation that has not succeeded; its record tells more.
    External(OperationId),
    /// What is left after the retention: the key is refused, and nothing more is known than
    /// the version that it was used under.
    Tombstone(u32),
}

/// The retained record of an operation that succeeded.
#[derive(Clone)]
pub(crate) struct Receipt {
    pub(crate) operation_id: OperationId,
    /// The version that executed.
    pub(crate) version: u32,
    pub(crate) fingerprint: Fingerprint,
    /// The handler's output, byte for byte as it was written first.
    pub(crate) result: Box<RawValue>,
    /// From when the key is refused; fixed when the receipt was written.
    pub(crate) expires_at: Timestamp,
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("operation_id", &self.operation_id)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
