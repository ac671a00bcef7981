//! What an adapter may know of an external operation, beside the toolbox's own tools.

use std::time::Duration;

use super::{
    Toolbox,
    registered::{Group, Kind},
};
use crate::{
    clock::{Clock, Timestamp},
    reply::{Reply, rejection::Rejection},
    request::caller::Caller,
};

/// An external operation, as its own tool would tell of it now. Its times are those of the
/// day.
pub(crate) struct OperationState {
    pub(crate) reply: Reply,
    pub(crate) accepted_at: Timestamp,
    pub(crate) changed_at: Timestamp,
    /// From when its key is refused; unset until it is final.
    pub(crate) expires_at: Option<Timestamp>,
}

impl Toolbox {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.inner.backend.clock()
    }

    /// How long the caller of `tool` may be kept waiting: the tool's deadline. Of the toolbox's
    /// own tools, before it is known whose operation is meant, the longest `wait` of any.
    pub(crate) fn patience(&self, tool: &str) -> Duration {
        match self.inner.groups.get(tool) {
            Some(group) => group.highest.deadline,
            None => self.longest_wait(),
        }
    }

    fn longest_wait(&self) -> Duration {
        let groups = self.inner.groups.values();
        let waits = groups
            .flat_map(Group::versions)
            .map(|version| match &version.kind {
                Kind::External(tool) => tool.declared.wait,
                Kind::Transactional(_) => Duration::ZERO,
            });
        waits.max().unwrap_or_default()
    }

    /// Whether a call of `tool` may have an effect outside the database.
    pub(crate) fn is_external(&self, tool: &str) -> bool {
        let group = self.inner.groups.get(tool);
        group.is_some_and(Group::is_external)
    }

    /// The operation with this id, if `caller` may inspect it.
    pub(crate) async fn operation(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<OperationState, Rejection> {
        let Some(executor) = &self.inner.executor else {
            return Err(Rejection::NoSuchOperation);
        };
        let id = id.parse().ok();
        let (record, tool) = self.inner.visible(executor, caller, id, false).await?;
        let now = executor.moment();
        let reply = super::external::told(executor, &tool, &record, true);
        let reply = match self.inner.groups.get(&*tool.name) {
            Some(group) => group.reply.checked(reply),
            None => reply,
        };
        Ok(OperationState {
            reply,
            accepted_at: record.operation_id.made_at(),
            changed_at: now.time_of_day(record.latest_at),
            expires_at: record.ends.map(|ends| now.time_of_day(ends.expires_at)),
        })
    }
}
