//! The digest of the canonical arguments.

use std::fmt;

use sha2::{Digest, Sha256};

/// The first byte of a fingerprint: SHA-256 over the form that `canonical` writes.
const FORMAT: u8 = 1;

/// A format byte and the digest; the format can change later without meeting old digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; Fingerprint::LENGTH]);

impl Fingerprint {
    /// Format byte and SHA-256.
    pub(crate) const LENGTH: usize = 33;

    /// The fingerprint of arguments in their canonical form.
    pub(crate) fn of(canonical: &[u8]) -> Self {
        let mut bytes = [FORMAT; Self::LENGTH];
        bytes[1..].copy_from_slice(&Sha256::digest(canonical));
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads a stored fingerprint. A format or length this version doesn't know is an
    /// error, never "another fingerprint".
    pub(crate) fn from_stored(bytes: &[u8]) -> Result<Self, UnknownFingerprint> {
        match <[u8; Self::LENGTH]>::try_from(bytes) {
            Ok(bytes) if bytes[0] == FORMAT => Ok(Self(bytes)),
            _ => Err(UnknownFingerprint {
                format: bytes.first().copied().unwrap_or_default(),
                length: bytes.len(),
            }),
        }
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

    #[test]
    fn a_stored_fingerprint_is_read_back() {
        let fingerprint = Fingerprint::of(b"arguments");
        assert_eq!(
            Fingerprint::from_stored(fingerprint.as_bytes()),
            Ok(fingerprint)
        );
        assert_ne!(Fingerprint::of(b"argument"), fingerprint);
    }

    #[test]
    fn an_unknown_format_or_length_is_an_error() {
        let mut bytes = Fingerprint::of(b"arguments").as_bytes().to_vec();
        bytes[0] = 2;
        let unknown = Fingerprint::from_stored(&bytes).unwrap_err();
        assert_eq!((unknown.format, unknown.length), (2, 33));
        bytes[0] = FORMAT;
        bytes.pop();
        assert!(Fingerprint::from_stored(&bytes).is_err());
        assert!(Fingerprint::from_stored(&[]).is_err());
    }
}
