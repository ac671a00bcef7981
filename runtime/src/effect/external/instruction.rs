//! What a person is to check of one operation, and where: the text of `inspect`, with the
//! values that it names in braces.

use serde_json::{Map, Value};

use crate::operation::record::Record;

/// The name that stands for the operation's id.
const OPERATION_ID: &str = "operation_id";

/// A text whose names are known to have values.
#[derive(Debug)]
pub(crate) struct Instruction(&'static str);

impl Instruction {
    /// Checks that each name is the operation's id or a required argument of the `schema`;
    /// the error is the first that is neither.
    pub(crate) fn new(
        text: &'static str,
        schema: &Map<String, Value>,
    ) -> Result<Self, &'static str> {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name| required.is_some_and(|names| names.contains(&Value::from(name)));
        for piece in pieces(text) {
            match piece {
                Piece::Name(name) if name != OPERATION_ID && !is_required(name) => {
                    return Err(name);
                }
                Piece::Name(_) | Piece::Text(_) => (),
            }
        }
        Ok(Self(text))
    }

    /// The text for one operation, which has its request as long as it isn't final.
    pub(crate) fn of(&self, record: &Record) -> String {
        let request = record.request.as_deref();
        let request = request.and_then(|request| serde_json::from_str::<Value>(request).ok());
        let mut filled = String::with_capacity(self.0.len());
        for piece in pieces(self.0) {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Name(OPERATION_ID) => filled.push_str(&record.operation_id.to_string()),
                Piece::Name(name) => match request.as_ref().and_then(|request| request.get(name)) {
                    Some(Value::String(value)) => filled.push_str(value),
                    Some(value) => filled.push_str(&value.to_string()),
                    None => filled.push_str(name), // The ledger was changed from outside.
                },
            }
        }
        filled
    }
}

enum Piece<'a> {
    Text(&'a str),
    /// It stood in braces.
    Name(&'a str),
}

/// The pieces of a text. Braces around anything but a name are text.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut from = 0;
        while let Some(open) = rest[from..].find('{').map(|open| from + open) {
            let name = rest[open + 1..].split('}').next().unwrap_or_default();
            let close = open + 1 + name.len();
            if is_name(name) && close < rest.len() {
                if open > 0 {
                    let (text, after) = rest.split_at(open);
                    rest = after;
                    return Some(Piece::Text(text));
                }
                rest = &rest[close + 1..];
                return Some(Piece::Name(name));
            }
            from = open + 1;
        }
        Some(Piece::Text(std::mem::take(&mut rest)))
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it == '_' || it.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &'static str, expected: &[(&str, bool)]) {
        let found: Vec<_> = pieces(text)
            .map(|piece| match piece {
                Piece::Text(text) => (text, false),
                Piece::Name(name) => (name, true),
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names_stand_in_braces_and_other_braces_are_text() {
        check("look", &[("look", false)]);
        check("{a}", &[("a", true)]);
        check("{a}{b_2}", &[("a", true), ("b_2", true)]);
        check(
            "read {a} of {b}.",
            &[
                ("read ", false),
                ("a", true),
                (" of ", false),
                ("b", true),
                (".", false),
            ],
        );
        check("{ a }{}{\"a\":1}{", &[("{ a }{}{\"a\":1}{", false)]);
        check("{{a}}", &[("{", false), ("a", true), ("}", false)]);
        check("{a", &[("{a", false)]);
    }

    #[test]
    fn only_what_always_has_a_value_can_be_named() {
        let schema = serde_json::json!({ "required": ["a"], "properties": { "a": {}, "b": {} } });
        let schema = schema.as_object().unwrap();
        assert!(Instruction::new("{a} and {operation_id}", schema).is_ok());
        assert_eq!(Instruction::new("{a} and {b}", schema).unwrap_err(), "b");
        assert_eq!(Instruction::new("{c}", schema).unwrap_err(), "c");
        assert!(Instruction::new("{operation_id}", &Map::new()).is_ok());
    }
}
