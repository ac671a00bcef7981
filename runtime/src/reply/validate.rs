//! The checks of what leaves against what is advertised.

use serde_json::{Map, Value, value::RawValue};

use super::Reply;
use crate::{effect::failure::Failure, request::arguments::SchemaError};

/// How deep a result may nest. Parsers stop at 128 levels, and the reply and the protocol
/// around it need some of them.
const MAX_DEPTH: usize = 100;

/// The compiled schema of a tool's result.
#[derive(Debug)]
pub(crate) struct ResultValidator(jsonschema::Validator);

impl ResultValidator {
    /// Compiles the schema of one version's result.
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        compile(schema).map(Self)
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
        self.0.validate(&result).map_err(|error| {
            // The place in the schema, since the place in the result may hold its data.
            let place = error.schema_path().as_str();
            Failure::new(
                "invalid_result",
                format!("the tool's result doesn't fit its schema at `{place}`"),
            )
        })
    }
}

/// Checks replies against the output schema that the tool advertises: in tests and in
/// builds for them, where a reply that doesn't fit is a bug to stop at.
#[derive(Debug)]
pub(crate) struct ReplyCheck {
    #[cfg(any(test, feature = "failpoints"))]
    validator: jsonschema::Validator,
}

impl ReplyCheck {
    /// Compiles an output schema, so that one that can't be compiled is refused in every
    /// build.
    pub(crate) fn compile(output_schema: &Map<String, Value>) -> Result<Self, SchemaError> {
        let validator = compile(&Value::Object(output_schema.clone()))?;
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
            Ok(json) => {
                let error = self.validator.validate(&json).err()?;
                Some(format!("{} at `{}`", error.masked(), error.schema_path()))
            }
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

/// Compiles a schema. The builder is generic code: named here alone, it is compiled once.
fn compile(schema: &Value) -> Result<jsonschema::Validator, SchemaError> {
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| SchemaError {
            message: format!("the schema is invalid: {error}"),
        })
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
    use serde_json::json;

    use super::*;
    use crate::{OperationId, reply::schema};

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
}
