//! The digest of the canonical arguments.

use std::fmt;

/// A format byte and the digest; the format can change later without meeting old digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; Fingerprint::LENGTH]);

impl Fingerprint {
    /// Format byte and SHA-256.
    pub(crate) const LENGTH: usize = 33;

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads a stored fingerprint. A format or length this version doesn't know is an
    /// error, never "another fingerprint".
    pub(crate) fn from_stored(_bytes: &[u8]) -> Result<Self, UnknownFingerprint> {
        todo!()
    }
}

/// A stored fingerprint of a format that this version doesn't know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ledger holds a fingerprint of format {format}, which this version of idempotent-tool doesn't know; open it with the version that wrote it"
)]
pub(crate) struct UnknownFingerprint {
    pub(crate) format: u8,
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}
