//! Whether this thread runs a handler: a call from inside one would wait for itself.

use std::cell::Cell;

use crate::store::StoreError;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread runs application code inside a transaction.
#[derive(Debug)]
pub(super) struct InHandler(bool);

impl InHandler {
    pub(super) fn enter() -> Self {
        Self(INSIDE.replace(true))
    }
}

impl Drop for InHandler {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// Refuses work that would wait for the transaction that this thread is inside of.
pub(super) fn refuse() -> Result<(), StoreError> {
    if !INSIDE.get() {
        return Ok(());
    }
    Err(StoreError::new(
        "a tool can't be called from inside a handler, nor can the store be used; write through \
         the handler's own `Tx`, or call after it has returned",
    ))
}
