//! The annotated function: its attributes and signature parsed, its body left as tokens.
//!
//! A half-typed body therefore passes through to the compiler and to editors as it is.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{
    Attribute, FnArg, GenericParam, Ident, Path, Safety, Signature, Token, Type, Visibility,
    parse::{Parse, ParseStream},
};

use crate::{diagnostics::Errors, types};

/// A function with any body.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let is_function = input.peek(Token![fn])
            || input.peek(Token![const]) && !input.peek2(Ident) && !input.peek2(Token![_])
            || input.peek(Token![async])
            || input.peek(Token![unsafe])
            || input.peek(Token![extern]);
        if !is_function {
            return Err(input.error("a tool is a free function; expected `fn`"));
        }
        Ok(Self {
            attrs,
            vis,
            sig: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl Function {
    /// The function as it is compiled: without the attributes that only we understand.
    pub(crate) fn emit(&self) -> TokenStream {
        // Before the user's own attributes, so that theirs win. These lints object to a
        // tool's shape: owned arguments, as many as it takes, a result that may be an error,
        // state by its exact type.
        let mut tokens = quote_spanned! {Span::mixed_site()=>
            #[allow(
                clippy::needless_pass_by_value,
                clippy::too_many_arguments,
                clippy::fn_params_excessive_bools,
                clippy::unnecessary_wraps,
                clippy::missing_const_for_fn,
                clippy::ptr_arg,
            )]
        };
        let attrs = self.attrs.iter().filter(|attr| !is_ours(attr.path()));
        attrs.for_each(|attr| attr.to_tokens(&mut tokens));
        self.vis.to_tokens(&mut tokens);
        let mut sig = self.sig.clone();
        for input in &mut sig.inputs {
            match input {
                FnArg::Typed(parameter) => parameter.attrs.retain(|attr| !is_helper(attr)),
                FnArg::Receiver(receiver) => receiver.attrs.retain(|attr| !is_helper(attr)),
            }
        }
        sig.to_tokens(&mut tokens);
        self.body.to_tokens(&mut tokens);
        tokens
    }

    /// Refuses what makes a function something else than a plain free one.
    pub(crate) fn check_qualifiers(&self, errors: &mut Errors) {
        let sig = &self.sig;
        if let Some(token) = sig.constness {
            errors.at(
                token.span,
                "a tool can't be `const`: it writes to a database; remove this",
            );
        }
        if let Some(token) = sig.asyncness
            && self.external_token().is_none()
        {
            errors.at(
            token.span,
            "a transactional tool can't be `async`: it runs inside one database transaction; write a plain `fn`",
        );
        }
        if sig.asyncness.is_none() && self.context_name().is_some_and(|name| name == "Attempt") {
            errors.at(
                sig.fn_token.span,
                "an external tool is asynchronous; write `async` before this",
            );
        }
        if let Safety::Unsafe(token) = sig.safety {
            errors.at(
            token.span,
            "a tool can't be `unsafe`: the runtime calls it for anyone; put the unsafe part inside",
        );
        }
        if let Some(abi) = &sig.abi {
            errors.over(
                abi,
                "a tool can't be `extern`: the runtime calls it as a Rust function; remove this",
            );
        }
        if let Some(variadic) = &sig.variadic {
            errors.over(
                variadic,
                "a tool's arguments are a fixed contract; name each as a parameter",
            );
        }
        let params = &sig.generics.params;
        if !params.is_empty()
            && params
                .iter()
                .all(|p| matches!(p, GenericParam::Lifetime(_)))
        {
            errors.over(
                &sig.generics,
                "a tool can't have lifetimes: what it takes and returns is owned; remove these",
            );
        } else if !params.is_empty() {
            errors.over(
                &sig.generics,
                "a tool can't be generic: an operation's name means one contract; name the types",
            );
        }
        if let Some(clause) = &sig.generics.where_clause {
            errors.over(
                clause,
                "a tool can't have a `where` clause: it has no parameters to bound; remove it",
            );
        }
    }

    /// The token that makes the function an external tool: `async`, unless its first
    /// parameter is the transaction, or no context at all.
    pub(crate) fn external_token(&self) -> Option<Token![async]> {
        let token = self.sig.asyncness?;
        (self.context_name()? != "Tx").then_some(token)
    }

    /// The name of the type that the first parameter borrows, unless that is text.
    fn context_name(&self) -> Option<&Ident> {
        let Some(FnArg::Typed(parameter)) = self.sig.inputs.first() else {
            return None;
        };
        let Type::Reference(reference) = types::ungroup(&parameter.ty) else {
            return None;
        };
        let Type::Path(path) = types::ungroup(&reference.elem) else {
            return None;
        };
        let name = &path.path.segments.last()?.ident;
        (!is_text(&reference.elem)).then_some(name)
    }

    /// The type of the first parameter, without its `&`, where it can be a context.
    pub(crate) fn context(&self) -> Option<&Type> {
        let Some(FnArg::Typed(parameter)) = self.sig.inputs.first() else {
            return None;
        };
        let Type::Reference(reference) = types::ungroup(&parameter.ty) else {
            return None;
        };
        if parameter.attrs.iter().any(is_helper) {
            return None;
        }
        let mut is_plain = self.sig.generics.params.is_empty() && !is_text(&reference.elem);
        types::inspect(&reference.elem, &mut |_, _| is_plain = false);
        is_plain.then_some(&reference.elem)
    }

    /// A second use of the attribute on the same function.
    pub(crate) fn second_attribute(&self) -> Option<&Attribute> {
        self.attrs.iter().find(|attr| is_ours(attr.path()))
    }
}

/// Whether an attribute on a parameter is for us and unknown to the compiler.
pub(crate) fn is_helper(attr: &Attribute) -> bool {
    ["doc", "schemars", "serde", "arguments", "state"]
        .iter()
        .any(|name| attr.path().is_ident(name))
}

fn is_ours(path: &Path) -> bool {
    path.segments
        .last()
        .is_some_and(|segment| segment.ident == "idempotent_tool")
}

/// Whether a type is what one borrows as an argument, never a context.
pub(crate) fn is_text(ty: &Type) -> bool {
    match types::ungroup(ty) {
        Type::Slice(_) => true,
        Type::Path(path) => path.path.is_ident("str"),
        _ => false,
    }
}
