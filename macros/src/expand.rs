//! From a checked tool to tokens. Nothing here can fail.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta, Path, spanned::Spanned};

use crate::{
    args::Args,
    diagnostics,
    item::Function,
    model::{Arguments, Passed, Tool},
    parameter::{Argument, DefaultValue},
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
    let tool = diagnostics::collect(|errors| {
        let args = Args::parse(args, errors);
        Tool::new(args, &function, errors)
    });
    output.extend(match tool {
        Ok(tool) => expand(&tool),
        Err(error) => error.into_compile_error(),
    });
    output
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
//         #[derive(JsonSchema)]
//         pub struct __IdempotentToolArguments { #[serde(default)] body: String }
//         impl __idempotent_tool::ToolArguments for __IdempotentToolArguments {
//             fn from_json(value: &Value) -> Result<Self> {
//                 Ok(Self { body: argument_or::<String>(value, "body", || String::default())? })
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
    let krate = tool
        .krate
        .as_ref()
        .map_or_else(|| quote!(::idempotent_tool), Path::to_token_stream);
    let cfgs: Vec<&Attribute> = tool
        .attrs
        .iter()
        .filter(|attr| attr.path().is_ident("cfg"))
        .collect();
    let (vis, ident, context, output) = (tool.vis, tool.ident, tool.context, tool.output);
    let (arguments_struct, arguments) = arguments(tool);
    let type_context = quote_spanned!(context.span()=> type Context = #context;);
    let type_returned = quote_spanned!(output.span()=> type Returned = #output;);
    let declaration = declaration(tool);
    let defaults = defaults(tool);
    let needs = tool.passed.iter().filter_map(|passed| match passed {
        Passed::State(ty) => Some(quote_spanned!(ty.span()=> __idempotent_tool::Need::of::<#ty>())),
        Passed::Field(_) | Passed::Whole => None,
    });
    let call = call(tool);
    quote! {
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(nonstandard_style, missing_debug_implementations, missing_copy_implementations, unreachable_pub)]
        #[non_exhaustive]
        #vis struct #ident {}

        #(#cfgs)*
        #[doc(hidden)]
        #[allow(deprecated, unused_imports, unused_qualifications)]
        const _: () = {
            #krate::__private::expansion! {
                use #krate::__private as __idempotent_tool;
                use __idempotent_tool::prelude::*;

                #arguments_struct

                #[automatically_derived]
                impl __idempotent_tool::Definition for #ident {
                    type Kind = __idempotent_tool::PlainFn;
                    #type_context
                    type Arguments = #arguments;
                    #type_returned
                    fn declaration() -> __idempotent_tool::Declaration {
                        #declaration
                    }
                    fn defaults() -> __idempotent_tool::Vec<__idempotent_tool::ArgumentDefault> {
                        __idempotent_tool::list([#(#defaults),*])
                    }
                    fn needs() -> __idempotent_tool::Vec<__idempotent_tool::Need> {
                        __idempotent_tool::list([#(#needs),*])
                    }
                }

                #[automatically_derived]
                impl __idempotent_tool::PlainDefinition for #ident {
                    #call
                }
            }
        };
    }
}

/// The generated struct, if there is one, and the type of the arguments.
fn arguments(tool: &Tool) -> (TokenStream, TokenStream) {
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
        quote_spanned!(ty.span()=> #ident: __idempotent_tool::#read?)
    });
    let generated = quote! {
        #[derive(__idempotent_tool::schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(crate = "__idempotent_tool::schemars", rename = #title)]
        #[allow(unreachable_pub, missing_debug_implementations)]
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
        DefaultValue::OfType => {
            quote_spanned!(ty.span()=> <#ty as ::core::default::Default>::default())
        }
        DefaultValue::Function(path) => quote!(#path()),
    })
}

fn declaration(tool: &Tool) -> TokenStream {
    let Tool {
        operation,
        max_result,
        destructive,
        open_world,
        ..
    } = tool;
    let (name, version) = (&operation.name, operation.version);
    let title = option(tool.title.as_ref());
    let authorizer = tool.authorize.as_ref().map(|path| {
        // An item, so that a function of another signature is a plain mismatch at its path.
        quote!(const __IDEMPOTENT_TOOL_AUTHORIZER: __idempotent_tool::AuthorizeFn = #path;)
    });
    let authorize = option(
        authorizer
            .as_ref()
            .map(|_| quote!(__IDEMPOTENT_TOOL_AUTHORIZER)),
    );
    let description = description(tool.attrs);
    let retention = duration(tool.retention);
    let tombstone = duration(tool.tombstone);
    let deadline = duration(tool.deadline);
    quote! {
        #authorizer
        __idempotent_tool::Declaration {
            name: #name,
            version: #version,
            title: #title,
            description: #description,
            retention: #retention,
            tombstone: #tombstone,
            deadline: #deadline,
            max_result: #max_result,
            destructive: #destructive,
            open_world: #open_world,
            authorize: #authorize,
            module: ::core::module_path!(),
        }
    }
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    value.map_or_else(
        || quote!(::core::option::Option::None),
        |value| quote!(::core::option::Option::Some(#value)),
    )
}

fn duration(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}

/// The doc comment as one string: its literal lines without their common indentation, its
/// other expressions, such as `include_str!`, as they are.
fn description(attrs: &[Attribute]) -> TokenStream {
    let mut lines: Vec<Result<String, &Expr>> = Vec::new();
    for attr in attrs {
        let Meta::NameValue(pair) = &attr.meta else {
            continue;
        };
        if !pair.path.is_ident("doc") {
            continue;
        }
        match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => {
                lines.extend(text.value().split('\n').map(|line| Ok(line.to_owned())));
            }
            other => lines.push(Err(other)),
        }
    }
    let indentation = lines
        .iter()
        .filter_map(|line| line.as_ref().ok())
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or_default();
    let mut pieces: Vec<TokenStream> = Vec::new();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        match line {
            Ok(line) => text.push_str(line.get(indentation..).unwrap_or_default().trim_end()),
            Err(expression) => {
                let before = LitStr::new(&std::mem::take(&mut text), Span::call_site());
                pieces.push(quote!(#before));
                pieces.push(expression.to_token_stream());
            }
        }
    }
    let last = LitStr::new(text.trim_end(), Span::call_site());
    if pieces.is_empty() {
        quote!(#last)
    } else {
        quote!(::core::concat!(#(#pieces,)* #last))
    }
}

fn defaults(tool: &Tool) -> Vec<TokenStream> {
    let Arguments::Parameters(parameters) = &tool.arguments else {
        return Vec::new();
    };
    let default_of = |argument: &Argument| {
        let (name, ty) = (&argument.name.0, argument.ty);
        let value = default_value(argument)?;
        let json = quote_spanned!(ty.span()=> __idempotent_tool::default_json::<#ty>(&#value));
        Some(quote!(__idempotent_tool::ArgumentDefault { name: #name, make: || #json }))
    };
    parameters.iter().filter_map(default_of).collect()
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
        Passed::State(ty) => {
            quote_spanned!(ty.span()=> __idempotent_tool::State::get::<#ty>(#state)?)
        }
    });
    quote! {
        #[allow(unused_variables)]
        fn call(
            #context: &Self::Context,
            #state: &__idempotent_tool::State,
            #arguments: Self::Arguments,
        ) -> ::core::result::Result<Self::Returned, __idempotent_tool::Failure> {
            ::core::result::Result::Ok(#ident(#context, #(#passed),*))
        }
    }
}
