//! What a handler does to the world.

#[cfg(feature = "sqlite")]
mod database_error;
pub(crate) mod external;
pub(crate) mod failure;
pub(crate) mod transactional;
#[cfg(feature = "sqlite")]
pub(crate) mod tx;
