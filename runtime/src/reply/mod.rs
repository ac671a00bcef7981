//! What a caller is told.

pub(crate) mod describe;
pub(crate) mod inspection;
mod json;
pub(crate) mod rejection;
pub(crate) mod schema;
mod status;
pub(crate) mod validate;

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer, ser};
use serde_json::value::RawValue;

pub use self::status::Status;
use self::{inspection::Inspection, rejection::Rejection};
use crate::{
    effect::failure::Failure, operation::id::OperationId, request::arguments::InvalidArguments,
};

/// The tool of a toolbox that tells the state of an operation.
pub(crate) const GET_OPERATION: &str = "get_operation";

/// The tool of a toolbox that stops an operation if it still can be stopped.
pub(crate) const CANCEL_OPERATION: &str = "cancel_operation";

/// What a call is answered with, rejections included: one JSON object that fits the
/// tool's output schema.
///
/// The members of the object are those of [`to_json`](Self::to_json); the methods read the
/// same facts without parsing. Its `Debug` shows no result and no message, so that it may
/// be logged. Serialized by `serde_json`, it is the same object; other formats can't
/// carry the result, which is kept as the JSON text it was stored as.
#[derive(Clone)]
#[must_use = "a reply that is dropped loses what became of the call"]
pub struct Reply {
    status: Status,
    operation_id: Option<OperationId>,
    replayed: Option<bool>,
    retryable: Option<bool>,
    retry_after: Option<Duration>,
    result: Option<Box<RawValue>>,
    error: Option<ReplyError>,
    next_action: Option<String>,
    inspection: Option<Inspection>,
    /// It answers a question about an operation, which went well whatever the state is.
    about: bool,
}

/// Why there is no result.
#[derive(Clone)]
struct ReplyError {
    code: String,
    message: String,
    invalid: InvalidArguments,
}

impl Reply {
    /// The operation's retained result.
    pub(crate) fn succeeded(
        operation_id: OperationId,
        replayed: bool,
        result: Box<RawValue>,
    ) -> Self {
        Self {
            operation_id: Some(operation_id),
            replayed: Some(replayed),
            result: Some(result),
            ..Self::new(Status::Succeeded)
        }
    }

    /// A transactional handler's failure: everything is rolled back and nothing is
    /// retained, hence no operation id.
    pub(crate) fn failed(tool: &str, failure: &Failure) -> Self {
        Self {
            retryable: Some(failure.is_retryable()),
            error: Some(ReplyError {
                code: failure.code().to_owned(),
                message: failure.message().to_owned(),
                invalid: InvalidArguments::default(),
            }),
            next_action: failure.is_retryable().then(|| repeat(tool)),
            ..Self::new(Status::Failed)
        }
    }

    /// What became of the call can't be established. A `retryable` one is settled by
    /// repeating it; otherwise `next_action` says what must be checked, and where.
    pub(crate) fn outcome_unknown(
        tool: &str,
        operation_id: Option<OperationId>,
        retryable: bool,
        next_action: Option<String>,
    ) -> Self {
        Self {
            operation_id,
            replayed: Some(false),
            retryable: Some(retryable),
            next_action: Some(next_action.unwrap_or_else(|| repeat(tool))),
            ..Self::new(Status::OutcomeUnknown)
        }
    }

    /// An external operation that has not ended: `next_action` says how to learn more.
    pub(crate) fn pending(
        status: Status,
        operation_id: OperationId,
        replayed: bool,
        next_action: String,
    ) -> Self {
        Self {
            operation_id: Some(operation_id),
            replayed: Some(replayed),
            retry_after: Some(RETRY_AFTER_PENDING),
            next_action: Some(next_action),
            ..Self::new(status)
        }
    }

    /// An external operation's retained failure; a `retryable` one applied nothing, and the
    /// same key may run again.
    pub(crate) fn failed_operation(
        tool: &str,
        operation_id: OperationId,
        replayed: bool,
        retryable: bool,
        (code, message): (&str, &str),
    ) -> Self {
        Self {
            operation_id: Some(operation_id),
            replayed: Some(replayed),
            retryable: Some(retryable),
            error: Some(ReplyError {
                code: code.to_owned(),
                message: message.to_owned(),
                invalid: InvalidArguments::default(),
            }),
            next_action: retryable.then(|| repeat(tool)),
            ..Self::new(Status::Failed)
        }
    }

    /// An external operation that was stopped before it took effect.
    pub(crate) fn cancelled(operation_id: OperationId, replayed: bool) -> Self {
        Self {
            operation_id: Some(operation_id),
            replayed: Some(replayed),
            retryable: Some(false),
            ..Self::new(Status::Cancelled)
        }
    }

    /// The same call does nothing before this is over.
    pub(crate) fn retry_after_pause(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// The reply as the answer to a question about the operation.
    pub(crate) fn about(mut self, inspection: Option<Inspection>) -> Self {
        self.about = true;
        self.inspection = inspection;
        self
    }

    /// The reply of a call that an earlier one may have made.
    pub(crate) fn with_replayed(mut self, replayed: bool) -> Self {
        self.replayed = Some(replayed);
        self
    }

    /// The call was refused before anything of it ran, or was rolled back whole.
    pub(crate) fn rejected(tool: &str, rejection: Rejection) -> Self {
        Self {
            retryable: Some(rejection.is_retryable()),
            retry_after: rejection.retry_after(),
            next_action: Some(rejection.next_action(tool)),
            error: Some(ReplyError {
                code: rejection.code().to_owned(),
                message: rejection.message(tool),
                invalid: rejection.into_invalid_arguments(),
            }),
            ..Self::new(Status::Rejected)
        }
    }

    fn new(status: Status) -> Self {
        Self {
            status,
            operation_id: None,
            replayed: None,
            retryable: None,
            retry_after: None,
            result: None,
            error: None,
            next_action: None,
            inspection: None,
            about: false,
        }
    }

    /// What became of the call.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The durable handle of the operation; absent when none is recorded.
    #[must_use]
    pub fn operation_id(&self) -> Option<OperationId> {
        self.operation_id
    }

    /// Whether an earlier call did this, and this one only read the receipt.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.replayed == Some(true)
    }

    /// The handler's output, byte for byte as it was stored; `None` unless the status is
    /// [`Succeeded`](Status::Succeeded).
    #[must_use]
    pub fn result(&self) -> Option<&RawValue> {
        self.result.as_deref()
    }

    /// The code of the failure or rejection, for programs: `busy`, `payload_conflict`, or
    /// one of the handler's own.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.code.as_str())
    }

    /// The message of the failure or rejection.
    #[must_use]
    pub fn error_message(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.message.as_str())
    }

    /// What the caller should do next, if there is something to do.
    #[must_use]
    pub fn next_action(&self) -> Option<&str> {
        self.next_action.as_deref()
    }

    /// How long to wait before the same call.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same call, with the same key and arguments, may do better later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable == Some(true)
    }

    /// Whether the caller must not go on as if the action had been carried out: the status
    /// is `failed`, `rejected`, `cancelled` or `outcome_unknown`. An answer of
    /// `get_operation` or `cancel_operation` is one if it is `rejected`.
    #[must_use]
    pub fn is_error(&self) -> bool {
        if self.about {
            return self.status == Status::Rejected;
        }
        match self.status {
            Status::Failed | Status::Rejected | Status::Cancelled | Status::OutcomeUnknown => true,
            Status::Accepted | Status::Running | Status::Succeeded | Status::CancelRequested => {
                false
            }
        }
    }

    /// The reply in one sentence, for a reader who sees no members.
    #[must_use]
    pub fn explanation(&self) -> String {
        let message = self.error_message().unwrap_or("no reason is known");
        match self.status {
            Status::Accepted => "The operation is recorded and not yet started.".into(),
            Status::Running => "The operation is still running.".into(),
            Status::Succeeded if self.is_replayed() => "An earlier call with this idempotency \
                key carried the action out; nothing was executed again, and this is its recorded \
                result."
                .into(),
            Status::Succeeded => "The action was carried out and its result is recorded.".into(),
            Status::Failed => format!("The action failed and changed nothing: {message}."),
            Status::CancelRequested => "The operation will be stopped if it still can be.".into(),
            Status::Cancelled => "The operation was cancelled.".into(),
            Status::OutcomeUnknown => {
                "Whether the action was carried out could not be established.".into()
            }
            Status::Rejected => format!("The call was not carried out: {message}."),
        }
    }

    /// The reply as a JSON object. The result is copied in as it was stored, never parsed
    /// and written anew.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::write(self)
    }
}

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_json())
            .map_err(ser::Error::custom)?
            .serialize(serializer)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("operation_id", &self.operation_id)
            .field("replayed", &self.replayed)
            .field("retryable", &self.retryable)
            .field("error_code", &self.error_code())
            .finish_non_exhaustive()
    }
}

/// When to look again at an operation that has not ended.
const RETRY_AFTER_PENDING: Duration = Duration::from_secs(1);

/// The next action of a call that is settled by repeating it.
pub(crate) fn repeat(tool: &str) -> String {
    if tool == GET_OPERATION || tool == CANCEL_OPERATION {
        return format!("Call {tool} again with the same operation_id");
    }
    format!("Call {tool} again with the same idempotency_key and arguments")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn operation_id() -> OperationId {
        "op_0190163d8694739b8ab4a3c0d1f2e3a4".parse().unwrap()
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn check(reply: &Reply, expected: &Value) {
        let text = reply.to_json();
        assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(serde_json::to_string(reply).unwrap(), text);
        assert_eq!(&serde_json::to_value(reply).unwrap(), expected);
    }

    #[test]
    fn success_carries_the_stored_bytes() {
        // Spaces and member order are the handler's; a parser would lose them.
        let stored = r#"{ "z": 1.0, "a": 18446744073709551615 }"#;
        let reply = Reply::succeeded(operation_id(), true, raw(stored));
        assert_eq!(
            reply.to_json(),
            format!(
                r#"{{"status":"succeeded","operation_id":"{}","replayed":true,"result":{stored}}}"#,
                operation_id()
            )
        );
        assert_eq!(reply.result().map(RawValue::get), Some(stored));
        assert_eq!(serde_json::to_string(&reply).unwrap(), reply.to_json());
        assert!(reply.is_replayed() && !reply.is_error() && !reply.is_retryable());
    }

    #[test]
    fn a_null_result_is_a_result() {
        let reply = Reply::succeeded(operation_id(), false, raw("null"));
        check(
            &reply,
            &json!({
                "status": "succeeded",
                "operation_id": operation_id().to_string(),
                "replayed": false,
                "result": null,
            }),
        );
    }

    #[test]
    fn failure_has_no_operation_id() {
        let failure = Failure::new("insufficient_funds", "the account holds less");
        check(
            &Reply::failed("pay", &failure),
            &json!({
                "status": "failed",
                "retryable": false,
                "error": { "code": "insufficient_funds", "message": "the account holds less" },
            }),
        );
        check(
            &Reply::failed("pay", &failure.retryable()),
            &json!({
                "status": "failed",
                "retryable": true,
                "error": { "code": "insufficient_funds", "message": "the account holds less" },
                "next_action": "Call pay again with the same idempotency_key and arguments",
            }),
        );
    }

    #[test]
    fn an_unknown_outcome_says_what_to_do() {
        check(
            &Reply::outcome_unknown("pay", None, true, None),
            &json!({
                "status": "outcome_unknown",
                "replayed": false,
                "retryable": true,
                "next_action": "Call pay again with the same idempotency_key and arguments",
            }),
        );
        let reply = Reply::outcome_unknown(
            "pay",
            Some(operation_id()),
            false,
            Some("Look for the payment in the bank's list".into()),
        );
        check(
            &reply,
            &json!({
                "status": "outcome_unknown",
                "operation_id": operation_id().to_string(),
                "replayed": false,
                "retryable": false,
                "next_action": "Look for the payment in the bank's list",
            }),
        );
        assert!(reply.is_error());
    }

    #[test]
    fn busy_says_when_to_come_back() {
        let reply = Reply::rejected(
            "pay",
            Rejection::Busy {
                retry_after: Duration::from_millis(250),
            },
        );
        let text = reply.to_json();
        assert!(text.starts_with(
            r#"{"status":"rejected","retryable":true,"retry_after_ms":250,"error":{"code":"busy","#
        ));
        assert!(text.ends_with(
            r#""next_action":"Call pay again with the same idempotency_key and arguments"}"#
        ));
        assert_eq!(reply.retry_after(), Some(Duration::from_millis(250)));
    }

    #[test]
    fn debug_shows_no_value() {
        let succeeded = Reply::succeeded(operation_id(), false, raw(r#""s3cret""#));
        let failed = Reply::failed("pay", &Failure::new("no", "s3cret"));
        for reply in [succeeded, failed] {
            let shown = format!("{reply:?} {reply:#?}");
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains(&format!("{:?}", reply.status())));
        }
    }
}
