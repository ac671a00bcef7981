//! The generated struct of arguments: its schema, its reading, its defaults.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

use crate::{
    model::{Arguments, Tool},
    parameter::{Argument, DefaultValue},
};

/// The generated struct, if there is one, and the type of the arguments.
pub(super) fn arguments(tool: &Tool) -> (TokenStream, TokenStream) {
    let parameters = match &tool.arguments {
        Arguments::Parameters(parameters) => parameters,
        Arguments::Whole(ty) => return (TokenStream::new(), ty.to_token_stream()),
    };
    let title = &tool.operation.name;
    let fields = parameters.iter().map(
        |Argument {
             attrs, ident, ty, ..
         }| { quote!(#(#attrs)* #ident: #ty) },
    );
    let value = quote_spanned!(Span::mixed_site()=> value);
    let read = parameters.iter().map(|argument| {
        let Argument {
            ident,
            name: (name, _),
            ty,
            ..
        } = argument;
        let read = match (&argument.reader, default_value(argument)) {
            (Some(reader), _) => quote!(argument_with::<#ty>(#value, #name, #reader)),
            (None, Some(default)) => quote!(argument_or::<#ty>(#value, #name, || #default)),
            (None, None) => quote!(argument::<#ty>(#value, #name)),
        };
        quote!(#ident: __idempotent_tool::#read?)
    });
    let generated = quote! {
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

fn default_value(argument: &Argument) -> Option<TokenStream> {
    let ty = argument.ty;
    Some(match argument.default.as_ref()? {
        DefaultValue::OfType => quote!(<#ty as ::core::default::Default>::default()),
        DefaultValue::Function(path) => quote!(#path()),
    })
}

/// The method that lists the defaults.
pub(super) fn defaults(tool: &Tool) -> Option<TokenStream> {
    let Arguments::Parameters(parameters) = &tool.arguments else {
        return None;
    };
    let default_of = |argument: &Argument| {
        let (name, ty) = (&argument.name.0, argument.ty);
        let value = default_value(argument)?;
        let json = quote!(__idempotent_tool::default_json::<#ty>(&#value));
        Some(quote!(__idempotent_tool::ArgumentDefault { name: #name, make: || #json }))
    };
    let defaults: Vec<TokenStream> = parameters.iter().filter_map(default_of).collect();
    super::list("defaults", &quote!(ArgumentDefault), &defaults)
}
