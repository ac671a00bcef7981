//! The caller's name for one intended action.

use std::{fmt, str::FromStr};

use uuid::Uuid;

/// The argument that carries the key.
pub(crate) const ARGUMENT: &str = "idempotency_key";

/// The longest key, in Unicode code points.
pub(crate) const MAX_CODE_POINTS: usize = 128;

/// The caller's name for one intended action.
///
/// 1 to 128 Unicode code points, no control characters, no white space at either end;
/// compared byte for byte. Its `Debug` doesn't show it, so that it reaches no log.
///
/// ```
/// use idempotent_tool::{IdempotencyKey, InvalidKey};
///
/// let key: IdempotencyKey = "note-request-7b025dc8".parse()?;
/// assert_eq!(key.as_str(), "note-request-7b025dc8");
/// assert_eq!(" note".parse::<IdempotencyKey>(), Err(InvalidKey::OuterWhitespace));
/// # Ok::<(), InvalidKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Box<str>);

/// Why a text is no idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// There is no key.
    #[error(
        "`idempotency_key` is missing; generate one for this action and repeat it in every retry"
    )]
    Missing,
    /// The key is not a string.
    #[error("`idempotency_key` must be a string")]
    NotAString,
    /// The key has no characters.
    #[error("`idempotency_key` is empty; it must have 1 to 128 characters")]
    Empty,
    /// The key has more than 128 code points.
    #[error("`idempotency_key` has {0} characters; at most 128 are allowed")]
    TooLong(usize),
    /// The key has white space at an end.
    #[error("`idempotency_key` starts or ends with white space; remove it")]
    OuterWhitespace,
    /// The key has a control character.
    #[error("`idempotency_key` has a control character at position {0}; remove it")]
    ControlCharacter(usize),
    /// The host must carry the key beside the arguments, and does not.
    #[error(
        "the request carries no idempotency key; the host must send one beside the arguments, the same in every retry"
    )]
    NotCarried,
    /// The request carries two keys.
    #[error("the request carries different idempotency keys; send one, or the same everywhere")]
    CarriersDiffer,
    /// The header is neither a quoted string nor a bare token.
    #[error(
        "the `Idempotency-Key` header is malformed; it must be a quoted string or a bare token, in ASCII"
    )]
    MalformedHeader,
}

impl IdempotencyKey {
    /// Checks `key`. Of an HTTP header take [`from_header`](Self::from_header).
    ///
    /// # Errors
    ///
    /// When it is empty, longer than 128 code points, has a control character, or white
    /// space at either end.
    pub fn new(key: impl Into<String>) -> Result<Self, InvalidKey> {
        let key = key.into();
        if key.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if let Some(position) = key.chars().position(char::is_control) {
            return Err(InvalidKey::ControlCharacter(position));
        }
        if key.starts_with(is_space) || key.ends_with(is_space) {
            return Err(InvalidKey::OuterWhitespace);
        }
        let code_points = key.chars().count();
        if code_points > MAX_CODE_POINTS {
            return Err(InvalidKey::TooLong(code_points));
        }
        Ok(Self(key.into()))
    }

    /// The key that an `Idempotency-Key` header carries: a string of structured fields
    /// (RFC 8941), in quotes, or a bare token such as a UUID. Both are ASCII.
    ///
    /// The quotes are not part of the key: [`new`](Self::new) would take them for it, and
    /// make two keys of one.
    ///
    /// ```
    /// use idempotent_tool::IdempotencyKey;
    ///
    /// let key = IdempotencyKey::from_header(br#""7b025dc8""#)?;
    /// assert_eq!(key, "7b025dc8".parse()?);
    /// assert_eq!(key, IdempotencyKey::from_header(b"7b025dc8")?);
    /// # Ok::<(), idempotent_tool::InvalidKey>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the header is neither, or what it carries is no key.
    pub fn from_header(value: impl AsRef<[u8]>) -> Result<Self, InvalidKey> {
        let key = match value.as_ref().trim_ascii() {
            [b'"', quoted @ .., b'"'] => unquoted(quoted),
            bare => bare
                .iter()
                .all(|byte| is_token_character(*byte))
                .then(|| bare.iter().copied().map(char::from).collect()),
        };
        Self::new(key.ok_or(InvalidKey::MalformedHeader)?)
    }

    /// A new key for a new action: a time-ordered UUID, which the ledger stores fastest.
    ///
    /// Persist it before the first attempt; a retry that generates another key is
    /// another action.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7().to_string().into())
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The inside of a quoted string, its escapes undone.
fn unquoted(quoted: &[u8]) -> Option<String> {
    let mut key = String::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(byte) = bytes.next() {
        key.push(char::from(match byte {
            b'\\' => *bytes.next().filter(|byte| b"\"\\".contains(byte))?,
            b'"' => return None,
            b' '..=b'~' => *byte,
            _ => return None,
        }));
    }
    Some(key)
}

/// Of a token in structured fields, whose first character isn't told apart here: UUIDs
/// start with digits.
fn is_token_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

/// White space, and the invisible mark that JavaScript counts as such.
fn is_space(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

impl FromStr for IdempotencyKey {
    type Err = InvalidKey;

    fn from_str(key: &str) -> Result<Self, InvalidKey> {
        Self::new(key)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_but_valid_keys_are_kept_as_they_are() {
        let longest = "\u{1f600}".repeat(MAX_CODE_POINTS);
        let valid = [
            "user",
            "__proto__",
            "../x",
            "a:b",
            "\u{1f600}",
            "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
            "a b",
            "'; DROP TABLE notes; --",
            "%s",
            "null",
            "0",
            &longest,
        ];
        for key in valid {
            assert_eq!(
                IdempotencyKey::new(key).map(|key| key.as_str().to_owned()),
                Ok(key.into())
            );
        }
    }

    #[test]
    fn invalid_keys_say_why() {
        let invalid = [
            ("", InvalidKey::Empty),
            (" ", InvalidKey::OuterWhitespace),
            (" a", InvalidKey::OuterWhitespace),
            ("a\u{a0}", InvalidKey::OuterWhitespace),
            ("\u{feff}a", InvalidKey::OuterWhitespace),
            ("a\0b", InvalidKey::ControlCharacter(1)),
            ("ab\n", InvalidKey::ControlCharacter(2)),
            ("\u{85}", InvalidKey::ControlCharacter(0)),
        ];
        for (key, error) in invalid {
            assert_eq!(IdempotencyKey::new(key), Err(error), "{key:?}");
        }
        let too_long = "a".repeat(MAX_CODE_POINTS + 1);
        assert_eq!(IdempotencyKey::new(too_long), Err(InvalidKey::TooLong(129)));
    }
}
