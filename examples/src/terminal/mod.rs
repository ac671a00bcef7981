//! A terminal: sessions and commands that are run at most once, and output that can be read
//! at any time.

pub mod cli;
pub mod demo;
pub mod evidence;
pub mod keeper;
pub mod server;
pub mod tools;
