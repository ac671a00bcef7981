//! The tasks extension: a task is an external operation, and its id is the operation's.

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CancelTaskParams, CreateTaskResult, DetailedTask, GetTaskParams, GetTaskResult, Task,
        TaskPayload, TaskStatus,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use super::{Adapter, Unidentified, wire};
use crate::{
    clock::Timestamp,
    reply::{
        CANCEL_OPERATION, GET_OPERATION, Reply, Status, inspection::rfc3339, rejection::Rejection,
    },
    request::caller::Caller,
    toolbox::operations::OperationState,
};

impl Adapter {
    /// Answers a client that declares the tasks extension with a task when its external
    /// operation still runs after the tool's `wait`; other clients get the reply.
    ///
    /// The task's id is the operation's, so the task survives a restart. The application
    /// advertises the extension (`enable_tasks()` among its capabilities), and has its
    /// `ServerHandler::get_task` and `cancel_task` call [`get_task`](Self::get_task) and
    /// [`cancel_task`](Self::cancel_task).
    #[must_use]
    pub fn with_tasks(mut self) -> Self {
        self.tasks = true;
        self
    }

    /// Answers `tasks/get` from the ledger, to whoever may inspect the operation.
    ///
    /// An operation that has ended is a `completed` task whose result is the tool's reply,
    /// `outcome_unknown` and failures included; a cancelled one is `cancelled`.
    ///
    /// # Errors
    ///
    /// When there is no such task for this caller, or it can't be read now.
    pub async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let caller = self.task_caller(context).await?;
        let state = self.task_state(&caller, &request.task_id).await?;
        let payload = payload(&state.reply)?;
        let task = task(&request.task_id, payload.status(), &state);
        Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
    }

    /// Answers `tasks/cancel`: the operation is asked to stop, as `cancel_operation` does.
    ///
    /// # Errors
    ///
    /// When there is no such task for this caller, or it can't be reached now.
    pub async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = self.task_caller(context).await?;
        let asked = json!({ "operation_id": request.task_id });
        let reply = self.tools.call(&caller, CANCEL_OPERATION, asked).await;
        match reply.error_code() {
            // An operation that failed has an error, too; it has ended, which is no failure here.
            Some("not_found") if reply.status() == Status::Rejected => Err(no_such_task()),
            Some(_) if reply.status() == Status::Rejected => Err(unavailable()),
            _ => Ok(()),
        }
    }

    /// The task that stands for a call's reply, if the operation still runs and the caller
    /// may inspect it; otherwise the reply says as much as a task could.
    pub(super) async fn created_task(
        &self,
        caller: &Caller,
        reply: &Reply,
    ) -> Option<CreateTaskResult> {
        let (Status::Running | Status::CancelRequested, Some(id)) =
            (reply.status(), reply.operation_id())
        else {
            return None;
        };
        let id = id.to_string();
        let state = self.tools.operation(caller, &id).await.ok()?;
        // It may have ended since; the client learns that when it asks.
        let seed = task(&id, TaskStatus::Working, &state);
        Some(CreateTaskResult::new(seed))
    }

    async fn task_caller(&self, context: RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let identified = self.caller(GET_OPERATION, context).await;
        identified.map_err(|error| match error {
            Unidentified::Refused => ErrorData::invalid_request(error.to_string(), None),
            Unidentified::Unavailable => ErrorData::internal_error(error.to_string(), None),
        })
    }

    async fn task_state(&self, caller: &Caller, id: &str) -> Result<OperationState, ErrorData> {
        match self.tools.operation(caller, id).await {
            Ok(state) => Ok(state),
            Err(Rejection::NoSuchOperation) => Err(no_such_task()),
            Err(_) => Err(unavailable()),
        }
    }
}

fn no_such_task() -> ErrorData {
    ErrorData::invalid_params("there is no such task", None)
}

fn unavailable() -> ErrorData {
    ErrorData::internal_error("the task can't be reached now; ask again", None)
}

fn payload(reply: &Reply) -> Result<TaskPayload, ErrorData> {
    Ok(match reply.status() {
        Status::Accepted | Status::Running | Status::CancelRequested => TaskPayload::Working,
        Status::Cancelled => TaskPayload::Cancelled,
        Status::Succeeded | Status::Failed | Status::OutcomeUnknown | Status::Rejected => {
            match serde_json::to_value(wire::result(reply)?) {
                Ok(Value::Object(result)) => TaskPayload::Completed { result },
                Ok(_) | Err(_) => return Err(unavailable()),
            }
        }
    })
}

fn task(id: &str, status: TaskStatus, state: &OperationState) -> Task {
    let mut task = Task::new(
        id,
        status,
        rfc3339(state.accepted_at),
        rfc3339(state.changed_at),
    );
    task.ttl_ms = state.expires_at.and_then(|Timestamp(expires)| {
        let Timestamp(accepted) = state.accepted_at;
        u64::try_from(expires.saturating_sub(accepted)).ok()
    });
    if let Some(interval) = state.reply.retry_after() {
        let milliseconds = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        task = task.with_poll_interval_ms(milliseconds);
    }
    match state.reply.next_action() {
        Some(next) if status == TaskStatus::Working => task.with_status_message(next),
        _ => task,
    }
}
