//! The values of the attribute's arguments, by kind.

use proc_macro2::Span;
use syn::{Expr, ExprLit, Lit, LitStr, Path};

use crate::literal;

/// How an argument is written.
pub(crate) fn form(key: &str) -> &'static str {
    match key {
        "operation" => "operation = \"create_note:v1\"",
        "retention" => "retention = \"30d\"",
        "tombstone" => "tombstone = \"365d\"",
        "deadline" => "deadline = \"30s\"",
        "max_result" => "max_result = \"1MiB\"",
        "title" => "title = \"Create note\"",
        "destructive" => "destructive = false",
        "open_world" => "open_world = true",
        "effects_outside" => "effects_outside = true",
        "provider_key" => "provider_key(window = \"24h\")",
        "reconcile" => "reconcile(path::to::function, settle = \"30s\")",
        "inspect" => "inspect = \"what to check, and where\"",
        "attempt_timeout" => "attempt_timeout = \"8s\"",
        "max_attempts" => "max_attempts = 3",
        "wait" => "wait = \"5s\"",
        "backoff" => "backoff = \"200ms\"",
        "keep_request" => "keep_request = true",
        "authorize" => "authorize = path::to::function",
        "crate" => "crate = ::path::to::idempotent_tool",
        _ => "key = value",
    }
}

/// The expression in the invisible groups that `macro_rules` wraps around its fragments.
pub(crate) fn ungroup(mut value: Expr) -> Expr {
    while let Expr::Group(group) = value {
        value = *group.expr;
    }
    value
}

pub(crate) fn text<T>(
    value: &Expr,
    name: &str,
    example: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> syn::Result<T> {
    let literal = string(value, &format!("{name} = \"{example}\""))?;
    read(&literal.value()).map_err(|message| syn::Error::new(literal.span(), message))
}

pub(crate) fn string<'a>(value: &'a Expr, example: &str) -> syn::Result<&'a LitStr> {
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

pub(crate) fn title(value: &Expr) -> syn::Result<LitStr> {
    let literal = string(value, form("title"))?;
    if literal.value().trim().is_empty() {
        return Err(syn::Error::new(
            literal.span(),
            "the title is empty; leave `title` out or say one",
        ));
    }
    Ok(literal.clone())
}

pub(crate) fn size(value: &Expr) -> syn::Result<u64> {
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

pub(crate) fn boolean(value: &Expr, name: &str) -> syn::Result<bool> {
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

pub(crate) fn authorizer(value: &Expr) -> syn::Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        _ => Err(wrong(
            value,
            "expected the path of an authorizer, such as `authorize = may_create_notes`".to_owned(),
        )),
    }
}

pub(crate) fn crate_path(value: &Expr) -> syn::Result<Path> {
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
            "a relative path means something else in another module; begin it with `::` or `crate`"
                .to_owned(),
        ));
    }
    Ok(path.clone())
}

pub(crate) fn wrong(value: &Expr, message: String) -> syn::Error {
    match value {
        // A verbatim value may have no tokens to point at.
        Expr::Verbatim(tokens) if tokens.is_empty() => syn::Error::new(Span::call_site(), message),
        _ => syn::Error::new_spanned(value, message),
    }
}
