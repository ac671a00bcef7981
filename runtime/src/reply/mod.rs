//! What a caller is told.

pub(crate) mod describe;
pub(crate) mod rejection;
pub(crate) mod schema;
pub(crate) mod validate;

/// STUB: reply helper owns it.
#[derive(Debug, Clone)]
pub struct Reply {}
