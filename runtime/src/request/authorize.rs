//! The application's answer to: may this caller do this?

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use crate::{operation::id::OperationId, request::caller::Caller};

/// The signature of an authorizer that an attribute names with `authorize = path`.
pub type AuthorizeFn = fn(&Caller, &Asked<'_>) -> Access;

/// What an authorizer answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an answer that is dropped denies nothing"]
pub enum Access {
    /// The caller may.
    Allowed,
    /// The caller may not: a call is `denied`, an inspection or cancellation `not_found`.
    Denied,
    /// It can't be established now: nothing is done, and the caller may ask again.
    Unavailable,
}

impl From<bool> for Access {
    /// `true` allows, `false` denies.
    fn from(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Denied }
    }
}

/// What a caller asks to do.
///
/// Its `Debug` shows no argument.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Asked<'a> {
    /// To call a tool, replays included.
    #[non_exhaustive]
    Call {
        /// The tool's name.
        tool: &'a str,
        /// The arguments as they came, without the idempotency key and not yet validated.
        arguments: &'a Map<String, Value>,
    },
    /// To read the state of an operation.
    #[non_exhaustive]
    Inspect {
        /// The tool's name.
        tool: &'a str,
        /// The operation to read.
        operation_id: &'a OperationId,
    },
    /// To cancel an operation.
    #[non_exhaustive]
    Cancel {
        /// The tool's name.
        tool: &'a str,
        /// The operation to cancel.
        operation_id: &'a OperationId,
    },
}

impl<'a> Asked<'a> {
    /// The name of the tool, whatever is asked of it.
    #[must_use]
    pub fn tool(&self) -> &'a str {
        match self {
            Self::Call { tool, .. } | Self::Inspect { tool, .. } | Self::Cancel { tool, .. } => {
                tool
            }
        }
    }
}

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self {
            Self::Call { .. } => "Call",
            Self::Inspect { .. } => "Inspect",
            Self::Cancel { .. } => "Cancel",
        };
        f.debug_struct(action)
            .field("tool", &self.tool())
            .finish_non_exhaustive()
    }
}

/// An authorizer as the toolbox keeps it.
#[derive(Clone)]
pub(crate) struct Authorizer(Arc<Authorize>);

type Authorize = dyn Fn(&Caller, &Asked<'_>) -> Access + Send + Sync;

impl Authorizer {
    pub(crate) fn new(
        authorize: impl Fn(&Caller, &Asked<'_>) -> Access + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(authorize))
    }

    pub(crate) fn ask(&self, caller: &Caller, asked: &Asked<'_>) -> Access {
        (self.0)(caller, asked)
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}
