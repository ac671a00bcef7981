//! Reading arguments as a tool's own types, with the place where one refuses.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::request::{arguments::InvalidArguments, json_schema::push_step};

/// What a type refuses though its schema allows it. Both texts may hold values: they are for
/// the caller who sent them, and in no log.
#[derive(Debug)]
pub struct Unreadable {
    /// Where, as a JSON Pointer.
    path: String,
    /// The type's own message.
    message: String,
}

impl Unreadable {
    pub(crate) fn new(path: &str, message: &impl ToString) -> Self {
        Self {
            path: path.to_owned(),
            message: message.to_string(),
        }
    }

    /// What is refused below the member `name`.
    pub(crate) fn below(self, name: &str) -> Self {
        let mut path = String::new();
        push_step(&mut path, name);
        path.push_str(&self.path);
        Self { path, ..self }
    }
}

impl From<Unreadable> for InvalidArguments {
    fn from(unreadable: Unreadable) -> Self {
        let message = format!("is refused by its type: {}", unreadable.message);
        Self::one(&unreadable.path, &message)
    }
}

/// Reads a value; only a refused one is read again, to find the place.
///
/// # Errors
///
/// When the type refuses it.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Unreadable> {
    T::deserialize(value).map_err(|error| {
        let again: Result<T, _> = serde_path_to_error::deserialize(value);
        let path = again.err().map(|error| pointer(error.path(), value));
        Unreadable::new(&path.unwrap_or_default(), &error)
    })
}

/// The path as far as it leads to something in the value.
fn pointer(path: &Path, mut value: &Value) -> String {
    let mut pointer = String::new();
    for segment in path {
        let (step, next) = match segment {
            Segment::Seq { index } => (index.to_string(), value.get(*index)),
            Segment::Map { key } => (key.clone(), value.get(key)),
            Segment::Enum { variant } => (variant.clone(), value.get(variant)),
            Segment::Unknown => break,
        };
        let Some(next) = next else { break };
        push_step(&mut pointer, &step);
        value = next;
    }
    pointer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "String")]
    struct Email(#[expect(dead_code, reason = "only read")] String);

    impl TryFrom<String> for Email {
        type Error = &'static str;

        fn try_from(text: String) -> Result<Self, Self::Error> {
            if text.contains('@') {
                Ok(Self(text))
            } else {
                Err("an address needs an @")
            }
        }
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    enum To {
        Person { email: Email },
        List(Vec<Email>),
        Ports(BTreeMap<u16, Email>),
    }

    #[test]
    fn what_a_type_refuses_has_a_path_and_its_own_message() {
        for (value, path, message) in [
            (json!("x"), "", "unknown variant"),
            (
                json!({ "Person": { "email": "x" } }),
                "/Person/email",
                "an address needs an @",
            ),
            (
                json!({ "List": ["a@b", "x"] }),
                "/List/1",
                "an address needs an @",
            ),
            (
                json!({ "Ports": { "80": "x" } }),
                "/Ports/80",
                "an address needs an @",
            ),
            (
                json!({ "Ports": { "70000": "a@b" } }),
                "/Ports/70000",
                "70000",
            ),
        ] {
            let refused = read::<To>(&value).unwrap_err().below("a/b");
            assert_eq!(refused.path, format!("/a~1b{path}"), "{refused:?}");
            assert!(refused.message.contains(message), "{refused:?}");
        }
    }
}
