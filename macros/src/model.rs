//! From the attribute's arguments and the function to a value that can only be valid.
//!
//! All checks are here or called from here, so that all mistakes are reported at once.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::{
    Attribute, FnArg, Ident, LitStr, Path, ReceiverKind, ReturnType, Signature, Type, Visibility,
};

use crate::{
    args::Args,
    diagnostics::Errors,
    external::External,
    item::{self, Function},
    literal::Operation,
    parameter::{self, Argument, Parameter},
    types::{self, Part},
};

/// A tool whose every part is checked.
pub(crate) struct Tool<'a> {
    /// Where `idempotent-tool` is found.
    pub(crate) krate: TokenStream,
    pub(crate) operation: Operation,
    pub(crate) title: Option<LitStr>,
    pub(crate) retention: Duration,
    pub(crate) tombstone: Duration,
    pub(crate) deadline: Duration,
    pub(crate) max_result: u64,
    pub(crate) destructive: bool,
    pub(crate) open_world: bool,
    /// Whether a transactional handler tells something outside the database.
    pub(crate) effects_outside: bool,
    pub(crate) authorize: Option<Path>,
    /// Present if the function is `async`.
    pub(crate) external: Option<External>,
    pub(crate) attrs: &'a [Attribute],
    pub(crate) vis: &'a Visibility,
    pub(crate) ident: &'a Ident,
    pub(crate) context: &'a Type,
    pub(crate) arguments: Arguments<'a>,
    /// What the function takes after its context, in order.
    pub(crate) passed: Vec<Passed<'a>>,
    pub(crate) output: &'a Type,
}

/// Where the tool's arguments come from.
pub(crate) enum Arguments<'a> {
    /// Parameters; the struct is generated.
    Parameters(Vec<Argument<'a>>),
    /// One struct of the user's.
    Whole(&'a Type),
}

/// One parameter as it is passed to the function.
pub(crate) enum Passed<'a> {
    /// This field of the generated struct.
    Field(&'a Ident),
    /// The user's struct.
    Whole,
    /// Injected state of this type.
    State(&'a Type),
}

const DAY: Duration = Duration::from_hours(24);

impl<'a> Tool<'a> {
    /// Checks everything. `None` is what can't be a tool; why is recorded.
    pub(crate) fn new(args: Args, function: &'a Function, errors: &mut Errors) -> Option<Self> {
        if args.operation.is_none() && !args.mistaken {
            errors.at(
                Span::call_site(),
                "missing argument `operation`; write `#[idempotent_tool(operation = \"create_note:v1\")]`",
            );
        }
        if let Some(second) = function.second_attribute() {
            errors.over(
                second,
                "`#[idempotent_tool]` is applied twice; one function is one operation",
            );
        }
        let sig = &function.sig;
        function.check_qualifiers(errors);
        let context = context(sig, errors);
        let (arguments, passed) = parameters(sig, context.is_some(), errors);
        let output = output(sig, errors);
        let krate = args.krate_path();
        let deadline = args.deadline.unwrap_or(Duration::from_secs(30));
        let external = if let Some(token) = function.external_token() {
            let missing = token.span;
            if let Some((_, key)) = args.effects_outside {
                errors.at(
                    key,
                    "`effects_outside` is for a `fn` that works in a transaction; the effect of an `async fn` is outside anyway: remove this",
                );
            }
            Some(
                args.external
                    .check(deadline, args.mistaken, missing, errors)?,
            )
        } else {
            args.external.refuse(errors);
            None
        };
        Some(Self {
            krate: krate?,
            operation: args.operation?,
            title: args.title,
            retention: args.retention.unwrap_or(30 * DAY),
            tombstone: args.tombstone.unwrap_or(365 * DAY),
            deadline,
            max_result: args.max_result.unwrap_or(1024 * 1024),
            destructive: args.destructive.unwrap_or(true),
            effects_outside: args.effects_outside.is_some_and(|(outside, _)| outside),
            open_world: args.open_world.unwrap_or(external.is_some()),
            authorize: args.authorize,
            external,
            attrs: &function.attrs,
            vis: &function.vis,
            ident: &sig.ident,
            context: context?,
            arguments,
            passed,
            output: output?,
        })
    }
}

/// The type of the first parameter, without its `&`.
fn context<'a>(sig: &'a Signature, errors: &mut Errors) -> Option<&'a Type> {
    let parameter = match sig.inputs.first() {
        None => {
            errors.at(
                sig.paren_token.span.join(),
                "a tool needs its context; write `(tx: &Tx)`",
            );
            return None;
        }
        Some(FnArg::Receiver(receiver)) => {
            let span = match &receiver.kind {
                ReceiverKind::Reference(and, ..) => and.span,
                _ => receiver.self_token.span,
            };
            errors.at(
                span,
                "a tool is a free function and takes no `self`; use `#[state]` for what it needs",
            );
            return None;
        }
        Some(FnArg::Typed(parameter)) => parameter,
    };
    parameter::refuse_cfg(&parameter.attrs, errors);
    if let Some(role) = parameter.attrs.iter().find(|attr| parameter::is_role(attr)) {
        errors.over(
            role,
            "the first parameter is the tool's context; put `tx: &Tx` before this one",
        );
        return None;
    }
    let ty = types::ungroup(&parameter.ty);
    if let Type::Reference(reference) = ty
        && item::is_text(&reference.elem)
    {
        errors.over(
            ty,
            "the first parameter is the tool's context; put `tx: &Tx` before this one",
        );
        return None;
    }
    let Type::Reference(reference) = ty else {
        errors.over(
            &parameter.ty,
            "the first parameter is the tool's context, which is borrowed; write `tx: &Tx` there",
        );
        return None;
    };
    parameter::refuse_helpers(&parameter.attrs, "this is the context; remove it", errors);
    if let Some(mutability) = reference.mutability {
        errors.at(
            mutability.span,
            "the context is shared; write `&Tx` without `mut`",
        );
    }
    if let Some(lifetime) = &reference.lifetime {
        errors.at(
            lifetime.span(),
            "the context is borrowed for the call alone; write `&Tx` without a lifetime",
        );
    }
    types::inspect(&reference.elem, &mut |part, span| match part {
        Part::Reference { .. } | Part::Lifetime | Part::ImplTrait | Part::SelfType => {
            errors.at(span, "the context is a type by its name; write `&Tx`");
        }
        Part::IndexSet => (),
    });
    Some(&reference.elem)
}

/// The parameters after the context.
fn parameters<'a>(
    sig: &'a Signature,
    has_context: bool,
    errors: &mut Errors,
) -> (Arguments<'a>, Vec<Passed<'a>>) {
    let mut passed = Vec::new();
    let mut separate: Vec<Argument> = Vec::new();
    let mut whole: Option<&Type> = None;
    for input in sig.inputs.iter().skip(1) {
        // `self` stands first, so nothing else does.
        let FnArg::Typed(typed) = input else { continue };
        if !has_context && matches!(types::ungroup(&typed.ty), Type::Reference(_)) {
            // It may be the context, which stands in the wrong place.
            continue;
        }
        match parameter::read(typed, errors) {
            None => (),
            Some(Parameter::State(ty)) => passed.push(Passed::State(ty)),
            Some(Parameter::Arguments(_, attr)) if whole.is_some() => {
                errors.over(
                    attr,
                    "a tool takes one `#[arguments]` struct; put all arguments into it",
                );
            }
            Some(Parameter::Arguments(ty, _)) => {
                whole = Some(ty);
                passed.push(Passed::Whole);
            }
            Some(Parameter::Argument(argument)) => {
                let (name, span) = &argument.name;
                if separate.iter().any(|other| other.name.0 == *name) {
                    errors.at(
                        *span,
                        format_args!("two arguments are named `{name}`; rename one"),
                    );
                }
                passed.push(Passed::Field(argument.ident));
                separate.push(argument);
            }
        }
    }
    match whole {
        None => (Arguments::Parameters(separate), passed),
        Some(ty) => {
            if let Some(argument) = separate.first() {
                errors.at(argument.ident.span(), format_args!(
                    "`{}` stands beside an `#[arguments]` struct; move it into the struct, or mark it `#[state]`",
                    argument.ident,
                ));
            }
            (Arguments::Whole(ty), passed)
        }
    }
}

/// The type that the function returns.
fn output<'a>(sig: &'a Signature, errors: &mut Errors) -> Option<&'a Type> {
    let ty = match &sig.output {
        ReturnType::Default => {
            errors.at(
                sig.paren_token.span.close(),
                "a tool can fail and says so; add `-> Result<Output, Failure>`",
            );
            return None;
        }
        ReturnType::Type(_, ty) => ty,
    };
    if let Type::Never(never) = types::ungroup(ty) {
        errors.over(
            never,
            "a tool answers its caller; return `Result<Output, Failure>`",
        );
        return None;
    }
    types::inspect(ty, &mut |part, span| match part {
        Part::Reference { is_static: false } | Part::Lifetime => {
            errors.at(
                span,
                "a tool's result is kept, and this is borrowed; return an owned type",
            );
        }
        Part::ImplTrait => {
            errors.at(
                span,
                "a tool's result has a schema, so its type must be named; `impl Trait` has no name",
            );
        }
        Part::SelfType => errors.at(span, parameter::SELF_TYPE),
        Part::Reference { is_static: true } | Part::IndexSet => (),
    });
    Some(ty)
}
