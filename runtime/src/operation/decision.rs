//! Stored and request in, what to answer out: the one place that decides.

use serde_json::value::RawValue;

use crate::{
    clock::Timestamp,
    operation::{
        id::OperationId,
        stored::{Receipt, Stored},
    },
    request::arguments::fingerprint::Fingerprint,
};

/// What a ledger row answers before the arguments are looked at under its version.
#[derive(Debug)]
pub(crate) enum Known {
    /// The arguments are to be compared under the receipt's version.
    Compare(Receipt),
    /// An external operation without a result: its record tells more.
    External(OperationId),
    /// The retention is over.
    Expired,
}

/// What a call gets whose operation is recorded.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The retained result.
    Replay {
        operation_id: OperationId,
        result: Box<RawValue>,
    },
    /// The key belongs to other arguments.
    PayloadConflict,
}

/// What a recorded operation means at `now`, whatever the arguments are.
///
/// The comparison of times only ever refuses: a row frees its key by being pruned, not
/// by being old.
pub(crate) fn recall(stored: Stored, now: Timestamp) -> Known {
    match stored {
        Stored::Receipt(receipt) if now < receipt.expires_at => Known::Compare(receipt),
        Stored::External(operation_id) => Known::External(operation_id),
        Stored::Receipt(_) | Stored::Tombstone(_) => Known::Expired,
    }
}

/// What a request with `fingerprint` gets from a `receipt` of the same identity and version.
pub(crate) fn decide(receipt: Receipt, fingerprint: &Fingerprint) -> Decision {
    if receipt.fingerprint.is_of(fingerprint) {
        Decision::Replay {
            operation_id: receipt.operation_id,
            result: receipt.result,
        }
    } else {
        Decision::PayloadConflict
    }
}
