//! Tools as `build()` compiles them.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use crate::{
    effect::{external::tool::ExternalTool, transactional::TransactionalTool},
    reply::{describe::ToolDescription, rejection::Rejection, validate::ReplyCheck},
    request::{
        arguments::{CompiledArguments, Prepared},
        authorize::Authorizer,
    },
};

/// All registered versions of one operation.
pub(super) struct Group {
    pub(super) name: Arc<str>,
    pub(super) description: ToolDescription,
    pub(super) reply: ReplyCheck,
    pub(super) highest: Version,
    pub(super) older: Vec<Version>,
}

/// One version: `name:vNUMBER`.
pub(super) struct Version {
    pub(super) number: u32,
    /// Its own, or the toolbox's.
    pub(super) authorizer: Authorizer,
    pub(super) arguments: Arc<CompiledArguments>,
    pub(super) deadline: Duration,
    pub(super) kind: Kind,
}

/// A version by the kind of its effect.
pub(super) enum Kind {
    Transactional(Arc<TransactionalTool>),
    External(Arc<ExternalTool>),
}

impl Version {
    /// The request that `arguments` make under this version, which executed; `asked` is the
    /// version that they were sent to.
    pub(super) fn prepare_for(
        &self,
        asked: &Self,
        arguments: &Map<String, Value>,
    ) -> Result<Prepared, Rejection> {
        if self.number == asked.number {
            return asked
                .arguments
                .prepare(arguments)
                .map_err(Rejection::InvalidArguments);
        }
        let trimmed = self
            .arguments
            .without_newer_defaults(arguments, &asked.arguments);
        match (
            self.arguments.prepare(&trimmed),
            asked.arguments.prepare(arguments),
        ) {
            (Ok(prepared), _) => Ok(prepared),
            (Err(_), Ok(_)) => Err(Rejection::PayloadConflict),
            (Err(_), Err(details)) => Err(Rejection::InvalidArguments(details)),
        }
    }
}

impl Group {
    /// Whether a call may have an effect outside the database.
    pub(super) fn is_external(&self) -> bool {
        self.versions()
            .any(|version| matches!(version.kind, Kind::External(_)))
    }

    pub(super) fn version(&self, number: u32) -> Option<&Version> {
        self.versions().find(|version| version.number == number)
    }

    /// All of them, the highest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.highest).chain(&self.older)
    }
}
