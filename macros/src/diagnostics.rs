//! How mistakes are gathered, so that one run of the compiler shows them all.

use std::fmt;

use proc_macro2::{Ident, Span};

/// Runs a pass and reports every mistake it recorded; one that recorded any has failed.
///
/// The pass gives `None` where it can't go on, after recording why.
pub(crate) fn collect<T>(pass: impl FnOnce(&mut Errors) -> Option<T>) -> syn::Result<T> {
    let mut errors = Errors { combined: None };
    let result = pass(&mut errors);
    match (errors.combined, result) {
        (None, Some(result)) => Ok(result),
        (Some(recorded), _) => Err(recorded),
        (None, None) => Err(syn::Error::new(
            Span::call_site(),
            "this function can't be a tool",
        )),
    }
}

/// The mistakes found so far; only [`collect`] makes one, so none is forgotten.
pub(crate) struct Errors {
    combined: Option<syn::Error>,
}

impl Errors {
    /// Records a mistake at `span`.
    pub(crate) fn at(&mut self, span: Span, message: impl fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Records a mistake that spans all of `tokens`.
    pub(crate) fn over(&mut self, tokens: impl quote::ToTokens, message: impl fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Records a mistake.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.combined {
            Some(combined) => combined.combine(error),
            None => self.combined = Some(error),
        }
    }
}

/// The message for a `key` that is none of `known`.
pub(crate) fn unknown_argument(key: &Ident, known: &[&str]) -> String {
    let key = key.to_string();
    match nearest(&key, known) {
        Some(near) => format!("unknown argument `{key}`; did you mean `{near}`?"),
        None => format!(
            "unknown argument `{key}`; expected one of `{}`",
            known.join("`, `")
        ),
    }
}

/// The one of `known` that `word` is probably a misspelling of.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, near) = known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .min()?;
    (distance <= 1 + near.len() / 4).then_some(near)
}

/// The number of single-character edits between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (to, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = *above;
            left = substituted.min(left + 1).min(diagonal + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_edits() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("opertion", "operation", 1),
            ("retnetion", "retention", 2),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn only_a_probable_misspelling_is_suggested() {
        let known = ["operation", "title", "crate"];
        assert_eq!(nearest("opertion", &known), Some("operation"));
        assert_eq!(nearest("titel", &known), Some("title"));
        assert_eq!(nearest("retries", &known), None);
        assert_eq!(nearest("op", &known), None);
    }

    #[test]
    fn a_pass_that_recorded_a_mistake_fails() {
        let error = collect(|errors| {
            errors.at(Span::call_site(), "first");
            errors.at(Span::call_site(), "second");
            Some(())
        })
        .unwrap_err();
        let messages: Vec<String> = error.into_iter().map(|error| error.to_string()).collect();
        assert_eq!(messages, ["first", "second"]);
        assert!(collect(|_| None::<()>).is_err());
        assert!(collect(|_| Some(())).is_ok());
    }
}
