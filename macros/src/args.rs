//! The grammar of the attribute: `key = value`, each key once, in any order.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Expr, Ident, LitStr, Path, Token,
    ext::IdentExt,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
    token,
};

use crate::{
    diagnostics::{Errors, unknown_argument},
    external,
    literal::{self, Operation},
    value::{authorizer, boolean, crate_path, form, size, text, title, ungroup},
};

/// What the attribute's arguments say; `None` where they say nothing.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) operation: Option<Operation>,
    pub(crate) retention: Option<Duration>,
    pub(crate) tombstone: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) max_result: Option<u64>,
    pub(crate) title: Option<LitStr>,
    pub(crate) destructive: Option<bool>,
    pub(crate) open_world: Option<bool>,
    /// With the key, to say where it doesn't belong.
    pub(crate) effects_outside: Option<(bool, Span)>,
    pub(crate) authorize: Option<Path>,
    pub(crate) external: external::Given,
    krate: Option<Path>,
    /// Whether `crate` was given, even if its value was mistaken.
    krate_given: bool,
    /// Whether a mistake was found: what is missing may then be what was mistaken.
    pub(crate) mistaken: bool,
}

const KNOWN: &[&str] = &[
    "operation",
    "retention",
    "tombstone",
    "deadline",
    "max_result",
    "title",
    "destructive",
    "open_world",
    "effects_outside",
    "authorize",
    "provider_key",
    "reconcile",
    "inspect",
    "attempt_timeout",
    "max_attempts",
    "wait",
    "backoff",
    "keep_request",
    "crate",
];

/// One argument as written. A mistake in its value is recorded already.
struct Argument {
    key: Ident,
    value: Option<Value>,
}

/// How an argument's value is written.
enum Value {
    /// `key = value`
    Assigned(Box<Expr>),
    /// `key(values)`
    Called(Punctuated<Expr, Token![,]>),
}

impl Args {
    /// Reads the attribute's arguments; mistakes are recorded and passed over.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let mut local = Vec::new();
        let parsed = (|input: ParseStream| Ok(parse_arguments(input, &mut local))).parse2(tokens);
        let mut seen: Vec<String> = Vec::new();
        for Argument { key, value } in parsed.unwrap_or_default() {
            let name = key.unraw().to_string();
            if !KNOWN.contains(&name.as_str()) {
                local.push(syn::Error::new(key.span(), unknown_argument(&key, KNOWN)));
                continue;
            }
            if seen.contains(&name) {
                local.push(syn::Error::new(
                    key.span(),
                    format!("duplicate argument `{name}`; keep one"),
                ));
                continue;
            }
            seen.push(name.clone());
            args.krate_given |= name == "crate";
            let set = match value {
                None => Ok(()),
                Some(Value::Assigned(value)) => args.set(&key, &name, &ungroup(*value)),
                Some(Value::Called(values)) => args.external.set_call(&key, &values),
            };
            if let Err(error) = set {
                local.push(error);
            }
        }
        args.mistaken = !local.is_empty();
        for error in local {
            errors.push(error);
        }
        args
    }

    /// Where `idempotent-tool` is found; `None` if that was mistaken.
    pub(crate) fn krate_path(&self) -> Option<TokenStream> {
        match &self.krate {
            Some(path) => Some(path.to_token_stream()),
            None if self.krate_given => None,
            None => Some(quote!(::idempotent_tool)),
        }
    }

    fn set(&mut self, key: &Ident, name: &str, value: &Expr) -> syn::Result<()> {
        match name {
            "operation" => {
                self.operation = Some(text(value, name, "create_note:v1", literal::operation)?);
            }
            "retention" => self.retention = Some(text(value, name, "30d", literal::duration)?),
            "tombstone" => self.tombstone = Some(text(value, name, "365d", literal::duration)?),
            "deadline" => self.deadline = Some(text(value, name, "30s", literal::duration)?),
            "max_result" => self.max_result = Some(size(value)?),
            "title" => self.title = Some(title(value)?),
            "destructive" => self.destructive = Some(boolean(value, name)?),
            "open_world" => self.open_world = Some(boolean(value, name)?),
            "effects_outside" => {
                self.effects_outside = Some((boolean(value, name)?, key.span()));
            }
            "authorize" => self.authorize = Some(authorizer(value)?),
            "crate" => self.krate = Some(crate_path(value)?),
            _ => self.external.set(key, name, value)?,
        }
        Ok(())
    }
}

fn parse_arguments(input: ParseStream, errors: &mut Vec<syn::Error>) -> Vec<Argument> {
    let mut arguments = Vec::new();
    while !input.is_empty() {
        match parse_argument(input) {
            Ok(argument) => arguments.push(argument),
            Err((key, error)) => {
                // The key was given, so that it isn't missing as well.
                arguments.extend(key.map(|key| Argument { key, value: None }));
                errors.push(error);
                skip_to_comma(input);
            }
        }
        // A failure here is impossible: the input is at a comma or at its end.
        let _: syn::Result<Option<Token![,]>> = input.parse();
    }
    arguments
}

fn parse_argument(input: ParseStream) -> Result<Argument, (Option<Ident>, syn::Error)> {
    let key = Ident::parse_any(input).map_err(|error| {
        (
            None,
            syn::Error::new(
                error.span(),
                "expected an argument, such as `retention = \"30d\"`",
            ),
        )
    })?;
    let known = KNOWN.contains(&key.to_string().as_str());
    if external::is_call(&key.to_string()) && input.peek(token::Paren) {
        return match external::parse_call(&key, input) {
            Ok(values) => Ok(Argument {
                key,
                value: Some(Value::Called(values)),
            }),
            Err(error) => Err((Some(key), error)),
        };
    }
    if !input.peek(Token![=]) {
        let error = if known {
            let form = form(&key.to_string());
            syn::Error::new(key.span(), format!("`{key}` needs a value; write `{form}`"))
        } else {
            syn::Error::new(key.span(), unknown_argument(&key, KNOWN))
        };
        return Err((known.then_some(key), error));
    }
    let value = input.parse::<Token![=]>().and_then(|equals| {
        if input.is_empty() || input.peek(Token![,]) {
            let form = form(&key.to_string());
            return Err(syn::Error::new(
                equals.span,
                format!("the value of `{key}` is missing; write `{form}`"),
            ));
        }
        let value = input.parse::<Expr>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Ok(value);
        }
        Err(input.error("expected `,` between two arguments"))
    });
    match value {
        Ok(value) => Ok(Argument {
            key,
            value: Some(Value::Assigned(Box::new(value))),
        }),
        Err(error) => Err((Some(key), error)),
    }
}

fn skip_to_comma(input: ParseStream) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            return;
        }
    }
}
