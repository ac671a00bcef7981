//! Why a call was not carried out.

use std::time::Duration;

use super::repeat;
use crate::request::{arguments::InvalidArguments, key::InvalidKey};

/// Why a call was not carried out. In every case nothing is recorded of it.
///
/// No text tells anything of a key, an argument or an earlier call beyond the code.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The key is missing or malformed.
    InvalidKey(InvalidKey),
    /// The arguments don't fit the contract.
    InvalidArguments(InvalidArguments),
    /// The key belongs to other arguments.
    PayloadConflict,
    /// The key belongs to a version that is no longer registered.
    VersionConflict {
        /// The version that the receipt names.
        recorded: u32,
    },
    /// The key's retention is over.
    KeyExpired,
    /// The transport names no caller.
    #[cfg_attr(
        not(feature = "rmcp"),
        allow(dead_code, reason = "only an adapter authenticates")
    )]
    Unauthenticated,
    /// The authorizer says no.
    Denied,
    /// The authorizer can't tell now.
    AuthorizationUnavailable,
    /// There is no such tool.
    NotFound,
    /// There is no such operation, or none that this caller may know of.
    NoSuchOperation,
    /// The wait for the queue, a lock or the key's owner used the deadline up.
    Busy {
        /// When to come back.
        retry_after: Duration,
    },
    /// The handler used the deadline up and was rolled back.
    DeadlineExceeded,
    /// The store failed, and nothing of this call was written.
    Storage {
        /// Whether the cause may pass.
        retryable: bool,
    },
    /// The store failed before the key was looked up.
    Unread {
        /// Whether the cause may pass.
        retryable: bool,
    },
}

impl Rejection {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::InvalidKey(_) => "invalid_key",
            Self::InvalidArguments(_) => "invalid_arguments",
            Self::PayloadConflict => "payload_conflict",
            Self::VersionConflict { .. } => "version_conflict",
            Self::KeyExpired => "key_expired",
            Self::Unauthenticated | Self::Denied | Self::AuthorizationUnavailable => "denied",
            Self::NotFound | Self::NoSuchOperation => "not_found",
            Self::Busy { .. } => "busy",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Storage { .. } | Self::Unread { .. } => "storage",
        }
    }

    /// What is wrong with a call of `tool`.
    pub(super) fn message(&self, tool: &str) -> String {
        match self {
            Self::InvalidKey(error) => error.to_string(),
            Self::InvalidArguments(invalid) => {
                format!(
                    "the arguments don't fit the tool's schema: {}",
                    invalid.text()
                )
            }
            Self::PayloadConflict => {
                "this `idempotency_key` was first used with other arguments; nothing was changed"
                    .into()
            }
            Self::VersionConflict { recorded } => format!(
                "this `idempotency_key` was used under `{tool}:v{recorded}`, which is no longer \
                 served; nothing was changed"
            ),
            Self::KeyExpired => "the result of this `idempotency_key` is no longer kept; it was \
                not executed again"
                .into(),
            Self::Unauthenticated => format!("the caller of `{tool}` is not authenticated"),
            Self::Denied => format!("this caller may not call `{tool}` with these arguments"),
            Self::AuthorizationUnavailable => {
                format!("whether this caller may call `{tool}` can't be established now")
            }
            Self::NotFound => "there is no such tool".into(),
            Self::NoSuchOperation => "there is no such operation".into(),
            Self::Busy { .. } => "the server was busy until the deadline of the call; nothing was \
                written"
                .into(),
            Self::DeadlineExceeded => "the tool needed longer than the deadline of the call; what \
                it did was rolled back"
                .into(),
            Self::Storage { .. } => "the server's storage failed; nothing was written".into(),
            Self::Unread { .. } => "the ledger can't be read; this call did nothing, but an \
                earlier call with this key may have succeeded"
                .into(),
        }
    }

    /// Whether the same call may do better later.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::AuthorizationUnavailable | Self::Busy { .. } | Self::DeadlineExceeded => true,
            Self::Storage { retryable } | Self::Unread { retryable } => *retryable,
            Self::InvalidKey(_)
            | Self::InvalidArguments(_)
            | Self::PayloadConflict
            | Self::VersionConflict { .. }
            | Self::KeyExpired
            | Self::Unauthenticated
            | Self::Denied
            | Self::NotFound
            | Self::NoSuchOperation => false,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// What the caller of `tool` should do.
    pub(super) fn next_action(&self, tool: &str) -> String {
        match self {
            Self::InvalidKey(InvalidKey::NotCarried) => {
                format!("Send the call of {tool} again with a key beside its arguments")
            }
            Self::InvalidKey(InvalidKey::CarriersDiffer) => {
                format!("Call {tool} again with one key, the same wherever the request carries it")
            }
            Self::InvalidKey(InvalidKey::MalformedHeader) => {
                format!("Call {tool} again with its key as a quoted string in the header")
            }
            Self::InvalidKey(_) => {
                format!("Call {tool} again with an idempotency_key that fits its schema")
            }
            Self::InvalidArguments(_) => format!(
                "Correct the arguments and call {tool} again; the idempotency_key stays the same \
                 as long as the intended action does"
            ),
            Self::PayloadConflict => format!(
                "Check whether the effect of the first call exists and is the one you want; call \
                 {tool} with the first arguments to get its result, and use a new idempotency_key \
                 only for another action"
            ),
            Self::VersionConflict { .. } | Self::KeyExpired => format!(
                "Check whether the effect of the earlier call of {tool} exists before you think \
                 of a new idempotency_key"
            ),
            Self::Unauthenticated => format!(
                "Authenticate, then call {tool} again with the same idempotency_key and arguments"
            ),
            Self::Denied => {
                format!("Obtain permission to call {tool}; another idempotency_key changes nothing")
            }
            Self::NotFound => "List the tools and call one of them by its exact name".into(),
            Self::NoSuchOperation => {
                "Use the operation_id exactly as a reply gave it, in the scope that it came from"
                    .into()
            }
            Self::AuthorizationUnavailable | Self::Busy { .. } | Self::DeadlineExceeded => {
                repeat(tool)
            }
            Self::Storage { retryable: true } | Self::Unread { retryable: true } => repeat(tool),
            Self::Storage { retryable: false } | Self::Unread { retryable: false } => format!(
                "Report the failure to the operator of the server; after its repair, call {tool} \
                 again with the same idempotency_key and arguments"
            ),
        }
    }

    pub(super) fn into_invalid_arguments(self) -> InvalidArguments {
        match self {
            Self::InvalidArguments(invalid) => invalid,
            _ => InvalidArguments::default(), // No other rejection has any.
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{reply::Reply, request::arguments::InvalidArgument};

    /// One rejection of each kind.
    pub(crate) fn all() -> Vec<Rejection> {
        let invalid = |number: usize| {
            (0..number)
                .map(|index| InvalidArgument::new(&format!("/tags/{index}"), "must be a string"))
                .collect()
        };
        vec![
            Rejection::InvalidKey(InvalidKey::Missing),
            Rejection::InvalidArguments(invalid(2)),
            Rejection::InvalidArguments(invalid(100)),
            Rejection::InvalidKey(InvalidKey::NotCarried),
            Rejection::InvalidKey(InvalidKey::CarriersDiffer),
            Rejection::InvalidKey(InvalidKey::MalformedHeader),
            Rejection::PayloadConflict,
            Rejection::VersionConflict { recorded: 1 },
            Rejection::KeyExpired,
            Rejection::Unauthenticated,
            Rejection::Denied,
            Rejection::AuthorizationUnavailable,
            Rejection::NotFound,
            Rejection::NoSuchOperation,
            Rejection::Busy {
                retry_after: Duration::from_millis(250),
            },
            Rejection::DeadlineExceeded,
            Rejection::Storage { retryable: true },
            Rejection::Storage { retryable: false },
            Rejection::Unread { retryable: true },
            Rejection::Unread { retryable: false },
        ]
    }

    #[test]
    fn messages_follow_the_grammar() {
        for rejection in all() {
            let message = rejection.message("create_note");
            let first = message.chars().next().unwrap();
            assert!(first.is_lowercase() || first == '`', "{message}");
            assert!(
                !message.ends_with('.') && !message.contains("  "),
                "{message}"
            );
            let next = rejection.next_action("create_note");
            assert!(next.chars().next().unwrap().is_uppercase(), "{next}");
            assert!(!next.ends_with('.') && !next.contains("  "), "{next}");
        }
    }

    #[test]
    fn every_invalid_argument_is_named() {
        let rejection = all().swap_remove(1);
        let reply: serde_json::Value =
            serde_json::from_str(&Reply::rejected("create_note", rejection).to_json()).unwrap();
        assert_eq!(reply["error"]["code"], "invalid_arguments");
        assert_eq!(
            reply["error"]["details"],
            serde_json::json!([
                { "path": "/tags/0", "message": "must be a string" },
                { "path": "/tags/1", "message": "must be a string" },
            ])
        );
        assert_eq!(reply["error"].get("more"), None);
        assert_eq!(
            reply["error"]["message"],
            "the arguments don't fit the tool's schema: `/tags/0` must be a string; `/tags/1` must be a string"
        );
    }

    #[test]
    fn what_is_not_named_is_counted() {
        let rejection = all().swap_remove(2);
        let reply: serde_json::Value =
            serde_json::from_str(&Reply::rejected("create_note", rejection).to_json()).unwrap();
        assert_eq!(reply["error"]["details"].as_array().unwrap().len(), 32);
        assert_eq!(reply["error"]["more"], 68);
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("; and 68 more"), "{message}");
    }

    #[test]
    fn an_unknown_tool_is_not_echoed() {
        let reply = Reply::rejected("drop table", Rejection::NotFound);
        assert!(!reply.to_json().contains("drop table"));
    }
}
