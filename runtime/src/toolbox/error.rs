//! Why a toolbox can't be built.

use std::{error::Error, fmt};

use crate::store::StoreError;

/// Why a toolbox can't be built: each variant says which tool, what is wrong and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A version of a tool has no authorizer, and the toolbox has none either.
    #[error(
        "version {version} of the tool `{tool}` has no authorizer; give the toolbox one with `.authorize(..)`, name one in the attribute with `authorize = path`, or open all tools to every caller with `.without_authorization()`"
    )]
    #[non_exhaustive]
    MissingAuthorizer {
        /// The tool's name.
        tool: String,
        /// Its version, the N of `name:vN`.
        version: u32,
    },
    /// The same operation and version was registered twice.
    #[error("`{operation}` is registered twice; give the second one another version or remove it")]
    #[non_exhaustive]
    DuplicateOperation {
        /// The operation, `name:vN`.
        operation: String,
    },
    /// A tool has a name that the toolbox needs for itself.
    #[error("the tool name `{tool}` belongs to the toolbox itself; choose another")]
    #[non_exhaustive]
    ReservedName {
        /// The tool's name.
        tool: String,
    },
    /// A handler wants state that the builder was not given.
    #[error("`{operation}` needs state of type `{type_name}`; add it with `.state(..)`")]
    #[non_exhaustive]
    MissingState {
        /// The operation, `name:vN`.
        operation: String,
        /// The type as rustc writes it.
        type_name: &'static str,
    },
    /// An external tool has no tokio runtime to run in.
    #[error(
        "the external tool `{tool}` needs a tokio runtime; build the toolbox inside one, or name it with `.runtime(..)`"
    )]
    #[non_exhaustive]
    NoRuntime {
        /// The tool's name.
        tool: String,
    },
    /// A tool that was written by hand declares another effect than its handler has.
    #[error("`{operation}` declares another kind of effect than its handler has")]
    #[non_exhaustive]
    EffectMismatch {
        /// The operation, `name:vN`.
        operation: String,
    },
    /// The text of `inspect` names what not every operation has.
    #[error(
        "the `inspect` text of `{operation}` names `{{{name}}}`, which is no required argument; name one or `{{operation_id}}`, or leave out the braces"
    )]
    #[non_exhaustive]
    UnknownPlaceholder {
        /// The operation, `name:vN`.
        operation: String,
        /// The name in braces.
        name: String,
    },
    /// The arguments' or the result's schema can't be advertised.
    #[error("the schema of `{operation}` can't be advertised: {message}")]
    #[non_exhaustive]
    Schema {
        /// The operation, `name:vN`.
        operation: String,
        /// What is wrong, where, and what to do.
        message: String,
    },
    /// The contract differs from the one under which the ledger's receipts were written.
    #[error(
        "the contract of `{operation}` changed since this ledger recorded it: {}; only an optional argument can be added in place, so register the new contract under a new version beside this one",
        changes.join("; ")
    )]
    #[non_exhaustive]
    ContractChanged {
        /// The operation, `name:vN`.
        operation: String,
        /// One sentence for each change.
        changes: Vec<String>,
    },
    /// The ledger can't be read or written.
    #[error("the ledger can't be read or written: {0}")]
    Store(#[from] StoreError),
    /// Several of the above.
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    #[non_exhaustive]
    Several {
        /// Each on its own.
        problems: Vec<BuildError>,
    },
}

impl BuildError {
    /// All `problems` as one error, or none.
    pub(super) fn of(mut problems: Vec<Self>) -> Result<(), Self> {
        match problems.pop() {
            None => Ok(()),
            Some(only) if problems.is_empty() => Err(only),
            Some(last) => {
                problems.push(last);
                Err(Self::Several { problems })
            }
        }
    }
}

/// The message, and what is below it: `main` prints the error that it returns by `Debug`, and
/// what is to be done stands in the message.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        let Self::Store(error) = self else {
            return Ok(());
        };
        let mut below = error.source();
        while let Some(cause) = below {
            write!(f, ": {cause}")?;
            below = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_main_prints_says_what_to_do_and_what_caused_it() {
        let error = BuildError::NoRuntime {
            tool: "charge_card".into(),
        };
        assert_eq!(format!("{error:?}"), error.to_string());

        let cause = std::io::Error::other("the disk is full");
        let error = BuildError::from(StoreError::new("a page can't be written").caused_by(cause));
        assert_eq!(
            format!("{error:?}"),
            "the ledger can't be read or written: a page can't be written: the disk is full"
        );
    }
}
