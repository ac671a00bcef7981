//! What is known of an operation and what follows from it: pure, without a database.

pub(crate) mod decision;
pub(crate) mod id;
pub(crate) mod identity;
#[cfg(test)]
mod model;
pub(crate) mod record;
pub(crate) mod state;
pub(crate) mod stored;
