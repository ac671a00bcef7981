//! What the authorizers of a tool's versions say.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    Inner,
    external::ExternalCall,
    registered::{Group, Version},
};
use crate::{
    operation::record::Record,
    reply::rejection::Rejection,
    request::{
        authorize::{AnswerBy, Asked, Refused},
        caller::Caller,
        tags::Tags,
    },
};

impl Inner {
    /// Whether the caller may call this version; the tags for what it accepts.
    pub(super) fn may_call(
        &self,
        group: &Group,
        version: &Version,
        caller: &Caller,
        arguments: &Map<String, Value>,
        deadline: Duration,
    ) -> Result<Tags, Rejection> {
        let call = Asked::Call {
            tool: &group.name,
            version: version.number,
            arguments,
        };
        let answer = version.authorizer.ask(caller, &call, self.by(deadline));
        answer.map_err(|refused| match refused {
            Refused::Denied => Rejection::Denied,
            Refused::Unavailable => Rejection::AuthorizationUnavailable,
        })
    }

    /// Whether a caller that may call the version `asked` may also learn of an operation of
    /// the version `recorded`.
    ///
    /// A version that is not registered any more has no authorizer; of its operations nothing
    /// is told but that, and when they are.
    pub(super) fn may_learn(
        &self,
        group: &Group,
        asked: &Version,
        recorded: u32,
        arguments: &Map<String, Value>,
        call: &ExternalCall<'_>,
    ) -> Result<(), Rejection> {
        match group.version(recorded) {
            Some(version) if version.number != asked.number => self
                .may_call(group, version, call.caller, arguments, call.deadline)
                .map(|_: Tags| ()),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the caller may inspect or cancel the operation: both the highest version's
    /// authorizer, since the caller names none, and that of its own version allow it.
    pub(super) fn may_reach(
        &self,
        group: &Group,
        record: &Record,
        caller: &Caller,
        to_cancel: bool,
        deadline: Duration,
    ) -> Result<(), Rejection> {
        let recorded = group.version(record.version);
        let recorded = recorded.filter(|version| version.number != group.highest.number);
        for version in [Some(&group.highest), recorded].into_iter().flatten() {
            let (tool, version_number) = (&*group.name, version.number);
            let (operation_id, tags) = (&record.operation_id, record.tags.as_ref());
            let asked = if to_cancel {
                Asked::Cancel {
                    tool,
                    version: version_number,
                    operation_id,
                    tags,
                }
            } else {
                Asked::Inspect {
                    tool,
                    version: version_number,
                    operation_id,
                    tags,
                }
            };
            let answer = version.authorizer.ask(caller, &asked, self.by(deadline));
            answer.map_err(|refused| match refused {
                Refused::Denied => Rejection::NoSuchOperation,
                Refused::Unavailable => Rejection::AuthorizationUnavailable,
            })?;
        }
        Ok(())
    }

    fn by(&self, deadline: Duration) -> AnswerBy<'_> {
        AnswerBy {
            clock: &**self.backend.clock(),
            deadline,
        }
    }
}
