//! What the provider is able to do, and how it takes the next requests.

use serde::{Deserialize, Serialize};

/// The provider's abilities.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Whether it answers an `Idempotency-Key` once.
    pub deduplicates: bool,
    /// Whether it can be asked by the client's reference.
    pub finds: bool,
    /// For how long it remembers a key.
    pub remembers_ms: u64,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            deduplicates: true,
            finds: true,
            remembers_ms: 24 * 60 * 60 * 1_000,
        }
    }
}

/// How it takes one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Behaviour {
    /// It creates the deployment and answers.
    #[default]
    Create,
    /// It creates the deployment, and the connection ends without an answer.
    DropResponse,
    /// It creates the deployment, and answers once it is released.
    Hold,
    /// It creates the deployment after this time, whether or not the client still waits.
    Delay {
        /// The time.
        ms: u64,
    },
    /// It refuses: 403.
    Refuse,
    /// It asks to come back later: 429 with `Retry-After`. Nothing is created.
    TooMany {
        /// When to come back.
        seconds: u64,
    },
}
