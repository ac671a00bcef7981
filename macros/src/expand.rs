//! From a checked tool to tokens. Nothing here can fail.

mod arguments;
mod declaration;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, Ident, Visibility, spanned::Spanned};

use crate::{
    args::Args,
    diagnostics,
    item::Function,
    model::{Passed, Tool},
};

/// Expands the attribute; on mistakes, to the user's function and the errors.
///
/// The function survives so that editors keep completing inside it and its callers see no
/// second, misleading "cannot find function".
pub(crate) fn idempotent_tool(args: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let mut output = item;
            output.extend(error.into_compile_error());
            return output;
        }
    };
    let mut output = function.emit();
    let mut krate = None;
    let tool = diagnostics::collect(|errors| {
        let args = Args::parse(args, errors);
        krate = args.krate_path();
        Tool::new(args, &function, errors)
    });
    output.extend(match tool {
        Ok(tool) => expand(&tool),
        Err(error) => {
            let stand_in = krate.map(|krate| stand_in(&function, &krate));
            [stand_in, Some(error.into_compile_error())]
                .into_iter()
                .flatten()
                .collect()
        }
    });
    output
}

/// The type of a function that is no tool, so that where it is registered is no mistake.
///
/// It stands in for a tool as far as its context can be told; it is compiled and never run.
fn stand_in(function: &Function, krate: &TokenStream) -> TokenStream {
    let Some(context) = function.context() else {
        return TokenStream::new();
    };
    let ident = &function.sig.ident;
    let cfgs = cfgs(&function.attrs);
    let named = named(&function.vis, ident);
    let asyncness = function.external_token();
    let (kind, definition, error) = if asyncness.is_some() {
        (
            quote!(AsyncFn),
            quote!(AsyncDefinition),
            quote!(AttemptError),
        )
    } else {
        (quote!(PlainFn), quote!(PlainDefinition), quote!(Failure))
    };
    quote! {
        #(#cfgs)*
        #named
        #(#cfgs)*
        const _: () = {
            use #krate::__private as __idempotent_tool;
            impl __idempotent_tool::Definition for #ident {
                type Kind = __idempotent_tool::#kind;
                type Context = #context;
                type Arguments = ();
                type Returned = ::core::result::Result<(), __idempotent_tool::#error>;
                fn declaration() -> __idempotent_tool::Declaration {
                    loop {}
                }
            }
            impl __idempotent_tool::#definition for #ident {
                #asyncness fn call(
                    _: &Self::Context,
                    _: &__idempotent_tool::State,
                    _: Self::Arguments,
                ) -> ::core::result::Result<Self::Returned, __idempotent_tool::Failure> {
                    loop {}
                }
            }
        };
    }
}

/// The type of the function's name. It has braces, so that it is in no value's way.
fn named(vis: &Visibility, ident: &Ident) -> TokenStream {
    quote! {
        #[doc(hidden)]
        #[allow(
            nonstandard_style,
            missing_debug_implementations,
            missing_copy_implementations,
            unreachable_pub
        )]
        #[non_exhaustive]
        #vis struct #ident {}
    }
}

/// The conditions under which the function exists.
fn cfgs(attrs: &[Attribute]) -> Vec<&Attribute> {
    attrs
        .iter()
        .filter(|attr| attr.path().is_ident("cfg"))
        .collect()
}

// Input:
//     /// Adds a note.
//     #[idempotent_tool(operation = "add_note:v1")]
//     pub fn add(tx: &Tx, #[serde(default)] body: String, #[state] http: &Client) -> Result<Note, Failure> { … }
//
// Output, after the function:
//     #[doc(hidden)]
//     pub struct add {}
//     const _: () = { ::idempotent_tool::__private::expansion! {
//         use ::idempotent_tool::__private as __idempotent_tool;
//         use __idempotent_tool::prelude::*;
//         fn __idempotent_tool_default_0() -> String { String::default() }
//         #[derive(JsonSchema)]
//         pub struct __IdempotentToolArguments { #[serde(default)] body: String }
//         impl __idempotent_tool::ToolArguments for __IdempotentToolArguments {
//             fn from_json(value: &Value) -> Result<Self> {
//                 Ok(Self { body: argument_or::<String>(value, "body", __idempotent_tool_default_0)? })
//             }
//             fn json_schema() -> Schema { schema::<Self>() }
//         }
//         impl __idempotent_tool::Definition for add {
//             type Kind = PlainFn;
//             type Context = Tx;
//             type Arguments = __IdempotentToolArguments;
//             type Returned = Result<Note, Failure>;
//             fn declaration() -> Declaration { Declaration { name: "add_note", … } }
//             fn defaults() -> Vec<ArgumentDefault> { list([ArgumentDefault { name: "body", … }]) }
//             fn needs() -> Vec<Need> { list([Need::of::<Client>()]) }
//         }
//         impl __idempotent_tool::PlainDefinition for add {
//             fn call(context: &Tx, state: &State, arguments: Self::Arguments) -> Result<Self::Returned, Failure> {
//                 Ok(add(context, arguments.body, state.get::<Client>()?))
//             }
//         }
//     } };
fn expand(tool: &Tool) -> TokenStream {
    let krate = &tool.krate;
    let cfgs = cfgs(tool.attrs);
    let named = named(tool.vis, tool.ident);
    let (ident, context, output) = (tool.ident, tool.context, tool.output);
    let (arguments_struct, arguments) = arguments::arguments(tool);
    let type_context = quote_spanned!(context.span()=> type Context = #context;);
    let type_returned = quote_spanned!(output.span()=> type Returned = #output;);
    let declaration = declaration::declaration(tool);
    let defaults = arguments::defaults(tool);
    let needs = needs(tool);
    let call = call(tool);
    let (kind, definition) = if tool.external.is_some() {
        (quote!(AsyncFn), quote!(AsyncDefinition))
    } else {
        (quote!(PlainFn), quote!(PlainDefinition))
    };
    quote! {
        #(#cfgs)*
        #named

        #(#cfgs)*
        #[allow(deprecated, unused_imports, unused_qualifications)]
        const _: () = {
            #krate::__private::expansion! {
                use #krate::__private as __idempotent_tool;
                use __idempotent_tool::prelude::*;

                #arguments_struct

                #[automatically_derived]
                impl __idempotent_tool::Definition for #ident {
                    type Kind = __idempotent_tool::#kind;
                    #type_context
                    type Arguments = #arguments;
                    #type_returned
                    fn declaration() -> __idempotent_tool::Declaration {
                        #declaration
                    }
                    #defaults
                    #needs
                }

                #[automatically_derived]
                impl __idempotent_tool::#definition for #ident {
                    #call
                }
            }
        };
    }
}

fn needs(tool: &Tool) -> Option<TokenStream> {
    let need_of = |passed: &Passed| match passed {
        Passed::State(ty) => Some(quote!(__idempotent_tool::Need::of::<#ty>())),
        Passed::Field(_) | Passed::Whole => None,
    };
    let needs: Vec<TokenStream> = tool.passed.iter().filter_map(need_of).collect();
    list("needs", &quote!(Need), &needs)
}

/// The method that lists `items`, unless there are none, which is what the trait says.
fn list(method: &str, item: &TokenStream, items: &[TokenStream]) -> Option<TokenStream> {
    let method = Ident::new(method, Span::call_site());
    (!items.is_empty()).then(|| {
        quote! {
            fn #method() -> __idempotent_tool::Vec<__idempotent_tool::#item> {
                __idempotent_tool::list([#(#items),*])
            }
        }
    })
}

/// The call of the user's function.
fn call(tool: &Tool) -> TokenStream {
    let ident = tool.ident;
    // Names of our own must not meet the tool's name.
    let local = Span::mixed_site();
    let context = quote_spanned!(local=> context);
    let state = quote_spanned!(local=> state);
    let arguments = quote_spanned!(local=> arguments);
    let passed = tool.passed.iter().map(|passed| match passed {
        Passed::Field(field) => quote!(#arguments.#field),
        Passed::Whole => arguments.clone(),
        Passed::State(ty) => quote!(__idempotent_tool::State::get::<#ty>(#state)?),
    });
    let asyncness = tool.external.as_ref().map(|_| quote!(async));
    let awaited = tool.external.as_ref().map(|_| quote!(.await));
    quote! {
        #[allow(unused_variables)]
        #asyncness fn call(
            #context: &Self::Context,
            #state: &__idempotent_tool::State,
            #arguments: Self::Arguments,
        ) -> ::core::result::Result<Self::Returned, __idempotent_tool::Failure> {
            ::core::result::Result::Ok(#ident(#context, #(#passed),*) #awaited)
        }
    }
}
