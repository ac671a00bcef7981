//! The annotated function: its attributes and signature parsed, its body left as tokens.
//!
//! A half-typed body therefore passes through to the compiler and to editors as it is.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{
    Attribute, FnArg, Ident, Path, Signature, Token, Visibility,
    parse::{Parse, ParseStream},
};

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
        // tool's shape: owned arguments, as many as it takes, a result that may be an error.
        let mut tokens = quote_spanned! {Span::mixed_site()=>
            #[allow(
                clippy::needless_pass_by_value,
                clippy::too_many_arguments,
                clippy::fn_params_excessive_bools,
                clippy::unnecessary_wraps,
                clippy::missing_const_for_fn,
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
