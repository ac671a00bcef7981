//! External operations that a transactional handler enqueues: committed with it, dispatched
//! by the worker, never on replay.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    clock::{Clock, Timestamp},
    effect::{
        external::{decide::Terms, tool::ExternalTool},
        failure::Failure,
    },
    finite,
    operation::{
        id::OperationId,
        identity::Identity,
        record::NewOperation,
        state::{Operation, Origin},
    },
    request::{
        arguments::{CompiledArguments, InvalidArguments, as_object},
        authorize::{AnswerBy, Asked, Authorizer, Refused},
        caller::Caller,
        key::IdempotencyKey,
        tags::Tags,
    },
};

/// The external tools of a toolbox, as far as enqueuing goes.
#[derive(Default)]
pub(crate) struct Outbox {
    tools: BTreeMap<(Arc<str>, u32), Destination>,
    /// Of all versions: a key that is enqueued may have been used under any of them.
    authorizers: BTreeMap<(Arc<str>, u32), Authorizer>,
}

/// One version of a tool that can be enqueued.
pub(crate) struct Destination {
    pub(crate) tool: Arc<ExternalTool>,
    pub(crate) arguments: Arc<CompiledArguments>,
}

/// Who enqueues, and until when it must be known whether that may be.
#[derive(Clone, Copy)]
pub(crate) struct Enqueuer<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) now: Timestamp,
    /// The end of the handler's own budget, on the monotonic clock.
    pub(crate) deadline: Duration,
}

/// An operation to be recorded with the handler's effect, and what was asked for.
pub(crate) struct Enqueued {
    pub(crate) new: NewOperation,
    /// What the tool's own type refuses; told only if nothing is recorded under the key.
    pub(crate) unreadable: Option<Failure>,
    arguments: Map<String, Value>,
}

impl Outbox {
    pub(crate) fn add(&mut self, destination: Destination) {
        let tool = &destination.tool;
        self.tools
            .insert((Arc::clone(&tool.name), tool.version), destination);
    }

    pub(crate) fn add_authorizer(&mut self, tool: &Arc<str>, version: u32, its: Authorizer) {
        self.authorizers.insert((Arc::clone(tool), version), its);
    }

    /// What is to be recorded, if the caller may have it done and the arguments fit.
    ///
    /// The key is checked first, then the authorizer is asked, as in a call.
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only transactions enqueue")
    )]
    pub(crate) fn prepare(
        &self,
        by: Enqueuer<'_>,
        (name, version): (&str, u32),
        key: &str,
        arguments: &impl Serialize,
    ) -> Result<Enqueued, Failure> {
        let Some(destination) = self.tools.get(&(Arc::from(name), version)) else {
            return Err(Failure::new(
                "not_registered",
                format!("`{name}:v{version}` is not registered; register it in the toolbox"),
            ));
        };
        let tool = &destination.tool;
        let key = IdempotencyKey::new(key)
            .map_err(|error| Failure::new("invalid_key", error.to_string()))?;
        // The paths alone: whoever called the handler may know nothing of these arguments.
        let unfit = |invalid: InvalidArguments| {
            let paths = invalid.paths();
            Failure::new(
                "invalid_arguments",
                format!("the arguments don't fit `{name}:v{version}` at {paths}"),
            )
            .with_source(invalid.text())
        };
        let arguments = finite::to_value(arguments).map_err(|error| {
            Failure::new(
                "invalid_arguments",
                format!("the arguments for `{name}:v{version}` can't be written as JSON"),
            )
            .with_source(error)
        })?;
        let arguments = as_object(arguments).map_err(unfit)?;
        let tags = self.ask(by, &tool.name, version, &arguments)?;
        let prepared = destination.arguments.prepare(&arguments).map_err(unfit)?;
        let now = by.now;
        let new = NewOperation {
            identity: Identity::new(by.caller.scope(), &tool.name, key),
            version,
            contract: Arc::clone(&tool.contract),
            fingerprint: prepared.fingerprint,
            request: prepared.arguments.to_string().into(),
            operation_id: OperationId::generate(),
            operation: Operation::accepted(Origin::Enqueued),
            accepted_at: now,
            run_until: now.plus(tool.deadline),
            due_at: Some(now),
            ends: Terms::of(tool).ends(now),
            tags,
        };
        let unreadable = tool.handler.check(&prepared.arguments).err();
        let unreadable = unreadable.map(|refused| unfit(refused.into()));
        Ok(Enqueued {
            new,
            unreadable,
            arguments,
        })
    }

    /// Whether who may enqueue an operation may also learn of one with the same key that is
    /// of the version `recorded`, as in a call.
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only transactions enqueue")
    )]
    pub(crate) fn may_learn(
        &self,
        by: Enqueuer<'_>,
        enqueued: &Enqueued,
        recorded: u32,
    ) -> Result<(), Failure> {
        let new = &enqueued.new;
        if new.version == recorded {
            return Ok(());
        }
        let tool = &new.identity.tool;
        self.ask(by, tool, recorded, &enqueued.arguments)
            .map(|_: Tags| ())
    }

    /// Asks a version's authorizer; a version that is not registered has none.
    fn ask(
        &self,
        by: Enqueuer<'_>,
        tool: &Arc<str>,
        version: u32,
        arguments: &Map<String, Value>,
    ) -> Result<Tags, Failure> {
        let Some(authorizer) = self.authorizers.get(&(Arc::clone(tool), version)) else {
            return Ok(Tags::default());
        };
        let asked = Asked::Call {
            tool,
            version,
            arguments,
        };
        let answer_by = AnswerBy {
            clock: by.clock,
            deadline: by.deadline,
        };
        let answer = authorizer.ask(by.caller, &asked, answer_by);
        answer.map_err(|refused| match refused {
            Refused::Denied => Failure::new(
                "denied",
                format!("this caller may not have `{tool}` called with these arguments"),
            ),
            Refused::Unavailable => Failure::new(
                "denied",
                format!("whether this caller may call `{tool}` can't be told now"),
            )
            .retryable(),
        })
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("tools", &self.tools.keys())
            .finish_non_exhaustive()
    }
}
