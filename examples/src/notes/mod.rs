//! Notes in one SQLite file: two versions of `create_note`, and a plain `list_notes`.

pub mod cli;
pub mod demo;
pub mod http;
pub mod server;
pub mod tokens;
pub mod tools;
