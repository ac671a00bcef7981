//! The one form in which replies leave.

use serde_json::{Value, value::RawValue};

use super::{
    Reply, ReplyError,
    inspection::{Inspection, rfc3339},
};
use crate::{operation::record::AttemptRecord, request::arguments::InvalidArgument};

/// Writes `reply` as one object; it can't fail, since the result is text already.
pub(super) fn write(reply: &Reply) -> String {
    let result = reply.result.as_deref().map(RawValue::get);
    let mut object = Object::with_capacity(256 + result.map_or(0, str::len));
    object.string("status", reply.status.as_str());
    if let Some(operation_id) = reply.operation_id {
        object.string("operation_id", &operation_id.to_string());
    }
    if let Some(replayed) = reply.replayed {
        object.json("replayed", boolean(replayed));
    }
    if let Some(retryable) = reply.retryable {
        object.json("retryable", boolean(retryable));
    }
    if let Some(retry_after) = reply.retry_after {
        object.json("retry_after_ms", &retry_after.as_millis().to_string());
    }
    if let Some(result) = result {
        object.json("result", result);
    }
    if let Some(error) = &reply.error {
        object.json("error", &write_error(error));
    }
    if let Some(next_action) = &reply.next_action {
        object.string("next_action", next_action);
    }
    if let Some(inspection) = &reply.inspection {
        write_inspection(&mut object, inspection);
    }
    object.finish()
}

fn write_inspection(object: &mut Object, inspection: &Inspection) {
    let attempts: Vec<_> = inspection.attempts.iter().map(write_attempt).collect();
    object.json("attempts", &format!("[{}]", attempts.join(",")));
    if let Some(at) = inspection.next_check_at {
        object.string("next_check_at", &rfc3339(at));
    }
    if let Some(at) = inspection.key_expires_at {
        object.string("key_expires_at", &rfc3339(at));
    }
}

fn write_attempt(attempt: &AttemptRecord) -> String {
    let mut object = Object::with_capacity(128);
    object.json("number", &attempt.number.to_string());
    object.string("attempt_id", &attempt.attempt_id.to_string());
    object.string("started_at", &rfc3339(attempt.started_at));
    object.string("outcome", attempt.outcome.as_str());
    object.finish()
}

fn write_error(error: &ReplyError) -> String {
    let mut object = Object::with_capacity(128);
    object.string("code", &error.code);
    object.string("message", &error.message);
    if !error.invalid.is_empty() {
        let details: Vec<_> = error.invalid.details().iter().map(write_detail).collect();
        object.json("details", &format!("[{}]", details.join(",")));
    }
    if error.invalid.more() != 0 {
        object.json("more", &error.invalid.more().to_string());
    }
    object.finish()
}

fn write_detail(detail: &InvalidArgument) -> String {
    let mut object = Object::with_capacity(64);
    object.string("path", detail.path());
    object.string("message", detail.message());
    object.finish()
}

fn boolean(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// A JSON object under construction.
struct Object(String);

impl Object {
    fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Adds a member whose name needs no escape and whose value is JSON already.
    fn json(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(value);
    }

    fn string(&mut self, name: &str, value: &str) {
        self.json(name, &Value::from(value).to_string());
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
