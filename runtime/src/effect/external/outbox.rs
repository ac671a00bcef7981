//! External operations that a transactional handler enqueues: committed with it, dispatched
//! by the worker, never on replay.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::Serialize;

use crate::{
    clock::Timestamp,
    effect::{external::tool::ExternalTool, failure::Failure},
    finite,
    operation::{
        id::OperationId,
        identity::Identity,
        record::NewOperation,
        state::{Operation, Origin},
    },
    request::{
        arguments::{CompiledArguments, InvalidArguments, as_object},
        authorize::{Access, Asked, Authorizer},
        caller::Caller,
        key::IdempotencyKey,
    },
};

/// The external tools of a toolbox, as far as enqueuing goes.
#[derive(Default)]
pub(crate) struct Outbox {
    tools: BTreeMap<(Arc<str>, u32), Destination>,
}

/// One version of a tool that can be enqueued.
pub(crate) struct Destination {
    pub(crate) tool: Arc<ExternalTool>,
    pub(crate) arguments: Arc<CompiledArguments>,
    pub(crate) authorizer: Authorizer,
}

impl Outbox {
    pub(crate) fn add(&mut self, destination: Destination) {
        let tool = &destination.tool;
        self.tools
            .insert((Arc::clone(&tool.name), tool.version), destination);
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
        caller: &Caller,
        (name, version): (&str, u32),
        key: &str,
        arguments: &impl Serialize,
        now: Timestamp,
    ) -> Result<NewOperation, Failure> {
        let Some(destination) = self.tools.get(&(Arc::from(name), version)) else {
            return Err(Failure::new(
                "not_registered",
                format!("`{name}:v{version}` is not registered; register it in the toolbox"),
            ));
        };
        let key = IdempotencyKey::new(key)
            .map_err(|error| Failure::new("invalid_key", error.to_string()))?;
        // The paths alone: whoever called the handler may know nothing of these arguments.
        let unfit = |invalid: InvalidArguments| {
            let paths = invalid.paths();
            Failure::new(
                "invalid_arguments",
                format!("the arguments don't fit the schema of `{name}:v{version}` at {paths}"),
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
        let asked = Asked::Call {
            tool: &destination.tool.name,
            arguments: &arguments,
        };
        match destination.authorizer.ask(caller, &asked) {
            Access::Allowed => (),
            Access::Denied => {
                return Err(Failure::new(
                    "denied",
                    format!("this caller may not have `{name}` called with these arguments"),
                ));
            }
            Access::Unavailable => {
                let message = format!("whether this caller may call `{name}` can't be told now");
                return Err(Failure::new("denied", message).retryable());
            }
        }
        let prepared = destination.arguments.prepare(&arguments).map_err(unfit)?;
        let tool = &destination.tool;
        Ok(NewOperation {
            identity: Identity::new(caller.scope(), &tool.name, key),
            version,
            contract_id: tool.contract_id,
            fingerprint: prepared.fingerprint,
            request: prepared.arguments.to_string().into(),
            operation_id: OperationId::generate(),
            operation: Operation::accepted(Origin::Enqueued),
            accepted_at: now,
            run_until: now.plus(tool.deadline),
            due_at: Some(now),
        })
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("tools", &self.tools.keys())
            .finish()
    }
}
