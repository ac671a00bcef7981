//! What an expansion implements; the runtime makes a [`Tool`] of it.
//!
//! The two are apart so that a mistake in a tool's types is one error, at the type: an
//! expansion names each of the user's types once and projects nothing out of it.

use crate::{
    effect::failure::Failure,
    tool::{
        ArgumentDefault, Context, Declaration, Handler, HandlerResult, Need, State, SyncContext,
        Tool, ToolArguments,
    },
};

/// What one use of the attribute says.
pub trait Definition: Send + Sync + 'static {
    /// The kind of function: [`PlainFn`].
    type Kind;
    /// The type that the first parameter borrows.
    type Context: Context;
    /// The tool's own arguments.
    type Arguments: ToolArguments;
    /// What the function returns.
    type Returned: HandlerResult;

    /// What the attribute's arguments and the doc comment say.
    fn declaration() -> Declaration;
    /// The defaults of the optional arguments that declare one.
    fn defaults() -> Vec<ArgumentDefault>;
    /// The application state that the function has injected.
    fn needs() -> Vec<Need>;
}

/// The [kind](Definition::Kind) of a function that is not `async`.
#[derive(Debug, Clone, Copy)]
pub struct PlainFn;

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

#[diagnostic::do_not_recommend]
impl<T: Definition + Erase<<T as Definition>::Kind>> Tool for T {
    type Context = <T as Definition>::Context;
    type Arguments = <T as Definition>::Arguments;
    type Output = <T::Returned as HandlerResult>::Output;

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
    ) -> Result<<T::Returned as HandlerResult>::Output, Failure> {
        <T as PlainDefinition>::call(context, state, arguments)?.into_result()
    }
}
