#![deny(missing_docs)]
//! Documentation of every form.

use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

/// One.
///
///   - two
#[doc = concat!(" thr", "ee")]
/** four */
#[doc(alias = "five")]
#[idempotent_tool(operation = "documented:v1")]
pub fn documented(
    _tx: &Tx,
    /// First.
    #[doc = concat!("sec", "ond")]
    _argument: u8,
) -> Result<u64, Failure> {
    Ok(1)
}

fn description<T: Handler>() -> &'static str {
    T::declaration().description
}

fn main() {
    assert_eq!(description::<documented>(), "One.\n\n  - two\n three\nfour");
}
