//! The caller's name for one intended action.

use std::{fmt, str::FromStr};

use uuid::Uuid;

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
    #[error("`idempotency_key` is missing; generate one for this action and repeat it in every retry")]
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
}

impl IdempotencyKey {
    /// Checks `key`.
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
        if key.trim().len() != key.len() {
            return Err(InvalidKey::OuterWhitespace);
        }
        let code_points = key.chars().count();
        if code_points > MAX_CODE_POINTS {
            return Err(InvalidKey::TooLong(code_points));
        }
        Ok(Self(key.into()))
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
