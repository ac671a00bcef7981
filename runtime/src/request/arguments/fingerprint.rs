//! The digest of the canonical arguments.

use std::fmt;

use sha2::{Digest, Sha256};

use super::canonical::Form;

/// The first byte of a fingerprint: SHA-256 over the form that `canonical` writes, as long as
/// no integer is in it that no double stands for.
const FIRST: u8 = 1;
/// The first byte of one with such an integer, in the arguments or in a default.
const EXACT: u8 = 2;

/// A format byte and the digest; the format can change later without meeting old digests.
///
/// It has no `==`: what is stored is [compared](Self::is_of) under the format that wrote it.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) struct Fingerprint {
    bytes: [u8; Self::LENGTH],
    /// Whether the first format would have rounded an integer of this request, and so has
    /// recorded another one under the same digest.
    is_rounded_by_first: bool,
}

impl Fingerprint {
    /// Format byte and SHA-256.
    pub(crate) const LENGTH: usize = 33;

    /// The fingerprint of arguments in their canonical form.
    pub(super) fn of(form: &Form) -> Self {
        let format = if form.is_exact { EXACT } else { FIRST };
        let mut bytes = [format; Self::LENGTH];
        bytes[1..].copy_from_slice(&Sha256::digest(&form.bytes));
        Self {
            bytes,
            is_rounded_by_first: form.is_rounded_by_first,
        }
    }

    /// The fingerprint of anything, where any will do.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self::of(&Form {
            bytes: bytes.to_vec(),
            ..Form::default()
        })
    }

    /// Whether this one, which is stored, is that of a `request`.
    ///
    /// One of the first format may be of several requests that differ in an integer which
    /// was rounded; it is taken for that of the one that was not. The format of the request
    /// says no more than its digest: a default that it left out may be new, or not yet known.
    pub(crate) fn is_of(&self, request: &Self) -> bool {
        let (Some((format, digest)), Some((_, requested))) =
            (self.bytes.split_first(), request.bytes.split_first())
        else {
            return false;
        };
        digest == requested && (*format != FIRST || !request.is_rounded_by_first)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads a stored fingerprint. A format or length this version doesn't know is an
    /// error, never "another fingerprint".
    pub(crate) fn from_stored(bytes: &[u8]) -> Result<Self, UnknownFingerprint> {
        match <[u8; Self::LENGTH]>::try_from(bytes) {
            Ok(bytes) if [FIRST, EXACT].contains(&bytes[0]) => Ok(Self {
                bytes,
                is_rounded_by_first: false,
            }),
            _ => Err(UnknownFingerprint {
                format: bytes.first().copied().unwrap_or_default(),
                length: bytes.len(),
            }),
        }
    }
}

impl AsRef<[u8]> for Fingerprint {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A stored fingerprint of a format that this version doesn't know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ledger holds a fingerprint of format {format} and {length} bytes, which this version of \
     idempotent-tool doesn't know; open it with the version that wrote it"
)]
pub(crate) struct UnknownFingerprint {
    pub(crate) format: u8,
    pub(crate) length: usize,
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], is_exact: bool, is_rounded_by_first: bool) -> Fingerprint {
        Fingerprint::of(&Form {
            bytes: bytes.to_vec(),
            is_exact,
            is_rounded_by_first,
        })
    }

    #[test]
    fn a_stored_fingerprint_is_read_back() {
        for is_exact in [false, true] {
            let fingerprint = of(b"arguments", is_exact, false);
            let stored = Fingerprint::from_stored(fingerprint.as_bytes()).unwrap();
            assert_eq!(stored.as_bytes(), fingerprint.as_bytes());
            assert!(stored.is_of(&fingerprint));
            assert!(!stored.is_of(&of(b"argument", is_exact, false)));
        }
    }

    /// What is stored, and which requests with the same bytes it is of: one without such an
    /// integer, one with one in a default, one with one of its own.
    #[test]
    fn a_stored_fingerprint_is_compared_under_the_format_that_wrote_it() {
        let requests = [(false, false), (true, false), (true, true)];
        for (is_exact, expect) in [(false, [true, true, false]), (true, [true, true, true])] {
            let stored = of(b"arguments", is_exact, false);
            let stored = Fingerprint::from_stored(stored.as_bytes()).unwrap();
            let found = requests
                .map(|(is_exact, rounded)| stored.is_of(&of(b"arguments", is_exact, rounded)));
            assert_eq!(found, expect, "{is_exact}");
        }
    }

    #[test]
    fn an_unknown_format_or_length_is_an_error() {
        let mut bytes = of(b"arguments", false, false).as_bytes().to_vec();
        bytes[0] = 3;
        let unknown = Fingerprint::from_stored(&bytes).unwrap_err();
        assert_eq!((unknown.format, unknown.length), (3, 33));
        bytes[0] = FIRST;
        bytes.pop();
        assert!(Fingerprint::from_stored(&bytes).is_err());
        assert!(Fingerprint::from_stored(&[]).is_err());
    }
}
