//! One parameter of the function after the context: what it is, and the attributes on it.

use proc_macro2::Span;
use syn::{Attribute, Ident, Meta, Pat, PatType, Path, Type, ext::IdentExt};

use crate::{
    describe::{self, Serde},
    diagnostics::Errors,
    item,
    types::{self, Part},
};

/// What a parameter after the context is.
pub(crate) enum Parameter<'a> {
    /// One argument of the tool.
    Argument(Argument<'a>),
    /// All arguments in one struct, and the attribute that says so.
    Arguments(&'a Type, &'a Attribute),
    /// Injected state of this type, without its `&`.
    State(&'a Type),
}

/// One argument of the tool.
pub(crate) struct Argument<'a> {
    pub(crate) ident: &'a Ident,
    /// The name in JSON and where it is written.
    pub(crate) name: (String, Span),
    pub(crate) ty: &'a Type,
    /// Documentation, `#[schemars(…)]` and `#[serde(…)]`.
    pub(crate) attrs: Vec<&'a Attribute>,
    pub(crate) default: Option<DefaultValue>,
    /// The function that reads it in its type's stead.
    pub(crate) reader: Option<Path>,
}

/// Where the default of an argument comes from.
pub(crate) enum DefaultValue {
    /// `#[serde(default)]`.
    OfType,
    /// `#[serde(default = "path")]`.
    Function(Path),
}

/// Reads one parameter. `None` if it is too wrong to tell what it is.
pub(crate) fn read<'a>(parameter: &'a PatType, errors: &mut Errors) -> Option<Parameter<'a>> {
    refuse_cfg(&parameter.attrs, errors);
    let mut roles = parameter.attrs.iter().filter(|attr| is_role(attr));
    let role = roles.next();
    if let Some(second) = roles.next() {
        errors.over(
            second,
            "a parameter is either `#[arguments]` or `#[state]`; remove one",
        );
        return None;
    }
    let Some(role) = role else {
        return argument(parameter, errors).map(Parameter::Argument);
    };
    if let Meta::List(_) | Meta::NameValue(_) = role.meta {
        let name = if role.path().is_ident("state") {
            "state"
        } else {
            "arguments"
        };
        errors.over(
            role,
            format_args!("`#[{name}]` takes nothing; write it alone"),
        );
    }
    if role.path().is_ident("state") {
        refuse_helpers(
            &parameter.attrs,
            "this is injected state; remove it",
            errors,
        );
        state(&parameter.ty, errors).map(Parameter::State)
    } else {
        let remedy = "this is a whole struct of them; put it on the struct's fields";
        refuse_helpers(&parameter.attrs, remedy, errors);
        refuse_unowned(&parameter.ty, errors);
        Some(Parameter::Arguments(&parameter.ty, role))
    }
}

/// Refuses `#[cfg]`, which the compiler applies to parameters after we have counted them.
pub(crate) fn refuse_cfg(attrs: &[Attribute], errors: &mut Errors) {
    for attr in attrs {
        if attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr") {
            let name = attr
                .path()
                .get_ident()
                .map(Ident::to_string)
                .unwrap_or_default();
            errors.over(
                attr,
                format_args!("`#[{name}]` on a tool's parameter would change its contract; put it on the function"),
            );
        }
    }
}

/// Refuses what describes an argument on a parameter that is none.
pub(crate) fn refuse_helpers(attrs: &[Attribute], remedy: &str, errors: &mut Errors) {
    let mut documented = false;
    for attr in attrs
        .iter()
        .filter(|attr| item::is_helper(attr) && !is_role(attr))
    {
        let what = match attr.path().get_ident() {
            Some(name) if name == "doc" && documented => continue,
            Some(name) if name == "doc" => {
                documented = true;
                "a doc comment".to_owned()
            }
            name => format!("`#[{}]`", name.map(Ident::to_string).unwrap_or_default()),
        };
        errors.over(
            attr,
            format_args!("{what} describes an argument, and {remedy}"),
        );
    }
}

pub(crate) fn is_role(attr: &Attribute) -> bool {
    attr.path().is_ident("arguments") || attr.path().is_ident("state")
}

fn state<'a>(ty: &'a Type, errors: &mut Errors) -> Option<&'a Type> {
    let Type::Reference(reference) = types::ungroup(ty) else {
        errors.over(
            ty,
            "injected state is shared by all calls, so it is borrowed; put `&` before its type",
        );
        return None;
    };
    if let Some(mutability) = reference.mutability {
        errors.at(
            mutability.span,
            "injected state is shared by all calls; use `&` and a lock inside",
        );
    }
    if let Some(lifetime) = &reference.lifetime {
        errors.at(
            lifetime.span(),
            "injected state is borrowed for the call alone; remove the lifetime",
        );
    }
    types::inspect(&reference.elem, &mut |part, span| match part {
        Part::Reference { is_static: true } | Part::IndexSet => (),
        Part::Reference { is_static: false } | Part::Lifetime => {
            errors.at(
                span,
                "injected state is found by its type, so that has no lifetime; use an owned type",
            );
        }
        Part::ImplTrait => {
            errors.at(span, "injected state is found by its type, so that must be named; `impl Trait` has no name");
        }
        Part::SelfType => errors.at(span, SELF_TYPE),
    });
    Some(&reference.elem)
}

pub(crate) const SELF_TYPE: &str = "a tool is a free function and knows no `Self`; name the type";

fn argument<'a>(parameter: &'a PatType, errors: &mut Errors) -> Option<Argument<'a>> {
    refuse_unowned(&parameter.ty, errors);
    let mut serde = Serde::default();
    for attr in &parameter.attrs {
        if attr.path().is_ident("serde") {
            serde.read(attr, errors);
        } else if attr.path().is_ident("schemars") {
            describe::refuse_schema_only(attr, errors);
        }
    }
    if let (Some((key, _)), Some(_)) = (&serde.reader, &serde.default) {
        errors.at(
            key.span(),
            format_args!("a default is told as its type writes it, which `{key}` may not read; make the argument an `Option` or give it a type of its own"),
        );
    }
    let Some(ident) = name_of(&parameter.pat) else {
        let message = match *parameter.pat {
            Pat::Wild(_) => "an argument needs a name, and `_` is none; name it",
            _ => "an argument needs a name; bind it to one, and take it apart in the body",
        };
        errors.over(&parameter.pat, message);
        return None;
    };
    let name = serde.rename.map_or_else(
        || (ident.unraw().to_string(), ident.span()),
        |rename| (rename.value(), rename.span()),
    );
    if name.0 == "idempotency_key" {
        errors.at(
            name.1,
            "every tool has the argument `idempotency_key` already; rename this one",
        );
    }
    let attrs = parameter
        .attrs
        .iter()
        .filter(|attr| item::is_helper(attr))
        .collect();
    let reader = serde.reader.map(|(_, path)| path);
    Some(Argument {
        ident,
        name,
        ty: &parameter.ty,
        attrs,
        default: serde.default,
        reader,
    })
}

fn name_of(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(pattern) => Some(&pattern.ident),
        Pat::Paren(pattern) => name_of(&pattern.pat),
        _ => None,
    }
}

fn refuse_unowned(ty: &Type, errors: &mut Errors) {
    types::inspect(ty, &mut |part, span| match part {
        Part::Reference { .. } => {
            errors.at(span, "a tool's arguments are owned, and this is borrowed; use a type like `String` or `Vec`");
        }
        Part::Lifetime => errors.at(
            span,
            "a tool's arguments are owned; use a type without this lifetime",
        ),
        Part::ImplTrait => errors.at(
            span,
            "an argument's type must be named; `impl Trait` has no schema",
        ),
        Part::SelfType => errors.at(span, SELF_TYPE),
        Part::IndexSet => {
            errors.at(span, "the schema can't tell an `IndexSet` from a set without order; use `Vec` where order means something, else `BTreeSet`");
        }
    });
}
