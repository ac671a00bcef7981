//! What an authorizer keeps of an operation, to decide later by what it acts on.

use std::fmt;

/// The most tags of one operation.
const MAX_TAGS: usize = 8;

/// The most bytes of all tags of one operation together.
const MAX_BYTES: usize = 256;

/// What an authorizer names the resources of an operation by, such as `project:7`.
///
/// An external operation keeps those of its acceptance, and the authorizer is shown them
/// when somebody wants to inspect or cancel it: the arguments may be gone by then. At most
/// 8 tags, of at most 256 bytes of UTF-8 in all; an authorizer that returns more has not
/// answered. They stay on the server: no reply, no listing and no log has them, nor has
/// their `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<Box<str>>);

/// Why tags can't be kept; without the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{tags} tags of {bytes} bytes in all; an operation keeps at most {MAX_TAGS} of at most \
     {MAX_BYTES} bytes"
)]
pub(crate) struct TooManyTags {
    tags: usize,
    bytes: usize,
}

impl Tags {
    /// These tags, in this order.
    pub fn new<T: Into<Box<str>>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self(tags.into_iter().map(Into::into).collect())
    }

    /// Whether `tag` is among them, byte for byte.
    #[must_use]
    pub fn contains(&self, tag: &str) -> bool {
        self.iter().any(|known| known == tag)
    }

    /// The tags, in the order in which they were given.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|tag| &**tag)
    }

    /// The first one given.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.iter().next()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses what is too much to keep; nothing is ever cut.
    pub(crate) fn within_limits(self) -> Result<Self, TooManyTags> {
        let tags = self.0.len();
        let bytes = self.0.iter().map(|tag| tag.len()).sum();
        if tags <= MAX_TAGS && bytes <= MAX_BYTES {
            Ok(self)
        } else {
            Err(TooManyTags { tags, bytes })
        }
    }

    /// The tags as a ledger keeps them.
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only a store keeps them")
    )]
    pub(crate) fn to_json(&self) -> String {
        self.iter().collect::<serde_json::Value>().to_string()
    }

    /// The tags that a ledger keeps; `None` if it was changed from outside.
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only a store keeps them")
    )]
    pub(crate) fn from_json(stored: &str) -> Option<Self> {
        serde_json::from_str(stored).map(Self).ok()
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tags(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_refused_and_never_cut() {
        let full = Tags::new(std::iter::repeat_n("x".repeat(32), MAX_TAGS));
        assert_eq!(full.clone().within_limits(), Ok(full));
        let none = Tags::default();
        assert!(none.within_limits().is_ok_and(|none| none.is_empty()));
        for (tags, told) in [
            (Tags::new(vec!["secret"; 9]), (9, 54)),
            (Tags::new(["secret".repeat(43)]), (1, 258)),
            (Tags::new(["é".repeat(128).as_str(), "x"]), (2, 257)),
        ] {
            let error = tags.within_limits().unwrap_err();
            assert_eq!((error.tags, error.bytes), told);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn tags_are_kept_as_they_were_given() {
        let tags = Tags::new(["b", "a", "", "a\"\\\n", "é"]);
        assert_eq!(Tags::from_json(&tags.to_json()), Some(tags.clone()));
        assert!(tags.contains("a") && !tags.contains("A") && !tags.contains("c"));
        assert_eq!(tags.first(), Some("b"));
        assert_eq!(format!("{tags:?}"), "Tags(..)");
        for other in ["", "{}", "[1]", "\"a\""] {
            assert_eq!(Tags::from_json(other), None, "{other}");
        }
    }
}
