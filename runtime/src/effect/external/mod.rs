//! Effects outside the database: what can be known of them, and how they are tried.

pub(crate) mod budget;
pub(crate) mod recovery;
