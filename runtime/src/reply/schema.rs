//! The schemas that a tool's listing shows.

use serde_json::{Map, Value, json};

use super::Status;
use crate::{
    operation::record::AttemptOutcome,
    request::{
        arguments::SchemaError,
        carrier::KeyPlace,
        key::{ARGUMENT, MAX_CODE_POINTS},
    },
};

/// A first and a last character that are no white space, and no control character between
/// them; written without look-around and classes of Unicode, which not every engine knows.
const KEY_PATTERN: &str =
    r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$";

/// The schema of what is sent: the tool's own arguments, and the required key if it is to
/// be one of them.
///
/// # Errors
///
/// When the tool has an argument of the key's name.
pub(crate) fn input(
    arguments: &Map<String, Value>,
    key_place: KeyPlace,
) -> Result<Map<String, Value>, SchemaError> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if key_place == KeyPlace::Argument {
        properties.insert(ARGUMENT.into(), key());
        required.push(Value::from(ARGUMENT));
    }
    if let Some(Value::Object(own)) = arguments.get("properties") {
        if own.contains_key(ARGUMENT) {
            return Err(SchemaError {
                message: format!(
                    "an argument is called `{ARGUMENT}`, which is the name of the caller's key; \
                     rename it"
                ),
            });
        }
        properties.extend(
            own.iter()
                .map(|(name, schema)| (name.clone(), object_form(schema))),
        );
    }
    if let Some(Value::Array(own)) = arguments.get("required") {
        required.extend(own.iter().cloned());
    }
    let mut input = arguments.clone();
    input.insert("type".into(), "object".into());
    input.insert("properties".into(), properties.into());
    input.insert("required".into(), required.into());
    input.insert("additionalProperties".into(), false.into());
    Ok(input)
}

fn key() -> Value {
    json!({
        "type": "string",
        "description": "Names one intended action. Generate it before the first attempt of \
            the action, and send the same key with the same arguments in every further \
            attempt of it.",
        "minLength": 1,
        "maxLength": MAX_CODE_POINTS,
        "pattern": KEY_PATTERN,
    })
}

/// The schema of every reply of a tool, whose registered versions have these `results`.
///
/// One object, not a choice between objects: strict clients want an object at the root,
/// and check replies that are errors, too.
pub(crate) fn output(results: &[&Value]) -> Map<String, Value> {
    let properties = json!({
        "status": {
            "type": "string",
            "enum": Status::ALL.map(Status::as_str),
            "description": "What became of the call.",
        },
        "operation_id": {
            "type": "string",
            "pattern": "^op_[0-9a-f]{32}$",
            "description": "The durable handle of the operation, the same in every attempt.",
        },
        "replayed": {
            "type": "boolean",
            "description": "Whether an earlier call did this and nothing was executed now.",
        },
        "retryable": {
            "type": "boolean",
            "description": "Whether the same call, with the same idempotency_key and \
                arguments, may do better later.",
        },
        "retry_after_ms": {
            "type": "integer",
            "minimum": 0,
            "description": "How many milliseconds to wait before that.",
        },
        "result": result(results),
        "error": {
            "type": "object",
            "properties": {
                "code": { "type": "string" },
                "message": { "type": "string" },
                "details": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "path": {
                                "type": "string",
                                "description": "A JSON Pointer into the arguments.",
                            },
                            "message": { "type": "string" },
                        },
                        "required": ["path", "message"],
                        "additionalProperties": false,
                    },
                },
                "more": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "How many more arguments are invalid than `details` names.",
                },
            },
            "required": ["code", "message"],
            "additionalProperties": false,
            "description": "Why there is no result.",
        },
        "next_action": {
            "type": "string",
            "description": "What to do next.",
        },
    });
    Map::from_iter([
        ("type".into(), "object".into()),
        ("properties".into(), properties),
        ("required".into(), json!(["status"])),
        ("additionalProperties".into(), false.into()),
    ])
}

/// The schema of what `get_operation` and `cancel_operation` are sent.
pub(crate) fn operation_input() -> Map<String, Value> {
    let properties = json!({
        "operation_id": {
            "type": "string",
            "pattern": "^op_[0-9a-f]{32}$",
            "description": "The handle that a reply gave.",
        },
    });
    Map::from_iter([
        ("type".into(), "object".into()),
        ("properties".into(), properties),
        ("required".into(), json!(["operation_id"])),
        ("additionalProperties".into(), false.into()),
    ])
}

/// The schema of the replies of `get_operation`: an operation's own, whose tools have these
/// `results`, and what is known of its attempts.
pub(crate) fn inspection_output(results: &[&Value]) -> Map<String, Value> {
    let mut output = output(results);
    let time = |description: &str| json!({ "type": "string", "format": "date-time", "description": description });
    if let Some(Value::Object(properties)) = output.get_mut("properties") {
        properties.insert(
            "attempts".into(),
            json!({
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "number": { "type": "integer", "minimum": 1 },
                        "attempt_id": { "type": "string" },
                        "started_at": { "type": "string", "format": "date-time" },
                        "outcome": {
                            "type": "string",
                            "enum": AttemptOutcome::ALL.map(AttemptOutcome::as_str),
                        },
                    },
                    "required": ["number", "attempt_id", "started_at", "outcome"],
                    "additionalProperties": false,
                },
                "description": "The attempts so far.",
            }),
        );
        properties.insert(
            "next_check_at".into(),
            time("When the server looks at the operation by itself."),
        );
        properties.insert(
            "key_expires_at".into(),
            time("From when the idempotency_key is refused."),
        );
    }
    output
}

/// The schema of `result`: the versions' one schema, or any of theirs.
fn result(results: &[&Value]) -> Value {
    let mut distinct: Vec<&Value> = Vec::new();
    for schema in results {
        if !distinct.contains(schema) {
            distinct.push(schema);
        }
    }
    if let [schema] = distinct[..] {
        return relocated(object_form(schema), "#/properties/result");
    }
    let any: Vec<_> = distinct
        .into_iter()
        .enumerate()
        .map(|(index, schema)| {
            relocated(
                object_form(schema),
                &format!("#/properties/result/anyOf/{index}"),
            )
        })
        .collect();
    json!({ "anyOf": any })
}

/// A schema as an object: some clients refuse a whole listing for a `true` in it.
fn object_form(schema: &Value) -> Value {
    match schema {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => json!({ "not": {} }),
        schema => schema.clone(),
    }
}

/// A schema whose references to its own root follow it to `place`.
fn relocated(mut schema: Value, place: &str) -> Value {
    relocate(&mut schema, place);
    schema
}

fn relocate(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(reference) if name == "$ref" => {
                        if let Some(rest) = reference.strip_prefix('#') {
                            *reference = format!("{place}{rest}");
                        }
                    }
                    // What these hold are values, in which `$ref` is data.
                    _ if matches!(name.as_str(), "const" | "default" | "enum" | "examples") => (),
                    member => relocate(member, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Serialize;

    use super::*;
    use crate::{
        Failure, IdempotencyKey, OperationId,
        reply::{Reply, rejection::Rejection, validate::ReplyCheck},
        tool::ToolOutput,
    };

    fn arguments() -> Map<String, Value> {
        json!({
            "type": "object",
            "properties": { "body": { "type": "string", "minLength": 1 }, "extra": true },
            "required": ["body"],
            "additionalProperties": false,
        })
        .as_object()
        .cloned()
        .unwrap()
    }

    #[test]
    fn the_key_joins_the_arguments() {
        let input = input(&arguments(), KeyPlace::Argument).unwrap();
        assert_eq!(input["type"], "object");
        assert_eq!(input["required"], json!(["idempotency_key", "body"]));
        assert_eq!(input["additionalProperties"], false);
        assert_eq!(
            input["properties"]["body"],
            json!({ "type": "string", "minLength": 1 })
        );
        assert_eq!(input["properties"]["extra"], json!({}));
        assert_eq!(input["properties"]["idempotency_key"]["maxLength"], 128);
    }

    #[test]
    fn an_argument_cannot_take_the_keys_name() {
        let mut arguments = arguments();
        arguments["properties"]["idempotency_key"] = json!({ "type": "string" });
        assert!(
            input(&arguments, KeyPlace::Argument)
                .unwrap_err()
                .message
                .contains("`idempotency_key`")
        );
    }

    #[test]
    fn the_keys_schema_is_what_is_enforced() {
        let input = input(&arguments(), KeyPlace::Argument).unwrap();
        let schema = &input["properties"]["idempotency_key"];
        let schema = jsonschema::validator_for(schema).unwrap();
        let (longest, too_long) = ("\u{1f980}".repeat(128), "k".repeat(129));
        for key in [
            "k",
            "user",
            "__proto__",
            "../x",
            "a:b",
            "a b",
            "\u{1f980}",
            "\u{5d0}\u{5d1}",
            "a\u{a0}b",
            &longest,
            &too_long,
            "",
            " ",
            " k",
            "k ",
            "\u{3000}k",
            "k\n",
            "a\nb",
            "a\0b",
            "\t",
            "a\u{7f}",
            "a\u{9f}b",
            "k\u{2028}",
        ] {
            assert_eq!(
                schema.is_valid(&json!(key)),
                IdempotencyKey::new(key).is_ok(),
                "{}",
                key.escape_debug()
            );
        }
    }

    #[test]
    fn every_kind_of_reply_fits() {
        #[derive(Serialize, JsonSchema)]
        struct Note {
            note_id: String,
        }
        let schema = <Note as ToolOutput>::json_schema().to_value();
        let check = ReplyCheck::compile(&output(&[&schema])).unwrap();
        let id = OperationId::generate();
        let note = Note {
            note_id: "n".into(),
        }
        .to_json()
        .unwrap();
        let failure = Failure::new("full", "the project is full");
        let _ = check.checked(Reply::succeeded(id, false, note));
        let _ = check.checked(Reply::failed("create_note", &failure));
        let _ = check.checked(Reply::outcome_unknown("create_note", Some(id), true, None));
        for rejection in crate::reply::rejection::tests::all() {
            let _ = check.checked(Reply::rejected("create_note", rejection));
        }
    }

    #[test]
    fn versions_that_agree_share_a_schema() {
        let (string, number) = (json!({ "type": "string" }), json!({ "type": "number" }));
        let one = output(&[&string, &string]);
        assert_eq!(one["properties"]["result"], string);
        let any = output(&[&string, &number, &string]);
        assert_eq!(
            any["properties"]["result"],
            json!({ "anyOf": [string, number] })
        );
        let untyped = output(&[&json!(true)]);
        assert_eq!(untyped["properties"]["result"], json!({}));
    }

    #[test]
    fn a_recursive_result_refers_to_its_new_place() {
        #[derive(Serialize, JsonSchema)]
        struct Tree {
            children: Vec<Tree>,
        }
        #[derive(Serialize, JsonSchema)]
        struct Forest {
            trees: Vec<Tree>,
        }
        let tree = <Tree as ToolOutput>::json_schema().to_value();
        let forest = <Forest as ToolOutput>::json_schema().to_value();
        assert!(tree.to_string().contains("$ref") && forest.to_string().contains("$ref"));
        let good = r#"{"children":[{"children":[]}]}"#;
        let bad = r#"{"children":[{"children":[1]}]}"#;
        for results in [vec![&tree], vec![&forest, &tree]] {
            let schema = Value::Object(output(&results));
            let schema = jsonschema::validator_for(&schema).unwrap();
            let reply = |result: &str| -> Value {
                serde_json::from_str(&format!(r#"{{"status":"succeeded","result":{result}}}"#))
                    .unwrap()
            };
            assert!(schema.is_valid(&reply(good)));
            assert!(!schema.is_valid(&reply(bad)));
        }
    }

    #[test]
    fn no_undeclared_member_passes() {
        let schema = Value::Object(output(&[&json!({})]));
        let schema = jsonschema::validator_for(&schema).unwrap();
        let mut reply: Value =
            serde_json::from_str(&Reply::rejected("t", Rejection::Denied).to_json()).unwrap();
        assert!(schema.is_valid(&reply));
        reply["surprise"] = json!(1);
        assert!(!schema.is_valid(&reply));
    }
}
