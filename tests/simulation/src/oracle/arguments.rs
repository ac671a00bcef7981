//! What arguments mean, compared member by member.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Up to here a double holds every integer.
const MAX_SAFE: i128 = (1 << 53) - 1;

/// A contract of `pay`, by the arguments that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The first version as it was first written.
    First,
    /// The first version with `tag`.
    Wide,
    /// The second version, with `currency`.
    Second,
    /// An external tool's one argument.
    Memo,
}

/// One member's meaning.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// An integer, and whether it was written as one.
    Whole(i128, bool),
    Fraction(f64),
    Text(String),
}

/// The members that differ from their defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Members(BTreeMap<&'static str, Part>);

/// What a contract makes of arguments.
#[derive(Debug, Clone)]
pub enum Reading {
    Valid(Members),
    /// It may be refused as well: a number that a parser may have rounded.
    Doubtful(Members),
    Invalid,
}

/// How two requests compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    Equal,
    Different,
    /// The contract promises neither.
    Either,
}

impl Reading {
    pub fn members(&self) -> Option<&Members> {
        match self {
            Self::Valid(members) | Self::Doubtful(members) => Some(members),
            Self::Invalid => None,
        }
    }
}

impl Shape {
    fn knows(self, name: &str) -> Option<&'static str> {
        let known: &[&'static str] = match self {
            Self::First => &["amount", "exact", "ratio"],
            Self::Wide => &["amount", "exact", "ratio", "tag"],
            Self::Second => &["amount", "exact", "ratio", "tag", "currency"],
            Self::Memo => &["memo"],
        };
        known.iter().copied().find(|known| *known == name)
    }

    pub fn read(self, arguments: &Map<String, Value>) -> Reading {
        let mut members = BTreeMap::new();
        let mut is_doubtful = false;
        for (name, value) in arguments {
            let Some(name) = self.knows(name) else {
                return Reading::Invalid;
            };
            let part = match (name, value) {
                ("exact" | "tag", Value::Null) => continue,
                ("amount", Value::Number(number)) => match whole(number) {
                    Some(Part::Whole(value, written))
                        if i128::from(i64::MIN) <= value
                            && value <= i128::from(i64::MAX)
                            && (written || value.abs() <= MAX_SAFE) =>
                    {
                        Part::Whole(value, true)
                    }
                    _ => return Reading::Invalid,
                },
                ("exact" | "ratio", Value::Number(number)) => match whole(number) {
                    Some(Part::Whole(value, written)) => {
                        is_doubtful |= MAX_SAFE < value.abs();
                        Part::Whole(value, written || value.abs() <= MAX_SAFE)
                    }
                    _ => Part::Fraction(number.as_f64().unwrap_or(f64::NAN)),
                },
                ("tag" | "currency" | "memo", Value::String(text)) => Part::Text(text.clone()),
                // A default that isn't null: null means nothing.
                _ => return Reading::Invalid,
            };
            let is_default = match (name, &part) {
                ("ratio", Part::Whole(0, _)) => true,
                ("currency", Part::Text(text)) => text == "eur",
                _ => false,
            };
            if !is_default {
                members.insert(name, part);
            }
        }
        let required = if self == Self::Memo { "memo" } else { "amount" };
        if !members.contains_key(required) {
            return Reading::Invalid;
        }
        let members = Members(members);
        if is_doubtful {
            Reading::Doubtful(members)
        } else {
            Reading::Valid(members)
        }
    }

    /// What a record of this contract makes of a request to a newer one.
    pub fn read_for(self, asked: Self, arguments: &Map<String, Value>) -> Reading {
        let mut own = arguments.clone();
        own.retain(|name, value| {
            self.knows(name).is_some()
                || asked.knows(name).is_none()
                || !(value.is_null() && name == "tag" || name == "currency" && *value == "eur")
        });
        self.read(&own)
    }
}

impl Members {
    /// `rounded` accepts that integers which a double can't tell apart count as one.
    pub fn compare(&self, other: &Self, rounded: bool) -> Compared {
        let mut compared = Compared::Equal;
        if !self.0.keys().eq(other.0.keys()) {
            return Compared::Different;
        }
        for ((name, one), (_, other)) in self.0.iter().zip(&other.0) {
            match (one, other) {
                (Part::Whole(one, written), Part::Whole(other, as_well)) if one == other => {
                    if written != as_well {
                        compared = Compared::Either;
                    }
                }
                (Part::Whole(one, _), Part::Whole(other, _))
                    if rounded && *name != "amount" && double(*one) == double(*other) =>
                {
                    compared = Compared::Either;
                }
                (one, other) if one == other => (),
                _ => return Compared::Different,
            }
        }
        compared
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Part::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The integer that a member is, if it is one and exact.
    pub fn whole(&self, name: &str) -> Option<i128> {
        match self.0.get(name) {
            Some(Part::Whole(value, true)) => Some(*value),
            _ => None,
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn double(value: i128) -> u64 {
    (value as f64).to_bits()
}

/// The integer that a number is, and whether it is written as one.
#[allow(clippy::cast_possible_truncation)]
fn whole(number: &serde_json::Number) -> Option<Part> {
    if let Some(value) = number.as_i64() {
        return Some(Part::Whole(value.into(), true));
    }
    if let Some(value) = number.as_u64() {
        return Some(Part::Whole(value.into(), true));
    }
    let value = number.as_f64()?;
    (value.fract() == 0.0 && value.abs() < 1e30).then_some(Part::Whole(value as i128, false))
}
