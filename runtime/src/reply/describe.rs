//! What a tool's listing says.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{CANCEL_OPERATION, GET_OPERATION, schema};
use crate::request::carrier::KeyPlace;

/// A tool as it is listed to callers.
///
/// Serialized, its members have the names that tool listings commonly use:
/// `inputSchema`, `outputSchema`, `readOnlyHint` and so on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolDescription {
    /// The tool's name, which is the operation's.
    pub name: String,
    /// A title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The doc comment, and how to call the tool so that a retry has no second effect.
    pub description: String,
    /// The schema of the arguments, the idempotency key included where it is one of them.
    pub input_schema: Map<String, Value>,
    /// The schema of every reply.
    pub output_schema: Map<String, Value>,
    /// What a host may assume before it lets a model call the tool.
    pub annotations: Annotations,
}

/// Hints of a tool's effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent hints of a listing"
)]
pub struct Annotations {
    /// The tool changes nothing.
    #[serde(rename = "readOnlyHint")]
    pub read_only: bool,
    /// The tool may destroy something.
    #[serde(rename = "destructiveHint")]
    pub destructive: bool,
    /// The same call again has no further effect.
    #[serde(rename = "idempotentHint")]
    pub idempotent: bool,
    /// The tool's effect reaches beyond the server.
    #[serde(rename = "openWorldHint")]
    pub open_world: bool,
}

impl Annotations {
    /// Of a tool that has effects and takes a key. The key is required and the receipt
    /// durable, so `idempotent` is no mere intention.
    pub(crate) fn keyed(destructive: bool, open_world: bool) -> Self {
        Self {
            read_only: false,
            destructive,
            idempotent: true,
            open_world,
        }
    }
}

/// Sections of a doc comment that tell Rust programmers about the function.
const RUST_SECTIONS: [&str; 5] = [
    "# Errors",
    "# Panics",
    "# Safety",
    "# Example",
    "# Examples",
];

/// The description of a transactional tool: its doc comment, then how to call it.
pub(crate) fn transactional(doc_comment: &str, retention: Duration, key_place: KeyPlace) -> String {
    let inspect = ": it returns the recorded result, or acts if there is none.";
    keyed(doc_comment, retention, key_place, inspect)
}

/// The description of an external tool: its doc comment, then how to call it.
pub(crate) fn external(doc_comment: &str, retention: Duration, key_place: KeyPlace) -> String {
    let inspect = format!(
        ". Ask {GET_OPERATION} with the `operation_id` while the outcome is open or unknown."
    );
    keyed(doc_comment, retention, key_place, &inspect)
}

/// The doc comment, then the rules of the key; `inspect` ends the sentence on repeated calls.
///
/// Every listing repeats this and every model reads it before it calls anything, so it is
/// short: linters of listings want no more than 500 characters, the doc comment included.
fn keyed(doc_comment: &str, retention: Duration, key_place: KeyPlace, inspect: &str) -> String {
    let doc_comment = for_callers(doc_comment);
    let separator = if doc_comment.is_empty() { "" } else { "\n\n" };
    let retention = words(retention);
    let (key, repeat, keep) = match key_place {
        KeyPlace::Argument => (
            "Make a new `idempotency_key`, such as a UUID, before the first attempt of each \
             intended action. Every attempt of it reuses the same key and the same arguments; \
             a new key would do it twice.",
            "repeat the call exactly",
            "key, arguments and `operation_id`",
        ),
        KeyPlace::Beside => (
            "The host sends an idempotency key beside the arguments, a new one for each intended \
             action. Every attempt of it reuses the same key and the same arguments.",
            "the host repeats the call with both",
            "the `operation_id`",
        ),
    };
    format!(
        "{doc_comment}{separator}{key} After a time-out or a lost answer, {repeat}{inspect} \
         A key stays valid for {retention}. Persist and hand over {keep}."
    )
}

/// The toolbox's own tool that tells the state of an operation.
pub(crate) fn get_operation(results: &[&Value]) -> ToolDescription {
    ToolDescription {
        name: GET_OPERATION.into(),
        title: Some("Get operation".into()),
        description: "Tell what became of an operation, by the `operation_id` that a reply gave: \
            its state, its result or error, its attempts so far, and when the server looks at it \
            again. It changes nothing. An operation that is `accepted` or `running` can be asked \
            about again after `retry_after_ms`."
            .into(),
        input_schema: schema::operation_input(),
        output_schema: schema::inspection_output(results),
        annotations: Annotations {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
        },
    }
}

/// The toolbox's own tool that stops an operation.
pub(crate) fn cancel_operation(results: &[&Value]) -> ToolDescription {
    ToolDescription {
        name: CANCEL_OPERATION.into(),
        title: Some("Cancel operation".into()),
        description: "Ask that an operation is stopped, by the `operation_id` that a reply gave. \
            Returns its state. One that has not begun is `cancelled`. One that has begun is `cancel_requested`: \
            nothing more is started, but what was sent may still take effect; ask \
            get_operation how it ended. One that has ended stays as it is."
            .into(),
        input_schema: schema::operation_input(),
        output_schema: schema::output(results),
        annotations: Annotations {
            read_only: false,
            destructive: true,
            idempotent: true,
            open_world: true,
        },
    }
}

/// The doc comment without the sections that are not for callers.
fn for_callers(doc_comment: &str) -> String {
    let mut kept = Vec::new();
    let mut skipping = false;
    for line in doc_comment.lines() {
        if line.starts_with("# ") {
            skipping = RUST_SECTIONS.contains(&line.trim_end());
        }
        if !skipping {
            kept.push(line);
        }
    }
    kept.join("\n").trim().to_owned()
}

/// A duration in words, exact to the second: `30 days`, `1 hour 30 minutes`.
fn words(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let mut rest = duration.as_secs();
    let mut words = Vec::new();
    for (seconds, unit) in UNITS {
        let count = rest / seconds;
        rest %= seconds;
        match count {
            0 => (),
            1 => words.push(format!("1 {unit}")),
            count => words.push(format!("{count} {unit}s")),
        }
    }
    if words.is_empty() {
        "less than a second".into()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_words() {
        for (seconds, expected) in [
            (0, "less than a second"),
            (1, "1 second"),
            (90, "1 minute 30 seconds"),
            (3_600, "1 hour"),
            (86_400 + 7_200, "1 day 2 hours"),
            (30 * 86_400, "30 days"),
        ] {
            assert_eq!(words(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn sections_for_rust_programmers_are_left_out() {
        let doc_comment = "Pay.\n\n# Errors\n\nWhen poor.\n\n# Limits\n\nA million.\n# Panics\nNo.";
        assert_eq!(for_callers(doc_comment), "Pay.\n\n# Limits\n\nA million.");
    }

    const WEEK: Duration = Duration::from_hours(7 * 24);

    #[test]
    fn the_description_says_what_a_caller_must_know() {
        let both = [
            "Make a new `idempotency_key`, such as a UUID, before the first attempt of each \
             intended action",
            "Every attempt of it reuses the same key and the same arguments; a new key would do it \
             twice",
            "repeat the call exactly",
            "valid for 7 days",
            "Persist and hand over key, arguments and `operation_id`",
        ];
        for (description, inspect) in [
            (
                transactional("Create a note.\n", WEEK, KeyPlace::Argument),
                "it returns the recorded result, or acts if there is none",
            ),
            (
                external("Create a note.\n", WEEK, KeyPlace::Argument),
                "Ask get_operation with the `operation_id` while the outcome is open or unknown",
            ),
        ] {
            assert!(description.starts_with("Create a note.\n\nMake a new `idempotency_key`"));
            for part in both.into_iter().chain([inspect]) {
                assert!(description.contains(part), "{part}: {description}");
            }
            let lowercase = description.to_lowercase();
            assert!(!lowercase.contains("unique for every request"));
        }
    }

    #[test]
    fn a_key_beside_the_arguments_is_no_argument() {
        let beside = transactional("", WEEK, KeyPlace::Beside);
        assert!(beside.starts_with("The host sends"), "{beside}");
        assert!(beside.contains("reuses the same key and the same arguments"));
        assert!(!beside.contains("idempotency_key"));
    }

    #[test]
    fn a_description_leaves_room_for_a_doc_comment() {
        const ROOM: usize = 80;
        let default = Duration::from_hours(30 * 24);
        for place in [KeyPlace::Argument, KeyPlace::Beside] {
            for description in [
                transactional("", default, place),
                external("", default, place),
            ] {
                let length = description.len();
                assert!(length + ROOM < 500, "{length}: {description}");
            }
        }
    }
}
