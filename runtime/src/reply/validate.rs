//! The check of a result against its advertised schema.

use serde_json::{Map, Value, value::RawValue};

use crate::{
    effect::failure::Failure,
    request::{
        arguments::{SchemaError, validate::Validator},
        json_schema::{find_reference, strip},
    },
};

/// The compiled schema of a tool's result.
#[derive(Debug)]
pub(crate) struct ResultValidator {
    schema: Value,
    validator: Validator,
}

impl ResultValidator {
    /// Turns schemars' serialize schema of a tool's output, of any type, into the one that
    /// is advertised and checked.
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if let Some(path) = find_reference(schema) {
            let place = if path.is_empty() {
                String::new()
            } else {
                format!(", at `{path}`,")
            };
            return Err(SchemaError::new(format!(
                "the result's type{place} contains itself or a `$ref`, which can't be written out \
                 inline; return that part as a `String` or a `serde_json::Value`"
            )));
        }
        let mut schema = schema.clone();
        strip(&mut schema);
        match &mut schema {
            Value::Object(schema) => {
                schema.remove("title");
            }
            Value::Bool(true) => schema = Value::Object(Map::new()),
            _ => {}
        }
        let validator = Validator::compile(&schema)?;
        Ok(Self { schema, validator })
    }

    /// The schema as it is advertised: inlined, without a title.
    pub(crate) fn schema(&self) -> &Value {
        &self.schema
    }

    /// Refuses a result that a strict client would refuse.
    pub(crate) fn check(&self, result: &RawValue) -> Result<(), Failure> {
        let value: Value = serde_json::from_str(result.get()).map_err(|error| {
            mismatch("the tool's result can't be read back as JSON".to_owned()).with_source(error)
        })?;
        if self.validator.accepts(&value) {
            return Ok(());
        }
        // The place in the schema, as a place in the result could hold a map's keys.
        let rule = self.validator.broken_rule(&value).unwrap_or_default();
        Err(mismatch(format!(
            "the tool's result breaks the rule `{rule}` of its own schema; this is a mistake in \
             the tool"
        )))
    }
}

fn mismatch(message: String) -> Failure {
    Failure::new("result_schema_mismatch", message)
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::tool::ToolOutput;

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

    fn compile<T: ToolOutput>() -> Result<ResultValidator, SchemaError> {
        ResultValidator::compile(T::json_schema().as_value())
    }

    fn validator<T: ToolOutput>() -> ResultValidator {
        compile::<T>().unwrap()
    }

    #[track_caller]
    fn check<T: ToolOutput>(value: &T, expect: &str) {
        let json = value.to_json().unwrap();
        assert_eq!(json.get(), expect);
        validator::<T>().check(&json).unwrap();
    }

    #[test]
    fn every_kind_of_result_is_kept_as_it_was_written() {
        check(&(), "null");
        check(&false, "false");
        check(&true, "true");
        check(&0_u8, "0");
        check(&u64::MAX, "18446744073709551615");
        check(&i64::MIN, "-9223372036854775808");
        check(&0.1_f32, "0.1");
        check(&f32::MAX, "3.4028235e+38");
        check(&1.0_f64, "1.0");
        check(&String::new(), "\"\"");
        check(&Vec::<u8>::new(), "[]");
        check(&Empty {}, "{}");
        check(&None::<u8>, "null");
        check(&Value::Null, "null");
        check(&json!({ "any": [1, 1.0, null] }), r#"{"any":[1,1.0,null]}"#);
        check(
            &Note {
                note_id: 1,
                text: None,
            },
            r#"{"note_id":1,"text":null}"#,
        );
        let large = "x".repeat(1 << 20);
        check(&large, &format!("\"{large}\""));
    }

    #[test]
    fn the_schema_has_no_title_and_no_reference() {
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
        let error = compile::<Tree>().unwrap_err();
        assert!(error.to_string().contains("`/children/*`"), "{error}");
    }

    #[test]
    fn a_mismatch_names_the_rule_and_not_the_value() {
        let long = Note {
            note_id: 1,
            text: Some("secret".to_owned()),
        };
        let failure = validator::<Note>()
            .check(&long.to_json().unwrap())
            .unwrap_err();
        assert_eq!(failure.code(), "result_schema_mismatch");
        assert!(
            failure.message().contains("`/properties/text/maxLength`"),
            "{failure}"
        );
        assert!(!failure.to_string().contains("secret"));
        assert!(!failure.is_retryable());
        let nan = f64::NAN.to_json().unwrap();
        assert!(validator::<f64>().check(&nan).is_err());
    }
}
