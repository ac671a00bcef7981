//! `#[serde(…)]` and `#[schemars(…)]` on an argument: what we read of them, what we refuse.
//!
//! Both go to the generated struct as they are, whose schema schemars derives from them;
//! the reading is ours, so that what they mean is a closed set.

use proc_macro2::TokenTree;
use syn::{
    Attribute, Expr, ExprLit, Ident, Lit, LitStr, Meta, Path, Token, ext::IdentExt,
    parse::ParseStream, punctuated::Punctuated, spanned::Spanned,
};

use crate::{diagnostics::Errors, parameter::DefaultValue};

/// What `#[serde(…)]` on an argument says.
#[derive(Default)]
pub(crate) struct Serde {
    pub(crate) rename: Option<LitStr>,
    pub(crate) default: Option<DefaultValue>,
    /// The function that reads the argument, and the key that names it.
    pub(crate) reader: Option<(Ident, Path)>,
}

impl Serde {
    /// Adds what `attr` says; what has no place on an argument is recorded.
    pub(crate) fn read(&mut self, attr: &Attribute, errors: &mut Errors) {
        // What isn't a list of metas is refused by schemars, which reads it too, at the token.
        let Ok(metas) = attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
        else {
            return;
        };
        for meta in &metas {
            let key = meta
                .path()
                .get_ident()
                .map(Ident::to_string)
                .unwrap_or_default();
            match key.as_str() {
                "flatten" => errors.over(meta, "a flattened argument hides its members from the contract; name them as parameters or use `#[arguments]`"),
                "skip" | "skip_deserializing" => errors.over(meta, "a skipped parameter is no argument; use `#[state]` or compute it in the body"),
                "alias" => errors.over(meta, "two names for one argument make two requests of one; keep one name"),
                "rename" => self.rename = self.rename.take().or(rename(meta)),
                "default" => self.default = self.default.take().or(default(meta)),
                "with" | "deserialize_with" => self.reader = self.reader.take().or(reader(meta)),
                "serialize_with" | "skip_serializing" | "skip_serializing_if" => (),
                // One that serde adds later might read other requests than ours does.
                _ => errors.over(meta, format_args!(
                    "unknown `#[serde]` attribute of an argument; expected one of `default`, `rename`, `with`, `deserialize_with`",
                )),
            }
        }
    }
}

/// The name to read in `rename = "…"` or `rename(deserialize = "…")`.
fn rename(meta: &Meta) -> Option<LitStr> {
    match meta {
        Meta::List(list) => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .ok()?
            .iter()
            .find(|meta| meta.path().is_ident("deserialize"))
            .and_then(string),
        _ => string(meta),
    }
}

fn default(meta: &Meta) -> Option<DefaultValue> {
    match meta {
        Meta::Path(_) => Some(DefaultValue::OfType),
        // A string that is no path is refused by schemars, which reads it too.
        _ => Some(DefaultValue::Function(string(meta)?.parse().ok()?)),
    }
}

fn reader(meta: &Meta) -> Option<(Ident, Path)> {
    let key = meta.path().get_ident()?;
    // A string that is no path is refused by schemars, at the token.
    let mut path: Path = string(meta)?.parse().ok()?;
    if key == "with" {
        path.segments
            .push(Ident::new("deserialize", path.span()).into());
    }
    Some((key.clone(), path))
}

fn string(meta: &Meta) -> Option<LitStr> {
    let Meta::NameValue(pair) = meta else {
        return None;
    };
    let mut value = &pair.value;
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(literal),
            ..
        }) => Some(literal.clone()),
        _ => None,
    }
}

/// Refuses `#[schemars(…)]` keys that would make the schema say what isn't read.
pub(crate) fn refuse_schema_only(attr: &Attribute, errors: &mut Errors) {
    let keys = attr.parse_args_with(|input: ParseStream| {
        let mut keys = Vec::new();
        while !input.is_empty() {
            let _: Option<Token![!]> = input.parse()?;
            keys.push(input.call(Ident::parse_any)?);
            while !input.is_empty() && !input.peek(Token![,]) {
                let _: TokenTree = input.parse()?;
            }
            let _: Option<Token![,]> = input.parse()?;
        }
        Ok(keys)
    });
    // What isn't a list of keys is refused by schemars itself, at the token.
    for key in keys.unwrap_or_default() {
        let name = key.to_string();
        if name == "extend" {
            errors.at(
                key.span(),
                "`extend` in `#[schemars]` changes the schema and not what is read; say it with the keys that are made for it, such as `length` and `range`",
            );
        }
        if let "rename" | "default" | "skip" | "skip_deserializing" | "flatten" | "alias" =
            name.as_str()
        {
            errors.at(
                key.span(),
                format_args!("`{name}` in `#[schemars]` changes the schema and not what is read; write it in `#[serde]`"),
            );
        }
    }
}
