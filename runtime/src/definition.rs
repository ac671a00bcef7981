//! What an expansion implements; the runtime makes a [`Tool`] of it.
//!
//! The two are apart so that a mistake in a tool's types is one error, at the type: an
//! expansion names each of the user's types once and projects nothing out of it.

use crate::{
    effect::{external::error::AttemptError, failure::Failure},
    tool::{
        ArgumentDefault, AsyncContext, AsyncHandler, Context, Declaration, Handler, HandlerResult,
        Need, State, SyncContext, Tool, ToolArguments,
    },
};

/// What one use of the attribute says.
pub trait Definition: Send + Sync + 'static {
    /// The kind of function: [`PlainFn`] or [`AsyncFn`].
    type Kind: FunctionKind;
    /// The type that the first parameter borrows.
    type Context: Context;
    /// The tool's own arguments.
    type Arguments: ToolArguments;
    /// What the function returns.
    type Returned: HandlerResult<Self::Kind>;

    /// What the attribute's arguments and the doc comment say.
    fn declaration() -> Declaration;
    /// The defaults of the optional arguments that declare one.
    #[must_use]
    fn defaults() -> Vec<ArgumentDefault> {
        Vec::new()
    }
    /// The application state that the function has injected.
    #[must_use]
    fn needs() -> Vec<Need> {
        Vec::new()
    }
}

/// A kind of function, with the error that its handlers have.
pub trait FunctionKind {
    /// The error as the runtime takes it.
    type Error;
}

/// The [kind](Definition::Kind) of a function that is not `async`.
#[derive(Debug, Clone, Copy)]
pub struct PlainFn;

/// The [kind](Definition::Kind) of a function that is `async`.
#[derive(Debug, Clone, Copy)]
pub struct AsyncFn;

impl FunctionKind for PlainFn {
    type Error = Failure;
}

impl FunctionKind for AsyncFn {
    type Error = AttemptError;
}

/// A definition on a function that is not `async`.
pub trait PlainDefinition: Definition<Kind = PlainFn> {
    /// Calls the function.
    ///
    /// # Errors
    ///
    /// Injected state that is missing.
    fn call(
        context: &Self::Context,
        state: &State,
        arguments: Self::Arguments,
    ) -> Result<Self::Returned, Failure>;
}

/// A definition on a function that is `async`.
pub trait AsyncDefinition: Definition<Kind = AsyncFn, Arguments: Send> {
    /// Calls the function.
    ///
    /// # Errors
    ///
    /// Injected state that is missing.
    fn call<'a>(
        context: &'a Self::Context,
        state: &'a State,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Returned, Failure>> + Send + 'a;
}

/// A definition whose kind of function its context can run.
pub trait Erase<Kind>: Definition {
    /// The function with its types erased.
    fn erase() -> <Self::Context as Context>::Handler;
}

impl<T: PlainDefinition> Erase<PlainFn> for T
where
    <T as Definition>::Context: SyncContext,
{
    fn erase() -> <<T as Definition>::Context as Context>::Handler {
        <<T as Definition>::Context as SyncContext>::erase::<T>()
    }
}

impl<T: AsyncDefinition> Erase<AsyncFn> for T
where
    <T as Definition>::Context: AsyncContext,
{
    fn erase() -> <<T as Definition>::Context as Context>::Handler {
        <<T as Definition>::Context as AsyncContext>::erase::<T>()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Definition + Erase<<T as Definition>::Kind>> Tool for T {
    type Context = <T as Definition>::Context;
    type Arguments = <T as Definition>::Arguments;
    type Output = <T::Returned as HandlerResult<<T as Definition>::Kind>>::Output;

    fn declaration() -> Declaration {
        <T as Definition>::declaration()
    }

    fn defaults() -> Vec<ArgumentDefault> {
        <T as Definition>::defaults()
    }

    fn needs() -> Vec<Need> {
        <T as Definition>::needs()
    }

    fn handler() -> <<T as Definition>::Context as Context>::Handler {
        T::erase()
    }
}

#[diagnostic::do_not_recommend]
impl<T: PlainDefinition> Handler for T
where
    <T as Definition>::Context: SyncContext,
{
    fn call(
        context: &<T as Definition>::Context,
        state: &State,
        arguments: <T as Definition>::Arguments,
    ) -> Result<<T::Returned as HandlerResult<PlainFn>>::Output, Failure> {
        <T as PlainDefinition>::call(context, state, arguments)?.into_result()
    }
}

#[diagnostic::do_not_recommend]
impl<T: AsyncDefinition> AsyncHandler for T
where
    <T as Definition>::Context: AsyncContext,
{
    async fn call(
        context: &<T as Definition>::Context,
        state: &State,
        arguments: <T as Definition>::Arguments,
    ) -> Result<<T::Returned as HandlerResult<AsyncFn>>::Output, AttemptError> {
        let returned = <T as AsyncDefinition>::call(context, state, arguments).await;
        // The function was not called: state that `build()` looked for is gone.
        let returned = returned.map_err(|missing| {
            let (code, message) = (missing.code().to_owned(), missing.message().to_owned());
            AttemptError::not_applied(code, message)
        })?;
        returned.into_result()
    }
}
