//! A key as the ledger keeps it.

use rusqlite::{
    ToSql,
    types::{ToSqlOutput, ValueRef},
};
use uuid::Uuid;

use crate::request::key::IdempotencyKey;

/// A key in its shortest form: a UUID in its usual text form as its 16 bytes, any other as
/// it was given.
///
/// A key is kept twice, in its row and in the identity's index, and most are UUIDs. Blob and
/// text never compare equal, and the text of a UUID follows from its bytes, so two keys are
/// equal here exactly if they are equal as texts. Both forms keep the order of time-ordered
/// UUIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerKey<'a> {
    Text(&'a str),
    Uuid([u8; 16]),
}

impl<'a> From<&'a IdempotencyKey> for LedgerKey<'a> {
    fn from(key: &'a IdempotencyKey) -> Self {
        let text = key.as_str();
        let mut usual = Uuid::encode_buffer();
        match Uuid::try_parse(text) {
            // The parser takes capitals, braces and missing hyphens too: other keys.
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut usual) == text => {
                Self::Uuid(uuid.into_bytes())
            }
            _ => Self::Text(text), // Among them texts that are nearly a UUID.
        }
    }
}

impl ToSql for LedgerKey<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Uuid(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "0190163d-8694-739b-8ab4-a3c0d1f2e3a4";

    #[test]
    fn only_the_usual_form_of_a_uuid_is_shortened() {
        let is_short = |text: &str| {
            let key = IdempotencyKey::new(text).unwrap();
            matches!(LedgerKey::from(&key), LedgerKey::Uuid(_))
        };
        assert!(is_short(USUAL));
        for other in [
            USUAL.to_uppercase(),
            USUAL.replace('-', ""),
            format!("{{{USUAL}}}"),
            format!("urn:uuid:{USUAL}"),
            USUAL.replace('0', "g"),
            "sixteen bytes!!!".to_owned(),
        ] {
            assert!(!is_short(&other), "{other}");
        }
    }
}
