//! The generated struct of arguments: its schema, its reading, its defaults.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Ident, spanned::Spanned};

use crate::{
    model::{Arguments, Tool},
    parameter::DefaultValue,
};

/// The generated struct, if there is one, and the type of the arguments.
pub(super) fn arguments(tool: &Tool) -> (TokenStream, TokenStream) {
    let parameters = match &tool.arguments {
        Arguments::Parameters(parameters) => parameters,
        Arguments::Whole(ty) => return (TokenStream::new(), ty.to_token_stream()),
    };
    let title = &tool.operation.name;
    let fields = parameters.iter().map(|argument| {
        let (attrs, ident, ty) = (&argument.attrs, argument.ident, argument.ty);
        quote!(#(#attrs)* #ident: #ty)
    });
    let value = quote_spanned!(Span::mixed_site()=> value);
    let read = parameters.iter().enumerate().map(|(number, argument)| {
        let (ident, name, ty) = (argument.ident, &argument.name.0, argument.ty);
        let read = match (&argument.reader, &argument.default) {
            (Some(reader), _) => quote!(argument_with::<#ty>(#value, #name, #reader)),
            (None, Some(_)) => {
                let default = default_name(number);
                quote!(argument_or::<#ty>(#value, #name, #default))
            }
            (None, None) => quote!(argument::<#ty>(#value, #name)),
        };
        quote!(#ident: __idempotent_tool::#read?)
    });
    let default_functions = parameters
        .iter()
        .enumerate()
        .filter_map(|(number, argument)| {
            let (name, ty) = (default_name(number), argument.ty);
            let value = match argument.default.as_ref()? {
                DefaultValue::OfType => quote!(<#ty as ::core::default::Default>::default()),
                DefaultValue::Function(path) => quote_spanned!(path.span()=> #path()),
            };
            Some(quote!(fn #name() -> #ty { #value }))
        });
    let generated = quote! {
        #(#default_functions)*

        #[derive(__idempotent_tool::schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(crate = "__idempotent_tool::schemars", rename = #title)]
        #[allow(unreachable_pub, missing_debug_implementations, clippy::arbitrary_source_item_ordering)]
        pub struct __IdempotentToolArguments { #(#fields,)* }

        #[automatically_derived]
        impl __idempotent_tool::ToolArguments for __IdempotentToolArguments {
            #[allow(unused_variables)]
            fn from_json(#value: &__idempotent_tool::Value) -> __idempotent_tool::Result<Self> {
                ::core::result::Result::Ok(Self { #(#read,)* })
            }
            fn json_schema() -> __idempotent_tool::Schema {
                __idempotent_tool::schema::<Self>()
            }
        }
    };
    (generated, quote!(__IdempotentToolArguments))
}

/// The function that makes the default of this parameter, so that it is written once.
fn default_name(number: usize) -> Ident {
    format_ident!("__idempotent_tool_default_{number}")
}

/// The method that lists the defaults.
pub(super) fn defaults(tool: &Tool) -> Option<TokenStream> {
    let Arguments::Parameters(parameters) = &tool.arguments else {
        return None;
    };
    let defaults: Vec<TokenStream> = parameters
        .iter()
        .enumerate()
        .filter(|(_, argument)| argument.default.is_some())
        .map(|(number, argument)| {
            let (function, name, ty) = (default_name(number), &argument.name.0, argument.ty);
            let json = quote!(__idempotent_tool::default_json::<#ty>(&#function()));
            quote!(__idempotent_tool::ArgumentDefault { name: #name, make: || #json })
        })
        .collect();
    super::list("defaults", &quote!(ArgumentDefault), &defaults)
}
