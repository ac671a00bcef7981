//! The grammar of the attribute: `key = value`, each key once, in any order.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{
    Expr, ExprLit, Ident, Lit, LitStr, Path, Token,
    ext::IdentExt,
    parse::{ParseStream, Parser},
};

use crate::{
    diagnostics::{Errors, unknown_argument},
    literal::{self, Operation},
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
    pub(crate) authorize: Option<Path>,
    pub(crate) krate: Option<Path>,
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
    "authorize",
    "crate",
];

/// One argument as written. A mistake in its value is recorded already.
struct Argument {
    key: Ident,
    value: Option<Expr>,
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
            if let Some(Err(error)) = value.map(|value| args.set(&name, &ungroup(value))) {
                local.push(error);
            }
        }
        args.mistaken = !local.is_empty();
        for error in local {
            errors.push(error);
        }
        args
    }

    fn set(&mut self, name: &str, value: &Expr) -> syn::Result<()> {
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
            "authorize" => self.authorize = Some(authorizer(value)?),
            "crate" => self.krate = Some(crate_path(value)?),
            _ => (),
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
            value: Some(value),
        }),
        Err(error) => Err((Some(key), error)),
    }
}

/// How an argument is written.
fn form(key: &str) -> &'static str {
    match key {
        "operation" => "operation = \"create_note:v1\"",
        "retention" => "retention = \"30d\"",
        "tombstone" => "tombstone = \"365d\"",
        "deadline" => "deadline = \"30s\"",
        "max_result" => "max_result = \"1MiB\"",
        "title" => "title = \"Create note\"",
        "destructive" => "destructive = false",
        "open_world" => "open_world = true",
        "authorize" => "authorize = path::to::function",
        "crate" => "crate = ::path::to::idempotent_tool",
        _ => "key = value",
    }
}

fn skip_to_comma(input: ParseStream) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            return;
        }
    }
}

/// The expression in the invisible groups that `macro_rules` wraps around its fragments.
fn ungroup(mut value: Expr) -> Expr {
    while let Expr::Group(group) = value {
        value = *group.expr;
    }
    value
}

fn text<T>(
    value: &Expr,
    name: &str,
    example: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> syn::Result<T> {
    let literal = string(value, &format!("{name} = \"{example}\""))?;
    read(&literal.value()).map_err(|message| syn::Error::new(literal.span(), message))
}

fn string<'a>(value: &'a Expr, example: &str) -> syn::Result<&'a LitStr> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(literal),
            ..
        }) if literal.suffix().is_empty() => Ok(literal),
        _ => Err(wrong(
            value,
            format!("expected a string literal, such as `{example}`"),
        )),
    }
}

fn title(value: &Expr) -> syn::Result<LitStr> {
    let literal = string(value, form("title"))?;
    if literal.value().trim().is_empty() {
        return Err(syn::Error::new(
            literal.span(),
            "the title is empty; leave `title` out or say one",
        ));
    }
    Ok(literal.clone())
}

fn size(value: &Expr) -> syn::Result<u64> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Int(literal),
            ..
        }) if literal.suffix().is_empty() => literal::check_size(literal.base10_parse().ok())
            .map_err(|message| syn::Error::new(literal.span(), message)),
        Expr::Lit(ExprLit {
            lit: Lit::Str(_), ..
        }) => text(value, "max_result", "1MiB", literal::size),
        _ => Err(wrong(
            value,
            "expected a size, such as `max_result = \"64KiB\"`, or a number of bytes".to_owned(),
        )),
    }
}

fn boolean(value: &Expr, name: &str) -> syn::Result<bool> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Bool(literal),
            ..
        }) => Ok(literal.value),
        _ => Err(wrong(
            value,
            format!("expected `{name} = true` or `{name} = false`"),
        )),
    }
}

fn authorizer(value: &Expr) -> syn::Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        _ => Err(wrong(
            value,
            "expected the path of an authorizer, such as `authorize = may_create_notes`".to_owned(),
        )),
    }
}

fn crate_path(value: &Expr) -> syn::Result<Path> {
    let Expr::Path(path) = value else {
        return Err(wrong(
            value,
            "expected a path, such as `crate = ::path::to::idempotent_tool`".to_owned(),
        ));
    };
    let path = &path.path;
    let first = path
        .segments
        .first()
        .map(|segment| segment.ident.to_string())
        .unwrap_or_default();
    if path.leading_colon.is_none() && first != "crate" && first != "$crate" {
        return Err(wrong(
            value,
            "the path must begin with `::` or `crate`, so that it means the same in every module"
                .to_owned(),
        ));
    }
    Ok(path.clone())
}

fn wrong(value: &Expr, message: String) -> syn::Error {
    match value {
        // A verbatim value may have no tokens to point at.
        Expr::Verbatim(tokens) if tokens.is_empty() => syn::Error::new(Span::call_site(), message),
        _ => syn::Error::new_spanned(value, message),
    }
}
