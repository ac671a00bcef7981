//! The tools and servers of the examples; the binaries in `bin/` only start them.

pub mod notes;
