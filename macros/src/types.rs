//! What a type's tokens give away before any type is known.

use proc_macro2::Span;
use syn::{GenericArgument, Path, PathArguments, Type};

/// A part of a type that has no place in a stored contract.
pub(crate) enum Part {
    /// `&`.
    Reference {
        /// Whether its lifetime is `'static`.
        is_static: bool,
    },
    /// A lifetime other than `'static`.
    Lifetime,
    /// `impl Trait`.
    ImplTrait,
    /// `Self`.
    SelfType,
    /// `IndexSet`, by its last path segment.
    IndexSet,
}

/// Tells `found` of each such part of `ty` and where it stands, in the order written.
pub(crate) fn inspect(ty: &Type, found: &mut impl FnMut(Part, Span)) {
    match ty {
        Type::Array(array) => inspect(&array.elem, found),
        Type::Group(group) => inspect(&group.elem, found),
        Type::ImplTrait(impl_trait) => found(Part::ImplTrait, impl_trait.impl_token.span),
        Type::Paren(paren) => inspect(&paren.elem, found),
        Type::Path(path) => {
            if let Some(qself) = &path.qself {
                inspect(&qself.ty, found);
            }
            inspect_path(&path.path, found);
        }
        Type::Reference(reference) => {
            let is_static = reference
                .lifetime
                .as_ref()
                .is_some_and(|l| l.ident == "static");
            found(Part::Reference { is_static }, reference.and_token.span);
            inspect(&reference.elem, found);
        }
        Type::Slice(slice) => inspect(&slice.elem, found),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|elem| inspect(elem, found)),
        // The others can't be read from JSON: the compiler says so, at the type.
        _ => (),
    }
}

fn inspect_path(path: &Path, found: &mut impl FnMut(Part, Span)) {
    if let Some(first) = path.segments.first().filter(|first| first.ident == "Self") {
        found(Part::SelfType, first.ident.span());
    }
    if let Some(last) = path.segments.last().filter(|last| last.ident == "IndexSet") {
        found(Part::IndexSet, last.ident.span());
    }
    for segment in &path.segments {
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
            continue;
        };
        for argument in &arguments.args {
            match argument {
                GenericArgument::Lifetime(lifetime) if lifetime.ident != "static" => {
                    found(Part::Lifetime, lifetime.span());
                }
                GenericArgument::Type(ty) => inspect(ty, found),
                _ => (),
            }
        }
    }
}

/// The type in the invisible groups that `macro_rules` wraps around its fragments.
pub(crate) fn ungroup(mut ty: &Type) -> &Type {
    while let Type::Group(group) = ty {
        ty = &group.elem;
    }
    ty
}
