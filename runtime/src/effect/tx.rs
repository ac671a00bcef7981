//! What a transactional handler writes through.

use serde_json::{Value, value::RawValue};

use crate::{
    effect::transactional::RunError,
    store::sqlite::SqliteStore,
    tool::{Context, Effect, Handler, RunsOn, State, SyncContext, ToolArguments, ToolOutput},
};

/// The open transaction of one call. STUB: store helper owns it.
#[derive(Debug)]
pub struct Tx {}

/// A handler on [`Tx`] with its types erased.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct TxHandler(pub(crate) fn(&Tx, &State, &Value) -> Result<Box<RawValue>, RunError>);

impl Context for Tx {
    type Handler = TxHandler;
}

impl SyncContext for Tx {
    fn erase<T: Handler<Context = Self>>() -> TxHandler {
        TxHandler(|tx, state, arguments| {
            let arguments =
                T::Arguments::from_json(arguments).map_err(|error| RunError::refused(&error))?;
            let output = T::call(tx, state, arguments).map_err(RunError::Failed)?;
            output.to_json().map_err(RunError::unserializable)
        })
    }
}

impl RunsOn<SqliteStore> for Tx {
    fn effect(handler: TxHandler) -> Effect {
        Effect::Sqlite(handler)
    }
}
