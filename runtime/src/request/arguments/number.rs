//! Numbers, read the same way whatever features other crates switch on in `serde_json`.

use serde_json::Number;

/// The largest integer up to which a double holds every integer, 2^53 - 1.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
const MAX_SAFE_INTEGER: i128 = 9_007_199_254_740_991;
/// 2^64, the first double that is no `u64`.
const ABOVE_U64: f64 = 18_446_744_073_709_551_616.0;
/// -2^63, which an integer just below it becomes as a double.
const LOWEST_I64: f64 = -9_223_372_036_854_775_808.0;

const ROUNDED: &str =
    "may have been rounded; write an integer beyond 2^53 - 1 without a fraction or an exponent";
const BEYOND_64_BITS: &str =
    "must lie within the range of 64-bit integers; give a larger number as a string";

/// What a JSON number says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reading {
    /// An integer, written without a fraction or an exponent.
    Unsigned(u64),
    /// A negative integer, written so.
    Negative(i64),
    /// Anything else that a double can stand for.
    Double(f64),
    /// Beyond what a double can hold; only `arbitrary_precision` lets it through.
    Infinite,
}

/// Reads a number.
///
/// With `arbitrary_precision` a [`Number`] is the text it was parsed from, and without it
/// an integer or a double; this gives the same answer for both.
pub(crate) fn read(number: &Number) -> Reading {
    if let Some(value) = number.as_u64() {
        return Reading::Unsigned(value);
    }
    match number.as_i64() {
        Some(value) if value < 0 => return Reading::Negative(value),
        // The text `-0`, which every other build reads as a double.
        Some(_) => return Reading::Double(-0.0),
        None => {}
    }
    match number.as_f64() {
        Some(value) if value.is_finite() => Reading::Double(value),
        _ => Reading::Infinite,
    }
}

/// How the schema wants a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum NumberRule {
    /// The schema doesn't say: integers and doubles are different things.
    Untyped,
    /// One of several types, a floating-point one among them.
    UntypedDouble,
    /// An integer within these bounds.
    Integer {
        /// The least.
        min: i128,
        /// The greatest.
        max: i128,
    },
    /// A number of a type that the schema doesn't name, and that may be exact.
    Number,
    /// A double, as far as the schema knows.
    Double,
    /// A single-precision number, likewise.
    Single,
}

impl NumberRule {
    /// The number by its value in the schema's type, or what is wrong with it.
    pub(super) fn apply(self, number: &Number) -> Result<Number, String> {
        let reading = read(number);
        match self {
            Self::Untyped => match reading {
                // A parser without `arbitrary_precision` makes a double of an integer that
                // no 64 bits hold, so two that differ could pass for one.
                Reading::Double(value) if value <= LOWEST_I64 || value >= ABOVE_U64 => {
                    Err(BEYOND_64_BITS.to_owned())
                }
                _ => as_it_came(reading),
            },
            Self::UntypedDouble => as_it_came(reading),
            Self::Integer { min, max } => to_integer(reading, min, max),
            Self::Number | Self::Double | Self::Single => match (exact(reading), reading) {
                (Some(exact), _) => {
                    let rounded = self.rounded(reading)?;
                    let same = rounded
                        .as_f64()
                        .is_some_and(|value| stands_for(value, exact));
                    let beyond = !(-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&exact);
                    if beyond && !same {
                        as_it_came(reading)
                    } else {
                        Ok(rounded)
                    }
                }
                // What the parser has rounded would pass for another number.
                (None, Reading::Double(value))
                    if self == Self::Number && !(-MAX_SAFE..=MAX_SAFE).contains(&value) =>
                {
                    let within = LOWEST_I64 < value && value < ABOVE_U64;
                    Err(if within { ROUNDED } else { BEYOND_64_BITS }.to_owned())
                }
                (None, _) => self.rounded(reading),
            },
        }
    }

    /// The number as a double, or a single-precision one: what every integer was before
    /// those beyond 2^53 - 1 were kept.
    fn rounded(self, reading: Reading) -> Result<Number, String> {
        if self != Self::Single {
            return finite(double(reading));
        }
        match single(double(reading)) {
            Some(value) => finite(f64::from(value)),
            None => Err("must lie within the range of 32-bit floats".to_owned()),
        }
    }

    /// The number as a listing showed it before integers beyond 2^53 - 1 were kept.
    pub(super) fn apply_rounded(self, number: &Number) -> Result<Number, String> {
        if self.is_by_value() {
            self.rounded(read(number))
        } else {
            self.apply(number)
        }
    }

    /// Whether `1` and `1.0` are one, and an integer in the normal form is one that no
    /// double stands for.
    pub(super) fn is_by_value(self) -> bool {
        match self {
            Self::Number | Self::Double | Self::Single => true,
            Self::Untyped | Self::UntypedDouble | Self::Integer { .. } => false,
        }
    }

    /// The number as a listing shows it: a single-precision one in its own shortest form.
    pub(super) fn listed(self, number: &Number) -> Result<Number, String> {
        let value = self.apply(number)?;
        match (self, read(&value)) {
            // Written as a double it would be refused.
            (Self::Number, Reading::Double(listed)) if MAX_SAFE < listed.abs() => {
                as_it_came(read(number))
            }
            (Self::Single, Reading::Double(exact)) => {
                let shortest = single(exact).and_then(|value| value.to_string().parse().ok());
                finite(shortest.unwrap_or(exact))
            }
            _ => Ok(value),
        }
    }
}

fn as_it_came(reading: Reading) -> Result<Number, String> {
    match reading {
        Reading::Unsigned(value) => Ok(value.into()),
        Reading::Negative(value) => Ok(value.into()),
        Reading::Double(value) => finite(value),
        Reading::Infinite => finite(f64::INFINITY),
    }
}

fn to_integer(reading: Reading, min: i128, max: i128) -> Result<Number, String> {
    let value = match reading {
        Reading::Unsigned(value) => i128::from(value),
        Reading::Negative(value) => i128::from(value),
        Reading::Double(value) if value.fract() != 0.0 => {
            return Err("must be an integer".to_owned());
        }
        #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^53")]
        Reading::Double(value) if (-MAX_SAFE..=MAX_SAFE).contains(&value) => value as i128,
        #[expect(
            clippy::cast_precision_loss,
            reason = "only tells which of two messages is meant"
        )]
        Reading::Double(value) if value > min as f64 && value < max as f64 => {
            return Err(ROUNDED.to_owned());
        }
        Reading::Double(_) | Reading::Infinite => return Err(out_of_range(min, max)),
    };
    if !(min..=max).contains(&value) {
        return Err(out_of_range(min, max));
    }
    integer(value).ok_or_else(|| out_of_range(min, max))
}

/// An integer as a JSON number, if 64 bits hold it.
pub(super) fn integer(value: i128) -> Option<Number> {
    match (u64::try_from(value), i64::try_from(value)) {
        (Ok(value), _) => Some(value.into()),
        (_, Ok(value)) => Some(value.into()),
        _ => None,
    }
}

fn out_of_range(min: i128, max: i128) -> String {
    format!("must be an integer from {min} to {max}")
}

/// An integer that was written as one.
fn exact(reading: Reading) -> Option<i128> {
    match reading {
        Reading::Unsigned(value) => Some(value.into()),
        Reading::Negative(value) => Some(value.into()),
        Reading::Double(_) | Reading::Infinite => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a rounded integer of 64 bits lies within 128"
)]
fn stands_for(value: f64, exact: i128) -> bool {
    value as i128 == exact
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rounds as a parser that reads a double does"
)]
fn double(reading: Reading) -> f64 {
    let value = match reading {
        Reading::Unsigned(value) => value as f64,
        Reading::Negative(value) => value as f64,
        Reading::Double(value) => value,
        Reading::Infinite => f64::INFINITY,
    };
    // Turns -0.0 into 0.0.
    value + 0.0
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds as serde does for an `f32`"
)]
fn single(value: f64) -> Option<f32> {
    let value = value as f32 + 0.0;
    value.is_finite().then_some(value)
}

fn finite(value: f64) -> Result<Number, String> {
    Number::from_f64(value).ok_or_else(|| "must be a finite number".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const U64: NumberRule = NumberRule::Integer {
        min: 0,
        max: u64::MAX as i128,
    };
    const I64: NumberRule = NumberRule::Integer {
        min: i64::MIN as i128,
        max: i64::MAX as i128,
    };

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[track_caller]
    fn check(rule: NumberRule, text: &str, expect: &str) {
        let number = rule.apply(&number(text)).unwrap();
        assert_eq!(read(&number), read(&self::number(expect)), "{text}");
    }

    #[track_caller]
    fn refused(rule: NumberRule, text: &str, expect: &str) {
        let message = rule.apply(&number(text)).unwrap_err();
        assert!(message.contains(expect), "{text}: {message}");
    }

    #[test]
    fn integers_are_exact_over_64_bits() {
        check(U64, "18446744073709551615", "18446744073709551615");
        check(U64, "9007199254740993", "9007199254740993");
        check(I64, "-9223372036854775808", "-9223372036854775808");
        check(I64, "-0", "0");
        refused(
            U64,
            "18446744073709551616",
            "from 0 to 18446744073709551615",
        );
        refused(U64, "-1", "from 0");
        refused(I64, "-9223372036854775809", "from -9223372036854775808");
        refused(I64, "9223372036854775808", "to 9223372036854775807");
        refused(U64, "1e300", "from 0");
    }

    #[test]
    fn integers_may_be_written_as_doubles_while_those_are_exact() {
        check(U64, "3.0", "3");
        check(U64, "3e2", "300");
        check(I64, "-3.0", "-3");
        check(U64, "9007199254740991.0", "9007199254740991");
        refused(U64, "9007199254740992.0", "rounded");
        refused(U64, "1e18", "rounded");
        refused(U64, "1.5", "must be an integer");
    }

    #[test]
    fn doubles_go_by_value() {
        check(NumberRule::Double, "1", "1.0");
        check(NumberRule::Double, "1e0", "1.0");
        let zero = NumberRule::Double.apply(&number("-0.0")).unwrap();
        assert_eq!(zero.as_f64().map(f64::to_bits), Some(0));
        check(NumberRule::Double, "1e300", "1e300");
        check(NumberRule::Number, "1", "1.0");
        check(NumberRule::Number, "-2.5e0", "-2.5");
        check(
            NumberRule::Double,
            "18446744073709551616",
            "18446744073709551616.0",
        );
    }

    #[test]
    fn integers_that_no_double_stands_for_are_kept() {
        for rule in [NumberRule::Number, NumberRule::Double] {
            check(rule, "9007199254740991", "9007199254740991.0");
            check(rule, "9007199254740992", "9007199254740992.0");
            for kept in [
                "9007199254740993",
                "-9007199254740993",
                "18446744073709551615",
                "-9223372036854775807",
            ] {
                check(rule, kept, kept);
            }
            check(rule, "-9223372036854775808", "-9223372036854775808.0");
        }
        check(NumberRule::Single, "16777217", "16777216.0");
        check(NumberRule::Single, "9007199254740994", "9007199254740994");
    }

    #[test]
    fn what_a_parser_may_have_rounded_is_no_exact_number() {
        check(
            NumberRule::Number,
            "9007199254740991.0",
            "9007199254740991.0",
        );
        for text in ["9007199254740993.0", "-9007199254740993e0", "1e16"] {
            refused(NumberRule::Number, text, "rounded");
        }
        for text in ["18446744073709551616", "-9223372036854775809", "1e300"] {
            refused(NumberRule::Number, text, "64-bit");
        }
    }

    #[test]
    fn singles_are_rounded_once_and_listed_short() {
        let exact = NumberRule::Single.apply(&number("0.1")).unwrap();
        assert_eq!(exact.as_f64(), Some(f64::from(0.1_f32)));
        assert_eq!(NumberRule::Single.apply(&exact), Ok(exact.clone()));
        let listed = NumberRule::Single.listed(&exact).unwrap();
        assert_eq!(Value::from(listed).to_string(), "0.1");
        refused(NumberRule::Single, "1e39", "32-bit");
    }

    #[test]
    fn untyped_numbers_stay_what_they_are() {
        check(NumberRule::Untyped, "1", "1");
        check(NumberRule::Untyped, "1.0", "1.0");
        check(
            NumberRule::Untyped,
            "18446744073709551615",
            "18446744073709551615",
        );
        refused(NumberRule::Untyped, "18446744073709551616", "64-bit");
        refused(NumberRule::Untyped, "-9223372036854775809", "64-bit");
        check(
            NumberRule::Untyped,
            "-9223372036854775808",
            "-9223372036854775808",
        );
        check(NumberRule::UntypedDouble, "1e300", "1e300");
    }
}
