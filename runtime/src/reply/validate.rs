//! The checks of what leaves against what is advertised.

use serde_json::{Map, Value, value::RawValue};

use super::Reply;
use crate::{
    effect::failure::Failure,
    request::{
        arguments::{SchemaError, validate::Validator},
        json_schema::strip,
    },
};

/// How deep a result may nest. Parsers stop at 128 levels, and the reply and the protocol
/// around it need some of them.
const MAX_DEPTH: usize = 100;

/// The compiled schema of a tool's result.
#[derive(Debug)]
pub(crate) struct ResultValidator {
    schema: Value,
    validator: Validator,
}

impl ResultValidator {
    /// Turns schemars' serialize schema of one version's output, of any type, into the one
    /// that is advertised and checked. A type may contain itself: few clients that refuse a
    /// `$ref` in what they write refuse one in what they read.
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let mut schema = schema.clone();
        strip(&mut schema);
        match &mut schema {
            Value::Object(schema) => {
                schema.remove("title");
            }
            Value::Bool(true) => schema = Value::Object(Map::new()),
            _ => (),
        }
        let validator = Validator::compile(&schema)?;
        Ok(Self { schema, validator })
    }

    /// The schema as it is advertised.
    pub(crate) fn schema(&self) -> &Value {
        &self.schema
    }

    /// Refuses a result that is larger than `max_bytes`, or that a strict client would refuse.
    pub(crate) fn check_within(&self, max_bytes: usize, result: &RawValue) -> Result<(), Failure> {
        let bytes = result.get().len();
        if max_bytes < bytes {
            return Err(Failure::new(
                "result_too_large",
                format!(
                    "the tool's result has {bytes} bytes; its limit is {max_bytes} (`max_result`)"
                ),
            ));
        }
        self.check(result)
    }

    /// Refuses a result that a strict client would refuse.
    pub(crate) fn check(&self, result: &RawValue) -> Result<(), Failure> {
        let result: Value = serde_json::from_str(result.get()).map_err(|error| {
            Failure::new(
                "invalid_result",
                "the tool's result can't be read back as JSON",
            )
            .with_source(error)
        })?;
        if MAX_DEPTH < depth(&result) {
            return Err(Failure::new(
                "invalid_result",
                format!("the tool's result nests deeper than {MAX_DEPTH} levels"),
            ));
        }
        if self.validator.accepts(&result) {
            return Ok(());
        }
        // The place in the schema, since the place in the result may hold its data.
        let place = self.validator.broken_rule(&result).unwrap_or_default();
        Err(Failure::new(
            "invalid_result",
            format!("the tool's result doesn't fit its schema at `{place}`"),
        ))
    }
}

/// Checks replies against the output schema that the tool advertises: in tests and in
/// builds for them, where a reply that doesn't fit is a bug to stop at.
#[derive(Debug)]
pub(crate) struct ReplyCheck {
    #[cfg(any(test, feature = "failpoints"))]
    validator: Validator,
}

impl ReplyCheck {
    /// Compiles an output schema, so that one that can't be compiled is refused in every
    /// build.
    pub(crate) fn compile(output_schema: &Map<String, Value>) -> Result<Self, SchemaError> {
        let validator = Validator::compile(&Value::Object(output_schema.clone()))?;
        #[cfg(not(any(test, feature = "failpoints")))]
        drop(validator);
        Ok(Self {
            #[cfg(any(test, feature = "failpoints"))]
            validator,
        })
    }

    /// Passes `reply` on.
    ///
    /// # Panics
    ///
    /// In tests and builds for them, when the reply doesn't fit the schema.
    #[cfg(any(test, feature = "failpoints"))]
    #[allow(clippy::panic, reason = "not compiled into any other build")]
    pub(crate) fn checked(&self, reply: Reply) -> Reply {
        match self.misfit(&reply) {
            None => reply,
            Some(misfit) => panic!("{reply:?} doesn't fit the output schema: {misfit}"),
        }
    }

    /// Where `reply` doesn't fit, without its values.
    #[cfg(any(test, feature = "failpoints"))]
    fn misfit(&self, reply: &Reply) -> Option<String> {
        match serde_json::from_str::<Value>(&reply.to_json()) {
            Ok(json) => self.validator.misfit(&json),
            Err(error) => Some(format!("{:?}", error.classify())),
        }
    }

    /// Passes `reply` on.
    #[cfg(not(any(test, feature = "failpoints")))]
    #[allow(clippy::unused_self, reason = "the check is for tests alone")]
    pub(crate) fn checked(&self, reply: Reply) -> Reply {
        reply
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::{OperationId, reply::schema, tool::ToolOutput};

    fn check(schema: &Value, result: &str) -> Result<(), String> {
        let result = RawValue::from_string(result.to_owned()).unwrap();
        ResultValidator::compile(schema)
            .unwrap()
            .check(&result)
            .map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn a_result_is_held_to_its_schema() {
        let schema = json!({
            "type": "object",
            "properties": { "id": { "type": "string", "format": "uuid" } },
            "required": ["id"],
        });
        assert_eq!(
            check(&schema, r#"{"id":"0190163d-8694-739b-8ab4-a3c0d1f2e3a4"}"#),
            Ok(())
        );
        assert_eq!(
            check(&schema, r#"{"id":"s3cret"}"#),
            Err("the tool's result doesn't fit its schema at `/properties/id/format`".into())
        );
        assert_eq!(
            check(&schema, "{}"),
            Err("the tool's result doesn't fit its schema at `/required`".into())
        );
    }

    #[test]
    fn the_extremes_of_json_pass() {
        for (schema, result) in [
            (json!({ "type": "null" }), "null"),
            (
                json!({ "type": "integer", "format": "uint64", "minimum": 0 }),
                "18446744073709551615",
            ),
            (
                json!({ "type": "integer", "format": "int64" }),
                "-9223372036854775808",
            ),
            (
                json!({ "type": "number", "format": "float" }),
                "3.4028235e38",
            ),
            (json!({ "type": "boolean" }), "false"),
            (json!({ "type": "string" }), r#""""#),
            (json!(true), "[]"),
            (json!({}), "{}"),
        ] {
            assert_eq!(check(&schema, result), Ok(()), "{schema} {result}");
        }
    }

    #[test]
    fn a_reply_that_does_not_fit_is_found_out() {
        let check = ReplyCheck::compile(&schema::output(&[&json!({ "type": "string" })])).unwrap();
        let reply = |result: &str| {
            let result = RawValue::from_string(result.to_owned()).unwrap();
            Reply::succeeded(OperationId::generate(), false, result)
        };
        assert_eq!(check.misfit(&reply(r#""text""#)), None);
        assert_eq!(
            check.misfit(&reply("4711")),
            Some("value is not of type \"string\" at `/properties/result/type`".into())
        );
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(check(&json!(true), &nested(MAX_DEPTH)), Ok(()));
        assert!(check(&json!(true), &nested(MAX_DEPTH + 1)).is_err());
        assert!(check(&json!(true), &nested(1_000)).is_err());
    }

    #[derive(Serialize, JsonSchema)]
    struct Note {
        note_id: u32,
        #[schemars(length(max = 3))]
        text: Option<String>,
    }

    #[derive(Serialize, JsonSchema)]
    struct Tree {
        children: Vec<Tree>,
    }

    #[derive(Serialize, JsonSchema)]
    struct Empty {}

    fn validator<T: ToolOutput>() -> ResultValidator {
        ResultValidator::compile(T::json_schema().as_value()).unwrap()
    }

    #[track_caller]
    fn kept<T: ToolOutput>(value: &T, expect: &str) {
        let json = value.to_json().unwrap();
        assert_eq!(json.get(), expect);
        validator::<T>().check(&json).unwrap();
    }

    #[test]
    fn every_kind_of_result_is_kept_as_it_was_written() {
        kept(&(), "null");
        kept(&false, "false");
        kept(&true, "true");
        kept(&0_u8, "0");
        kept(&u64::MAX, "18446744073709551615");
        kept(&i64::MIN, "-9223372036854775808");
        kept(&0.1_f32, "0.1");
        kept(&f32::MAX, "3.4028235e+38");
        kept(&1.0_f64, "1.0");
        kept(&String::new(), "\"\"");
        kept(&Vec::<u8>::new(), "[]");
        kept(&Empty {}, "{}");
        kept(&None::<u8>, "null");
        kept(&Value::Null, "null");
        kept(&json!({ "any": [1, 1.0, null] }), r#"{"any":[1,1.0,null]}"#);
        kept(
            &Note {
                note_id: 1,
                text: None,
            },
            r#"{"note_id":1,"text":null}"#,
        );
        let large = "x".repeat(1 << 20);
        kept(&large, &format!("\"{large}\""));
    }

    #[test]
    fn the_schema_is_the_types_own_without_a_title() {
        assert_eq!(
            *validator::<Note>().schema(),
            json!({
                "type": "object",
                "properties": {
                    "note_id": { "type": "integer", "format": "uint32", "minimum": 0 },
                    "text": { "type": ["string", "null"], "maxLength": 3 },
                },
                "required": ["note_id", "text"],
            })
        );
        assert_eq!(*validator::<()>().schema(), json!({ "type": "null" }));
        assert_eq!(*validator::<Value>().schema(), json!({}));
        let tree = Tree {
            children: vec![Tree {
                children: Vec::new(),
            }],
        };
        kept(&tree, r#"{"children":[{"children":[]}]}"#);
    }
}
