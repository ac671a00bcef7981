//! The contract enforced, and what is wrong with arguments that break it.

use std::collections::{BTreeSet, HashSet};

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

use super::{InvalidArgument, SchemaError};
use crate::request::json_schema::pointer;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Validator(jsonschema::Validator);

impl Validator {
    /// Compiles a schema of draft 2020-12, with formats checked.
    ///
    /// The builder is generic; calling it in this one place spares a user's crate its
    /// compilation.
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .build(schema)
            .map(Self)
            .map_err(|error| {
                SchemaError::new(format!(
                    "the schema is not valid at `{}`: {}",
                    error.schema_path(),
                    error.masked_with("what stands there")
                ))
            })
    }

    pub(crate) fn accepts(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// Where in the schema the first broken rule stands.
    pub(crate) fn broken_rule(&self, value: &Value) -> Option<String> {
        self.0
            .iter_errors(value)
            .next()
            .map(|error| error.schema_path().as_str().to_owned())
    }

    /// What the first broken rule is and where in the schema it stands.
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) fn misfit(&self, value: &Value) -> Option<String> {
        let error = self.0.iter_errors(value).next()?;
        Some(format!("{} at `{}`", error.masked(), error.schema_path()))
    }

    /// Everything that is wrong with `value`, by its leaves.
    pub(super) fn explain(&self, value: &Value) -> BTreeSet<InvalidArgument> {
        let mut found = BTreeSet::new();
        explain(&self.0.iter_errors(value).collect::<Vec<_>>(), &mut found);
        found
    }
}

fn explain(errors: &[ValidationError<'_>], found: &mut BTreeSet<InvalidArgument>) {
    // Where no alternative fits, all members count as unevaluated; that says nothing.
    let undecided: HashSet<&str> = errors
        .iter()
        .filter(|error| alternatives(error.kind()).is_some())
        .map(|error| error.instance_path().as_str())
        .collect();
    for error in errors {
        let path = error.instance_path().as_str();
        match error.kind() {
            Kind::UnevaluatedProperties { .. } if undecided.contains(path) => {}
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => {
                found.extend(unexpected.iter().map(|name| {
                    InvalidArgument::new(
                        &pointer(path, name),
                        "is not known here; remove it or correct its name",
                    )
                }));
            }
            Kind::Required { property } => {
                let path = pointer(path, property.as_str().unwrap_or_default());
                found.insert(InvalidArgument::new(&path, "is required"));
            }
            kind => match alternatives(kind) {
                Some(branches) => explain_alternatives(path, branches, found),
                None => {
                    found.insert(InvalidArgument::new(path, &message(kind)));
                }
            },
        }
    }
}

fn alternatives(kind: &Kind) -> Option<&[Vec<ValidationError<'static>>]> {
    match kind {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => Some(context),
        _ => None,
    }
}

/// Names what is wrong inside the one branch that was meant, as far as that can be told.
fn explain_alternatives(
    path: &str,
    branches: &[Vec<ValidationError<'static>>],
    found: &mut BTreeSet<InvalidArgument>,
) {
    let fitting: Vec<_> = branches
        .iter()
        .filter(|errors| !errors.iter().any(|error| is_another_value(error, path)))
        .collect();
    if fitting.is_empty() {
        found.insert(none_fits(path, branches));
        return;
    }
    let tagged: Vec<_> = fitting
        .iter()
        .filter(|errors| !errors.iter().any(|error| is_another_tag(error, path)))
        .copied()
        .collect();
    if tagged.is_empty() {
        found.extend(unknown_tag(path, &fitting));
        return;
    }
    let strangeness =
        |errors: &[ValidationError<'_>]| errors.iter().filter(|it| stands_at(it, path)).count();
    let least = tagged.iter().map(|errors| strangeness(errors)).min();
    let meant: Vec<BTreeSet<InvalidArgument>> = tagged
        .iter()
        .filter(|errors| Some(strangeness(errors)) == least)
        .map(|errors| {
            let mut found = BTreeSet::new();
            explain(errors, &mut found);
            found
        })
        .collect();
    let common = meant
        .iter()
        .skip(1)
        .fold(meant.first().cloned(), |common, other| {
            common.map(|common| common.intersection(other).cloned().collect())
        });
    match common {
        Some(common) if !common.is_empty() => found.extend(common),
        _ => {
            found.insert(none_fits(path, branches));
        }
    }
}

fn stands_at(error: &ValidationError<'_>, path: &str) -> bool {
    error.instance_path().as_str() == path
}

/// Whether a branch is for values of another kind altogether.
fn is_another_value(error: &ValidationError<'_>, path: &str) -> bool {
    stands_at(error, path)
        && matches!(
            error.kind(),
            Kind::Type { .. } | Kind::Enum { .. } | Kind::Constant { .. }
        )
}

/// Whether a branch is for objects with another tag.
fn is_another_tag(error: &ValidationError<'_>, path: &str) -> bool {
    let below = error.instance_path().as_str().strip_prefix(path);
    matches!(error.kind(), Kind::Constant { .. })
        && below.is_some_and(|below| below.matches('/').count() == 1)
}

fn none_fits(path: &str, branches: &[Vec<ValidationError<'static>>]) -> InvalidArgument {
    let mut wanted: Vec<String> = Vec::new();
    for branch in branches {
        let own = branch.iter().find(|error| is_another_value(error, path));
        let Some(own) = own else {
            wanted.clear();
            break;
        };
        let own = message(own.kind());
        let own = own.strip_prefix("must be ").unwrap_or(&own).to_owned();
        if !wanted.contains(&own) {
            wanted.push(own);
        }
    }
    let message = if wanted.is_empty() {
        "has none of the forms that are allowed here".to_owned()
    } else {
        format!("must be {}", wanted.join(" or "))
    };
    InvalidArgument::new(path, &message)
}

fn unknown_tag(path: &str, branches: &[&Vec<ValidationError<'static>>]) -> Vec<InvalidArgument> {
    let mut tags: Vec<(&str, Vec<String>)> = Vec::new();
    for error in branches
        .iter()
        .copied()
        .flatten()
        .filter(|error| is_another_tag(error, path))
    {
        let Kind::Constant { expected_value } = error.kind() else {
            continue;
        };
        let at = error.instance_path().as_str();
        let value = format!("`{}`", plain(expected_value));
        match tags.iter_mut().find(|(path, _)| *path == at) {
            Some((_, values)) => values.push(value),
            None => tags.push((at, vec![value])),
        }
    }
    tags.into_iter()
        .map(|(path, values)| InvalidArgument::new(path, &format!("must be {}", one_of(&values))))
        .collect()
}

/// What is wrong, in words that hold nothing of the value itself.
fn message(kind: &Kind) -> String {
    match kind {
        Kind::Type { kind } => {
            let names: Vec<&str> = match kind {
                TypeKind::Single(name) => vec![with_article(name.as_str())],
                TypeKind::Multiple(names) => names
                    .iter()
                    .map(|name| with_article(name.as_str()))
                    .collect(),
            };
            format!("must be {}", names.join(" or "))
        }
        Kind::Constant { expected_value } => format!("must be `{}`", plain(expected_value)),
        Kind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let options: Vec<_> = options
                .iter()
                .map(|option| format!("`{}`", plain(option)))
                .collect();
            format!("must be {}", one_of(&options))
        }
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be greater than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {}", count(*limit, "character")),
        Kind::MaxLength { limit } => format!("must have at most {}", count(*limit, "character")),
        Kind::MinItems { limit } => format!("must have at least {}", count(*limit, "element")),
        Kind::MaxItems { limit } => format!("must have at most {}", count(*limit, "element")),
        Kind::MinProperties { limit } => format!("must have at least {}", count(*limit, "member")),
        Kind::MaxProperties { limit } => format!("must have at most {}", count(*limit, "member")),
        Kind::AdditionalItems { limit } => {
            format!("must have at most {}", count(*limit as u64, "element"))
        }
        Kind::UniqueItems => "must not repeat an element".to_owned(),
        Kind::Pattern { pattern } => format!("must match the pattern `{pattern}`"),
        Kind::Format { format } => format!("must have the format `{format}`"),
        Kind::PropertyNames { .. } => "has a member whose name is not allowed".to_owned(),
        Kind::FalseSchema => "is not allowed here".to_owned(),
        Kind::Not { schema } => match schema.get("const") {
            Some(value) => format!("must not be `{}`", plain(value)),
            None => "must not match the schema's `not`".to_owned(),
        },
        Kind::OneOfMultipleValid { .. } => "has more than one of the forms allowed here".to_owned(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "is too costly to match against the pattern".to_owned()
        }
        Kind::AdditionalProperties { .. }
        | Kind::AnyOf { .. }
        | Kind::Contains
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::Custom { .. }
        | Kind::FromUtf8 { .. }
        | Kind::OneOfNotValid { .. }
        | Kind::Required { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::UnevaluatedProperties { .. }
        | Kind::Referencing(_) => format!("does not satisfy `{}`", kind.keyword()),
    }
}

/// A value of the schema as a message quotes it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn one_of(options: &[String]) -> String {
    match options {
        [one] => one.clone(),
        several => format!("one of {}", several.join(", ")),
    }
}

fn count(number: u64, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

fn with_article(name: &str) -> &'static str {
    match name {
        "null" => "null",
        "boolean" => "a boolean",
        "integer" => "an integer",
        "number" => "a number",
        "string" => "a string",
        "array" => "an array",
        _ => "an object",
    }
}
