//! Panics of the application's code, which end what it was asked for and nothing else.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The application's code panicked; its message stays where the panic hook put it.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs application code, whose panic goes no further.
///
/// What it left half-done must not be used again, or stand no matter how it was left.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        discard(payload);
        Panicked
    })
}

/// Drops a panic's payload, which may panic again.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic_any(Self);
        }
    }

    #[test]
    fn a_panic_whose_payload_panics_goes_no_further() {
        assert_eq!(caught(|| 7).ok(), Some(7));
        assert!(caught(|| panic_any(PanicsAgain)).is_err());
    }
}
