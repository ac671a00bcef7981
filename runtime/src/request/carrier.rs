//! The places of a request that can carry its key, and the one rule for all of them.

use std::fmt;

use serde_json::{Map, Value};

use super::key::{ARGUMENT, IdempotencyKey, InvalidKey};

/// The keys that a request carries beside its arguments, in its metadata or its headers.
///
/// However many places carry a key, the request has one: two that differ, or one that is
/// malformed, are `invalid_key`. Its `Debug` shows no key.
///
/// ```
/// use idempotent_tool::CarriedKeys;
///
/// let keys = CarriedKeys::none()
///     .metadata(&"note-request-7b025dc8".into())
///     .header(br#""note-request-7b025dc8""#);
/// # let _ = keys;
/// ```
#[derive(Clone, Default)]
pub struct CarriedKeys(Option<Result<IdempotencyKey, InvalidKey>>);

/// Where the callers of a toolbox are told to put the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    /// Among the arguments, so that the model carries it.
    Argument,
    /// Beside the arguments: the host owns its retries.
    Beside,
}

impl CarriedKeys {
    /// A request that carries its key among the arguments, or not at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds what a member of the request's metadata says; null is malformed, not absent.
    #[must_use]
    pub fn metadata(self, value: &Value) -> Self {
        self.and(from_value(value))
    }

    /// Adds what an `Idempotency-Key` header says, as [`IdempotencyKey::from_header`] reads it.
    #[must_use]
    pub fn header(self, value: &[u8]) -> Self {
        self.and(IdempotencyKey::from_header(value))
    }

    fn and(self, found: Result<IdempotencyKey, InvalidKey>) -> Self {
        Self(Some(match (self.0, found) {
            (None, found) => found,
            (Some(Err(error)), _) | (Some(Ok(_)), Err(error)) => Err(error),
            (Some(Ok(known)), Ok(found)) if known == found => Ok(known),
            (Some(Ok(_)), Ok(_)) => Err(InvalidKey::CarriersDiffer),
        }))
    }

    /// The one key of a request whose arguments carry none.
    pub(crate) fn alone(self) -> Result<IdempotencyKey, InvalidKey> {
        self.0.unwrap_or(Err(InvalidKey::NotCarried))
    }

    /// The one key of the request, taken out of its `arguments` if it is there.
    ///
    /// A toolbox whose hosts carry the key knows no such argument: there it stays where it
    /// is, to be refused like any other unknown one.
    pub(crate) fn settle(
        self,
        place: KeyPlace,
        arguments: &mut Map<String, Value>,
    ) -> Result<IdempotencyKey, InvalidKey> {
        match place {
            KeyPlace::Argument => match arguments.remove(ARGUMENT) {
                Some(argument) => self.and(from_value(&argument)),
                None => self,
            }
            .0
            .unwrap_or(Err(InvalidKey::Missing)),
            KeyPlace::Beside => self.alone(),
        }
    }
}

impl From<IdempotencyKey> for CarriedKeys {
    fn from(key: IdempotencyKey) -> Self {
        Self(Some(Ok(key)))
    }
}

impl From<&IdempotencyKey> for CarriedKeys {
    fn from(key: &IdempotencyKey) -> Self {
        Self::from(key.clone())
    }
}

impl fmt::Debug for CarriedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CarriedKeys(..)")
    }
}

fn from_value(value: &Value) -> Result<IdempotencyKey, InvalidKey> {
    match value {
        Value::String(key) => IdempotencyKey::new(key.as_str()),
        _ => Err(InvalidKey::NotAString),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settle(
        keys: CarriedKeys,
        place: KeyPlace,
        mut arguments: Value,
    ) -> Result<String, InvalidKey> {
        let arguments = arguments.as_object_mut().unwrap();
        let key = keys.settle(place, arguments)?;
        Ok(key.as_str().to_owned())
    }

    #[test]
    fn a_missing_null_or_wrong_key_is_never_a_shared_key() {
        for (arguments, error) in [
            (json!({}), InvalidKey::Missing),
            (json!({ "idempotency_key": null }), InvalidKey::NotAString),
            (json!({ "idempotency_key": 7 }), InvalidKey::NotAString),
            (json!({ "idempotency_key": ["a"] }), InvalidKey::NotAString),
            (json!({ "idempotency_key": "" }), InvalidKey::Empty),
        ] {
            let settled = settle(CarriedKeys::none(), KeyPlace::Argument, arguments);
            assert_eq!(settled, Err(error));
        }
        let settled = settle(CarriedKeys::none(), KeyPlace::Beside, json!({}));
        assert_eq!(settled, Err(InvalidKey::NotCarried));
        let null = CarriedKeys::none().metadata(&Value::Null);
        let settled = settle(null, KeyPlace::Beside, json!({}));
        assert_eq!(settled, Err(InvalidKey::NotAString));
    }

    #[test]
    fn all_carriers_say_the_same_key_or_the_call_is_refused() {
        let argument = json!({ "idempotency_key": "a" });
        let differ = Err(InvalidKey::CarriersDiffer);
        let meta = |key: &str| CarriedKeys::none().metadata(&key.into());
        for (keys, arguments, settled) in [
            (CarriedKeys::none(), argument.clone(), Ok("a".into())),
            (meta("a"), json!({}), Ok("a".into())),
            (meta("a"), argument.clone(), Ok("a".into())),
            (meta("a").header(b"a"), argument.clone(), Ok("a".into())),
            (meta("b"), argument.clone(), differ.clone()),
            (meta("b").header(b"a"), argument.clone(), differ.clone()),
            (meta("a").header(b"b"), json!({}), differ.clone()),
            (CarriedKeys::none().header(b"b"), argument.clone(), differ),
            (
                CarriedKeys::none().header(b"a b"),
                argument.clone(),
                Err(InvalidKey::MalformedHeader),
            ),
            (meta(""), argument, Err(InvalidKey::Empty)),
        ] {
            assert_eq!(settle(keys, KeyPlace::Argument, arguments), settled);
        }
    }

    #[test]
    fn beside_the_arguments_the_argument_is_none_of_ours() {
        let mut arguments = json!({ "idempotency_key": "a", "body": "b" });
        let arguments = arguments.as_object_mut().unwrap();
        let keys = CarriedKeys::none().metadata(&"b".into());
        let key = keys.settle(KeyPlace::Beside, arguments).unwrap();
        assert_eq!(key.as_str(), "b");
        assert!(arguments.contains_key("idempotency_key"));
    }

    #[test]
    fn a_header_is_a_quoted_string_or_a_bare_token() {
        for (header, key) in [
            (r#""a b""#, "a b"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (" 7b025dc8-40d5 ", "7b025dc8-40d5"),
            ("note:a/b", "note:a/b"),
        ] {
            let found = IdempotencyKey::from_header(header.as_bytes()).unwrap();
            assert_eq!(found.as_str(), key, "{header}");
        }
        for (header, error) in [
            ("", InvalidKey::Empty),
            (r#""""#, InvalidKey::Empty),
            ("\"", InvalidKey::MalformedHeader),
            ("a b", InvalidKey::MalformedHeader),
            ("a, b", InvalidKey::MalformedHeader),
            (r#""a";p=1"#, InvalidKey::MalformedHeader),
            (r#""a"b""#, InvalidKey::MalformedHeader),
            (r#""a\n""#, InvalidKey::MalformedHeader),
            ("\"a\\\"", InvalidKey::MalformedHeader),
            ("\u{e9}", InvalidKey::MalformedHeader),
            ("\"\u{e9}\"", InvalidKey::MalformedHeader),
            ("\" a\"", InvalidKey::OuterWhitespace),
        ] {
            assert_eq!(
                IdempotencyKey::from_header(header.as_bytes()),
                Err(error),
                "{header}"
            );
        }
    }
}
