//! What a contract refuses, as it is told: bounded, however much is wrong.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use serde_json::{Map, Value};

/// How many invalid arguments are told, the first by path.
const MOST: usize = 32;

/// How many characters of a path or a message are told.
const LONGEST: usize = 256;

/// Stands at the end of what was cut.
const CUT: char = '…';

/// One argument that the contract refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InvalidArgument {
    /// Where, as a JSON Pointer into the arguments; its end is cut if it is too long.
    path: String,
    /// What is wrong and what is expected; from the contract, never the value itself.
    message: String,
    /// Tells paths apart that are alike as far as they are told.
    whole: u64,
}

/// The arguments that a contract refuses: the first by path, and how many more there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InvalidArguments {
    details: Vec<InvalidArgument>,
    more: usize,
}

impl InvalidArgument {
    pub(crate) fn new(path: &str, message: &str) -> Self {
        let shown = cut(path);
        let whole = if shown.len() == path.len() {
            0
        } else {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            hasher.finish()
        };
        Self {
            path: shown,
            message: cut(message),
            whole,
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What tells the path from every other one.
    pub(super) fn place(&self) -> (&str, u64) {
        (&self.path, self.whole)
    }
}

impl InvalidArguments {
    pub(crate) fn one(path: &str, message: &str) -> Self {
        Self {
            details: vec![InvalidArgument::new(path, message)],
            more: 0,
        }
    }

    /// What is told, sorted by path.
    pub(crate) fn details(&self) -> &[InvalidArgument] {
        &self.details
    }

    /// How many are not told.
    pub(crate) fn more(&self) -> usize {
        self.more
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.details.is_empty()
    }

    /// Every path in one line.
    pub(crate) fn paths(&self) -> String {
        self.line(|line, detail| {
            if detail.path.is_empty() {
                line.push_str("its root");
            } else {
                line.push('`');
                line.push_str(&detail.path);
                line.push('`');
            }
        })
    }

    /// Every path with its message, in one line.
    pub(crate) fn text(&self) -> String {
        self.line(|line, detail| {
            if !detail.path.is_empty() {
                line.push('`');
                line.push_str(&detail.path);
                line.push_str("` ");
            }
            line.push_str(&detail.message);
        })
    }

    fn line(&self, mut write: impl FnMut(&mut String, &InvalidArgument)) -> String {
        let mut line = String::new();
        for (index, detail) in self.details.iter().enumerate() {
            if index != 0 {
                line.push_str("; ");
            }
            write(&mut line, detail);
        }
        if self.more != 0 {
            line.push_str("; and ");
            line.push_str(&self.more.to_string());
            line.push_str(" more");
        }
        line
    }
}

impl FromIterator<InvalidArgument> for InvalidArguments {
    fn from_iter<I: IntoIterator<Item = InvalidArgument>>(found: I) -> Self {
        let all: BTreeSet<_> = found.into_iter().collect();
        let more = all.len().saturating_sub(MOST);
        Self {
            details: all.into_iter().take(MOST).collect(),
            more,
        }
    }
}

/// The start of a text, with a sign if there was more of it.
fn cut(text: &str) -> String {
    // The end of what is told if that is all, and the place to cut if it isn't.
    let mut ends = text.char_indices().map(|(at, _)| at).skip(LONGEST - 1);
    match (ends.next(), ends.next()) {
        (Some(at), Some(_)) => {
            let mut start = text.get(..at).unwrap_or_default().to_owned();
            start.push(CUT);
            start
        }
        _ => text.to_owned(),
    }
}

/// The arguments with names that are longer than any path is told cut short, if there are
/// such: a name stands in the path of all that is wrong below it.
pub(super) fn with_short_names(arguments: &Map<String, Value>) -> Option<Map<String, Value>> {
    has_long_name(arguments).then(|| shorten(arguments))
}

fn has_long_name(members: &Map<String, Value>) -> bool {
    members
        .iter()
        .any(|(name, value)| LONGEST < name.len() || has_long_name_below(value))
}

fn has_long_name_below(value: &Value) -> bool {
    match value {
        Value::Object(members) => has_long_name(members),
        Value::Array(elements) => elements.iter().any(has_long_name_below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn shorten(members: &Map<String, Value>) -> Map<String, Value> {
    let short = members.iter().enumerate().map(|(index, (name, value))| {
        let name = match name.char_indices().nth(LONGEST) {
            // The number keeps apart what is alike up to there.
            Some((at, _)) => format!("{}{index}", name.get(..at).unwrap_or_default()),
            None => name.clone(),
        };
        (name, shorten_below(value))
    });
    short.collect()
}

fn shorten_below(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(shorten(members)),
        Value::Array(elements) => Value::Array(elements.iter().map(shorten_below).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        let exact = "é".repeat(256);
        assert_eq!(cut(&exact), exact);
        let cut = cut(&"é".repeat(257));
        assert_eq!(cut.chars().count(), 256);
        assert!(cut.ends_with("é…"), "{cut}");
    }

    #[test]
    fn the_first_by_path_are_told_and_the_others_counted() {
        let found = |number: usize| {
            (0..number)
                .rev()
                .map(|index| InvalidArgument::new(&format!("/{index:03}"), "is bad"))
                .collect::<InvalidArguments>()
        };
        assert_eq!(found(32).more(), 0);
        let many = found(100);
        assert_eq!((many.details().len(), many.more()), (32, 68));
        assert_eq!(many.details()[0].path(), "/000");
        assert_eq!(many.details()[31].path(), "/031");
        assert!(many.text().ends_with("; `/031` is bad; and 68 more"));
        assert!(many.paths().ends_with("; `/031`; and 68 more"));
    }

    #[test]
    fn paths_that_are_alike_as_far_as_they_are_told_count_each() {
        let long = "x".repeat(300);
        let alike = ["a", "b", "a"]
            .map(|end| InvalidArgument::new(&format!("/{long}{end}"), "is bad"))
            .into_iter()
            .collect::<InvalidArguments>();
        assert_eq!(alike.details().len(), 2);
    }
}
