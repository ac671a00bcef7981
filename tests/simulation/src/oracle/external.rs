//! What may become of an operation whose effect lies outside the database.

use super::{
    Entry, Id, Oracle, RETENTION,
    arguments::{Compared, Reading, Shape},
    judge::{Answer, Call, Seen},
};

/// What a caller was last told of an operation.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Nothing,
    Pending,
    Unknown,
    MayRunAgain,
    Refused,
    Cancelled,
    Succeeded,
}

/// An external operation in a file.
#[derive(Debug, Clone)]
pub struct External {
    told: Told,
    enqueued: bool,
}

/// What really happened for an identity.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Effects at the provider.
    effects: u32,
    /// How many more than one the promises allow.
    allowed: u32,
    /// Requests that may still have an effect.
    under_way: u32,
    /// A person found out what wasn't so.
    misjudged: bool,
    /// Its row was lost, or is an older one.
    forgotten: bool,
    /// When the provider was first sent it, and until when it asked to wait.
    first: Option<i64>,
    wait_until: Option<i64>,
    pub clock_is_lost: bool,
}

/// A request as the provider saw it.
#[derive(Debug, Clone)]
pub struct Request {
    pub operation: String,
    pub memo: String,
    pub at: i64,
}

/// A success that a handler has returned.
#[derive(Debug, Clone)]
pub struct Proof {
    pub operation: String,
}

impl External {
    pub fn enqueued() -> Self {
        Self { told: Told::Pending, enqueued: true }
    }

    pub fn called() -> Self {
        Self { told: Told::Nothing, enqueued: false }
    }

    pub fn has_ended(&self) -> bool {
        match self.told {
            Told::MayRunAgain | Told::Refused | Told::Cancelled | Told::Succeeded => true,
            Told::Nothing | Told::Pending | Told::Unknown => false,
        }
    }
}

impl Truth {
    pub fn restored(&mut self, _provider_key_changes: bool) {
        self.forgotten();
    }

    pub fn forgotten(&mut self) {
        self.allowed += 1;
        self.forgotten = true;
        self.wait_until = None;
    }
}
