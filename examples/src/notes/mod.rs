//! Notes in one SQLite file: two versions of `create_note`, and a plain `list_notes`.

pub mod cli;
pub mod demo;
pub mod server;
pub mod tools;
