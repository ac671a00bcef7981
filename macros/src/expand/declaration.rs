//! What the attribute and the doc comment say.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta, spanned::Spanned};

use crate::{
    external::{External, Recovery},
    model::Tool,
};

/// What the attribute and the doc comment say, as an expression and what it needs.
pub(super) fn declaration(tool: &Tool) -> TokenStream {
    let Tool {
        operation,
        max_result,
        destructive,
        open_world,
        effects_outside,
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
    let external = option(tool.external.as_ref().map(external));
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
            effects_outside: #effects_outside,
            authorize: #authorize,
            external: #external,
            module: ::core::module_path!(),
        }
    }
}

fn external(external: &External) -> TokenStream {
    let recovery = match &external.recovery {
        Recovery::ProviderKey {
            window,
            instruction,
        } => {
            let window = duration(*window);
            let instruction = option(instruction.as_ref());
            quote!(ProviderKey { window: #window, instruction: #instruction })
        }
        Recovery::Reconcile {
            path,
            settle,
            instruction,
        } => {
            let instruction = option(instruction.as_ref());
            let settle = duration(*settle);
            let inquiry = quote_spanned!(Span::mixed_site()=> inquiry);
            // Spanned at the path, so that another answer than the tool's is told there.
            let asked = quote_spanned!(path.span()=> async move { #path(&#inquiry).await });
            quote! {
                Reconcile {
                    ask: __idempotent_tool::Ask::new(|#inquiry| {
                        __idempotent_tool::answer::<Self::Returned, _, _>(#asked)
                    }),
                    settle: #settle,
                    instruction: #instruction,
                }
            }
        }
        Recovery::Inspect { instruction } => quote!(Inspect { instruction: #instruction }),
    };
    let max_attempts = external.max_attempts;
    let keep_request = external.keep_request;
    let attempt_timeout = duration(external.attempt_timeout);
    let wait = duration(external.wait);
    let backoff = duration(external.backoff);
    quote! {
        __idempotent_tool::ExternalDeclaration {
            recovery: __idempotent_tool::RecoveryDeclaration::#recovery,
            attempt_timeout: #attempt_timeout,
            max_attempts: #max_attempts,
            wait: #wait,
            backoff: #backoff,
            keep_request: #keep_request,
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
