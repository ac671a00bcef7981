//! What a tool is to the runtime.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    fmt,
    time::Duration,
};

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use crate::{
    definition::{AsyncFn, FunctionKind, PlainFn},
    effect::{
        external::{error::AttemptError, recovery::ExternalDeclaration},
        failure::Failure,
    },
    finite::{self, Unwritable},
    reading::{self, Unreadable},
};

/// One version of an operation: what `#[idempotent_tool]` makes of a function.
///
/// Implemented through the attribute only; its items may change at any patch release.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "not a tool",
    note = "a tool is a function with `#[idempotent_tool(operation = \"name:v1\")]`"
)]
pub trait Tool: Send + Sync + 'static {
    /// What the handler works in, its first parameter: [`Tx`](crate::Tx).
    type Context: Context;
    /// The tool's own arguments, without the idempotency key.
    type Arguments: ToolArguments;
    /// What a successful handler returns.
    type Output: ToolOutput;

    /// What the attribute's arguments and the doc comment say.
    #[doc(hidden)]
    fn declaration() -> Declaration;
    /// The defaults of the optional arguments that declare one.
    #[doc(hidden)]
    fn defaults() -> Vec<ArgumentDefault>;
    /// The application state that the handler has injected.
    #[doc(hidden)]
    fn needs() -> Vec<Need>;
    /// The handler in the form its context runs.
    #[doc(hidden)]
    fn handler() -> <Self::Context as Context>::Handler;
}

/// What a handler works in; tells how a handler on it is called.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a tool's handler works in",
    label = "not a tool's context",
    note = "the first parameter of a tool is `&Tx`, or `&Attempt` for an effect outside the database"
)]
pub trait Context: Sized + 'static {
    /// A handler on this context with its types erased.
    #[doc(hidden)]
    type Handler: Clone + Send + Sync + 'static;
}

/// A context whose handlers are plain functions.
#[diagnostic::on_unimplemented(
    message = "a tool that works in `{Self}` cannot be a plain `fn`",
    label = "needs an `async fn`"
)]
pub trait SyncContext: Context {
    /// Erases the types of a handler.
    #[doc(hidden)]
    fn erase<T: Handler<Context = Self>>() -> Self::Handler;
}

/// A context whose handlers are `async` functions.
#[diagnostic::on_unimplemented(
    message = "a tool that works in `{Self}` cannot be an `async fn`",
    label = "needs a plain `fn`: it runs inside one database transaction"
)]
pub trait AsyncContext: Context + Send + Sync {
    /// Erases the types of a handler.
    #[doc(hidden)]
    fn erase<T: AsyncHandler<Context = Self>>() -> Self::Handler;
}

/// A context that the store `S` can provide.
#[diagnostic::on_unimplemented(
    message = "this tool cannot run on `{S}`: its first parameter is `{Self}`",
    label = "the store cannot provide `{Self}`"
)]
pub trait RunsOn<S>: Context {
    /// The handler as the store takes it.
    #[doc(hidden)]
    fn effect(handler: Self::Handler) -> Effect;
}

/// A handler as the toolbox keeps it: by the kind of its effect.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Effect {
    /// Inside one transaction of the store.
    Transactional(TransactionalEffect),
    /// Outside the database.
    External(crate::effect::external::attempt::AttemptHandler),
}

/// A transactional handler, by the kind of its transaction.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum TransactionalEffect {
    /// Of SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(crate::effect::tx::TxHandler),
}

/// A tool whose handler is a plain function.
pub trait Handler: Tool {
    /// Calls the user's function.
    ///
    /// # Errors
    ///
    /// What the function returned, or injected state that is missing.
    #[doc(hidden)]
    fn call(
        context: &Self::Context,
        state: &State,
        arguments: Self::Arguments,
    ) -> Result<Self::Output, Failure>;
}

/// A tool whose handler is an `async` function.
pub trait AsyncHandler: Tool {
    /// Calls the user's function.
    #[doc(hidden)]
    fn call<'a>(
        context: &'a Self::Context,
        state: &'a State,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Output, AttemptError>> + Send + 'a;
}

/// What one use of the attribute declares.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The operation's name, which is the tool's.
    pub name: &'static str,
    /// The operation's version, the N of `name:vN`.
    pub version: u32,
    /// A title for people.
    pub title: Option<&'static str>,
    /// The doc comment, lines joined by `\n`, without the leading space of each.
    pub description: &'static str,
    /// How long the result is kept for replay.
    pub retention: Duration,
    /// How long after the retention the key is still refused.
    pub tombstone: Duration,
    /// The budget of one call.
    pub deadline: Duration,
    /// The largest result, in bytes of JSON.
    pub max_result: u64,
    /// The hint that the effect may destroy something.
    pub destructive: bool,
    /// The hint that the effect reaches beyond the server.
    pub open_world: bool,
    /// Whether a transactional handler tells something outside the database, so that it must
    /// not run again for a neighbour's failure.
    pub effects_outside: bool,
    /// The tool's own authorizer.
    pub authorize: Option<crate::request::authorize::AuthorizeFn>,
    /// How an external tool is tried and recovered; `None` for a transactional one.
    pub external: Option<ExternalDeclaration>,
    /// The module that declares the tool.
    pub module: &'static str,
}

impl Declaration {
    /// `name:vN`.
    pub(crate) fn operation(&self) -> String {
        format!("{}:v{}", self.name, self.version)
    }
}

/// The default of one optional argument.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct ArgumentDefault {
    /// The argument's name in JSON.
    pub name: &'static str,
    /// Makes the default's JSON text.
    pub make: fn() -> serde_json::Result<String>,
}

impl fmt::Debug for ArgumentDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentDefault")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// State that a handler has injected.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Need {
    pub(crate) id: TypeId,
    pub(crate) type_name: &'static str,
}

impl Need {
    /// The need of a `T`.
    #[must_use]
    pub fn of<T: Send + Sync + 'static>() -> Self {
        Self {
            id: TypeId::of::<T>(),
            type_name: type_name::<T>(),
        }
    }
}

/// The application's state, by type.
#[doc(hidden)]
#[derive(Default)]
pub struct State {
    values: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl State {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Box::new(value));
    }

    pub(crate) fn has(&self, need: &Need) -> bool {
        self.values.contains_key(&need.id)
    }

    /// The state of type `T`.
    ///
    /// # Errors
    ///
    /// When the toolbox was not given any; `build()` checks that it was.
    pub fn get<T: 'static>(&self) -> Result<&T, Failure> {
        self.values
            .get(&TypeId::of::<T>())
            .and_then(|value| value.downcast_ref())
            .ok_or_else(|| {
                Failure::new(
                    "missing_state",
                    "the server lacks state that this tool needs",
                )
            })
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("values", &self.values.len())
            .finish()
    }
}

/// A type that a tool may take as its arguments.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of an idempotent tool",
    label = "not a tool's arguments",
    note = "a tool's arguments must be `serde::de::DeserializeOwned + schemars::JsonSchema`",
    note = "add `#[derive(serde::Deserialize, schemars::JsonSchema)]`"
)]
pub trait ToolArguments: Sized + 'static {
    /// Reads the validated arguments.
    ///
    /// # Errors
    ///
    /// When the type refuses what its schema allows.
    #[doc(hidden)]
    fn from_json(arguments: &Value) -> Result<Self, Unreadable>;
    /// The schema as schemars writes it.
    #[doc(hidden)]
    fn json_schema() -> Schema;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolArguments for T {
    fn from_json(arguments: &Value) -> Result<Self, Unreadable> {
        reading::read(arguments)
    }

    fn json_schema() -> Schema {
        deserialize_schema::<T>()
    }
}

/// The schema of what a `T` is read from, as schemars writes it.
pub(crate) fn deserialize_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    settings
        .for_deserialize()
        .into_generator()
        .into_root_schema_for::<T>()
}

/// A type that a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of an idempotent tool",
    label = "not a tool's result",
    note = "the result is stored and replayed, so it must be `serde::Serialize + schemars::JsonSchema`",
    note = "add `#[derive(serde::Serialize, schemars::JsonSchema)]`"
)]
pub trait ToolOutput: Sized + 'static {
    /// The JSON text that is stored and replayed.
    ///
    /// # Errors
    ///
    /// When the value cannot be written as JSON.
    #[doc(hidden)]
    fn to_json(&self) -> Result<Box<RawValue>, Unwritable>;
    /// The schema of what [`to_json`](Self::to_json) writes.
    #[doc(hidden)]
    fn json_schema() -> Schema;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + JsonSchema + 'static> ToolOutput for T {
    fn to_json(&self) -> Result<Box<RawValue>, Unwritable> {
        finite::to_raw_value(self)
    }

    fn json_schema() -> Schema {
        let settings = SchemaSettings::draft2020_12().with(|s| {
            s.inline_subschemas = true;
            s.meta_schema = None;
        });
        settings
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<T>()
    }
}

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "expected `Result<Output, Error>`",
    note = "a tool returns `Result<Output, Error>`; the error converts into `idempotent_tool::Failure`"
)]
pub trait HandlerResult<Kind: FunctionKind = PlainFn>: 'static {
    /// The successful result.
    type Output: ToolOutput;
    /// The result with the error as the runtime takes it.
    ///
    /// # Errors
    ///
    /// The handler's.
    #[doc(hidden)]
    fn into_result(self) -> Result<Self::Output, Kind::Error>;
}

impl<T: ToolOutput, E: HandlerError> HandlerResult<PlainFn> for Result<T, E> {
    type Output = T;

    fn into_result(self) -> Result<T, Failure> {
        self.map_err(HandlerError::into_failure)
    }
}

impl<T: ToolOutput, E: ExternalError> HandlerResult<AsyncFn> for Result<T, E> {
    type Output = T;

    fn into_result(self) -> Result<T, AttemptError> {
        self.map_err(ExternalError::into_attempt_error)
    }
}

/// An error that an external handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of an external tool",
    label = "says nothing of what became of the attempt",
    note = "an external tool returns `AttemptError`: refused, not applied or ambiguous",
    note = "implement `From<{Self}> for idempotent_tool::AttemptError`, or map the error to one"
)]
pub trait ExternalError: 'static {
    /// The error as the runtime takes it.
    #[doc(hidden)]
    fn into_attempt_error(self) -> AttemptError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<AttemptError> + 'static> ExternalError for E {
    fn into_attempt_error(self) -> AttemptError {
        self.into()
    }
}

/// An error that a handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of an idempotent tool",
    label = "not a tool's error",
    note = "implement `From<{Self}> for idempotent_tool::Failure`, or map the error to a `Failure`"
)]
pub trait HandlerError: 'static {
    /// The error as the caller is told.
    #[doc(hidden)]
    fn into_failure(self) -> Failure;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Failure> + 'static> HandlerError for E {
    fn into_failure(self) -> Failure {
        self.into()
    }
}
