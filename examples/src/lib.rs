//! The tools and servers of the examples; the binaries in `bin/` only start them.

pub mod deployments;
pub mod notes;
pub mod support;
#[cfg(unix)]
pub mod terminal;
