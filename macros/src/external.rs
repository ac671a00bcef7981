//! The arguments of the attribute that only external tools have.

use std::time::Duration;

use proc_macro2::Span;
use syn::{
    Expr, ExprLit, Ident, Lit, LitStr, Path, Token, parenthesized, parse::ParseStream,
    punctuated::Punctuated,
};

use crate::{
    diagnostics::Errors,
    literal,
    value::{self, boolean, form, text, ungroup, wrong},
};

/// What the provider's window must hold beside an attempt, as in the runtime.
const WINDOW_MARGIN: Duration = Duration::from_secs(5);

/// How an attempt in doubt is settled.
pub(crate) enum Recovery {
    ProviderKey {
        window: Duration,
        instruction: Option<LitStr>,
    },
    Reconcile {
        path: Box<Path>,
        settle: Duration,
        instruction: Option<LitStr>,
    },
    Inspect {
        instruction: LitStr,
    },
}

/// What the attribute says of an external tool; `None` where it says nothing.
#[derive(Default)]
pub(crate) struct Given {
    keys: Vec<Ident>,
    recoveries: Vec<(Ident, Recovery)>,
    attempt_timeout: Option<(Duration, Span)>,
    max_attempts: Option<u32>,
    wait: Option<Duration>,
    backoff: Option<Duration>,
    keep_request: Option<bool>,
}

/// An external tool whose every part is checked.
pub(crate) struct External {
    pub(crate) recovery: Recovery,
    pub(crate) attempt_timeout: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) wait: Duration,
    pub(crate) backoff: Duration,
    pub(crate) keep_request: bool,
}

/// Whether `key` is written with its value in parentheses.
pub(crate) fn is_call(key: &str) -> bool {
    matches!(key, "provider_key" | "reconcile")
}

/// What stands in the parentheses after `key`.
pub(crate) fn parse_call(
    key: &Ident,
    input: ParseStream,
) -> syn::Result<Punctuated<Expr, Token![,]>> {
    let content;
    parenthesized!(content in input);
    let values = Punctuated::parse_terminated(&content)
        .map_err(|error| syn::Error::new(error.span(), written(key)))?;
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(values);
    }
    Err(input.error("expected `,` between two arguments"))
}

impl Given {
    /// Reads `key = value`.
    pub(crate) fn set(&mut self, key: &Ident, name: &str, value: &Expr) -> syn::Result<()> {
        self.keys.push(key.clone());
        match name {
            "inspect" => {
                let instruction = instruction(value)?;
                let recovery = Recovery::Inspect { instruction };
                self.recoveries.push((key.clone(), recovery));
            }
            "attempt_timeout" => {
                let timeout = text(value, name, "8s", literal::duration)?;
                self.attempt_timeout = Some((timeout, span(value)));
            }
            "max_attempts" => self.max_attempts = Some(count(value)?),
            "wait" => self.wait = Some(text(value, name, "5s", literal::duration)?),
            "backoff" => self.backoff = Some(text(value, name, "200ms", literal::duration)?),
            "keep_request" => self.keep_request = Some(boolean(value, name)?),
            _ => return Err(syn::Error::new(key.span(), written(key))),
        }
        Ok(())
    }

    /// Reads `key(values)`.
    pub(crate) fn set_call(
        &mut self,
        key: &Ident,
        values: &Punctuated<Expr, Token![,]>,
    ) -> syn::Result<()> {
        self.keys.push(key.clone());
        let mut instruction = None;
        let mut others = Vec::new();
        for value in values {
            match assigned(value, "inspect") {
                Some(text) if instruction.is_none() => {
                    instruction = Some(self::instruction(&text)?);
                }
                _ => others.push(value),
            }
        }
        let recovery = match (key.to_string().as_str(), others.as_slice()) {
            ("provider_key", [window]) => Recovery::ProviderKey {
                window: named(window, key, "window", "24h")?,
                instruction,
            },
            ("reconcile", [path, settle]) => Recovery::Reconcile {
                path: Box::new(self::path(path, key)?),
                settle: named(settle, key, "settle", "30s")?,
                instruction,
            },
            _ => return Err(syn::Error::new(key.span(), written(key))),
        };
        self.recoveries.push((key.clone(), recovery));
        Ok(())
    }

    /// Nothing of this is for a function that is not `async`.
    pub(crate) fn refuse(&self, errors: &mut Errors) {
        for key in &self.keys {
            errors.at(
                key.span(),
                format_args!(
                    "`{key}` is for effects outside the database; write an `async fn` with `attempt: &Attempt`, or remove this"
                ),
            );
        }
    }

    /// Checks all that an `async` function needs; `missing` is where to say what isn't there.
    pub(crate) fn check(
        self,
        deadline: Duration,
        mistaken: bool,
        missing: Span,
        errors: &mut Errors,
    ) -> Option<External> {
        let mut recoveries = self.recoveries.into_iter();
        let first = recoveries.next();
        for (key, _) in recoveries {
            errors.at(
                key.span(),
                "a tool has one recovery; keep the one that the provider makes possible",
            );
        }
        let Some((_, recovery)) = first else {
            if !mistaken {
                errors.at(
                    missing,
                    "an external tool names its recovery; add `provider_key(window = \"24h\")`, `reconcile(path, settle = \"30s\")` or `inspect = \"what to check, and where\"`",
                );
            }
            return None;
        };
        let attempt_timeout = match self.attempt_timeout {
            Some((timeout, span)) if deadline < timeout => {
                errors.at(
                    span,
                    "one attempt would outlast the `deadline` of the call; make it shorter",
                );
                return None;
            }
            Some((timeout, _)) => timeout,
            None => Duration::from_secs(8).min(deadline),
        };
        if let Recovery::ProviderKey { window, .. } = recovery
            && window <= attempt_timeout + WINDOW_MARGIN
        {
            errors.at(
                self.keys.first().map_or(missing, Ident::span),
                "the window is over before a second attempt could be; it must be longer than `attempt_timeout` and 5 seconds, or use another recovery",
            );
            return None;
        }
        Some(External {
            recovery,
            attempt_timeout,
            max_attempts: self.max_attempts.unwrap_or(3),
            wait: self.wait.unwrap_or(Duration::from_secs(5)),
            backoff: self.backoff.unwrap_or(Duration::from_millis(200)),
            keep_request: self.keep_request.unwrap_or(false),
        })
    }
}

fn written(key: &Ident) -> String {
    format!(
        "`{key}` is not written like this; write `{}`",
        form(&key.to_string())
    )
}

/// What stands after `name =`, if that is what `value` is.
fn assigned(value: &Expr, name: &str) -> Option<Expr> {
    let Expr::Assign(assignment) = value else {
        return None;
    };
    match &*assignment.left {
        Expr::Path(path) if path.path.is_ident(name) => Some(ungroup((*assignment.right).clone())),
        _ => None,
    }
}

/// `name = "duration"`.
fn named(value: &Expr, key: &Ident, name: &str, example: &str) -> syn::Result<Duration> {
    match (assigned(value, name), value) {
        (Some(value), _) => text(&value, name, example, literal::duration),
        (None, Expr::Assign(assignment)) => Err(wrong(&assignment.left, written(key))),
        (None, _) => Err(wrong(value, written(key))),
    }
}

fn path(value: &Expr, key: &Ident) -> syn::Result<Path> {
    match ungroup(value.clone()) {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path),
        other => Err(wrong(&other, written(key))),
    }
}

fn instruction(value: &Expr) -> syn::Result<LitStr> {
    let literal = value::string(value, form("inspect"))?;
    if literal.value().trim().is_empty() {
        return Err(syn::Error::new(
            literal.span(),
            "the instruction is empty; say what must be checked, and where",
        ));
    }
    Ok(literal.clone())
}

fn count(value: &Expr) -> syn::Result<u32> {
    if let Expr::Lit(ExprLit {
        lit: Lit::Int(literal),
        ..
    }) = value
        && literal.suffix().is_empty()
        && let Ok(count @ 1..=100) = literal.base10_parse()
    {
        return Ok(count);
    }
    Err(wrong(
        value,
        "expected a number of attempts from 1 to 100, such as `max_attempts = 3`".to_owned(),
    ))
}

fn span(value: &Expr) -> Span {
    syn::spanned::Spanned::span(value)
}
