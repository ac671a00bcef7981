//! The ids of operations and of their attempts.

use std::{fmt, str::FromStr};

use uuid::Uuid;

/// The durable handle of an operation: `op_` and 32 hexadecimal digits, time-ordered,
/// the same for every attempt.
///
/// It carries no secret: whoever asks about an operation is checked against its scope.
///
/// ```
/// use idempotent_tool::OperationId;
///
/// let id: OperationId = "op_0190163d8694739b8ab4a3c0d1f2e3a4".parse()?;
/// assert_eq!(id.to_string(), "op_0190163d8694739b8ab4a3c0d1f2e3a4");
/// assert!("op_42".parse::<OperationId>().is_err());
/// # Ok::<(), idempotent_tool::MalformedOperationId>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

/// A text that is no operation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an operation id is `op_` and 32 lower-case hexadecimal digits")]
#[non_exhaustive]
pub struct MalformedOperationId;

impl OperationId {
    /// A new id, after all that this process made before.
    pub(crate) fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// When it was made, to the millisecond: the first six bytes say so.
    #[cfg(feature = "rmcp")]
    pub(crate) fn made_at(&self) -> crate::clock::Timestamp {
        let mut milliseconds = [0; 8];
        for (to, from) in milliseconds.iter_mut().skip(2).zip(self.0.as_bytes()) {
            *to = *from;
        }
        crate::clock::Timestamp(i64::from_be_bytes(milliseconds))
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op_{}", self.0.simple())
    }
}

impl FromStr for OperationId {
    type Err = MalformedOperationId;

    fn from_str(text: &str) -> Result<Self, MalformedOperationId> {
        let digits = text.strip_prefix("op_").ok_or(MalformedOperationId)?;
        let canonical = digits.len() == 32
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !canonical {
            return Err(MalformedOperationId);
        }
        digits.parse().map(Self).map_err(|_| MalformedOperationId)
    }
}

/// One execution of a handler; tells attempts of one operation apart in traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptId(Uuid);

impl AttemptId {
    pub(crate) fn generate() -> Self {
        Self(Uuid::new_v4())
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at_{}", self.0.simple())
    }
}
