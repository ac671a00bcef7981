//! `name:vN`, durations and sizes: checked when the user's crate is compiled.
//!
//! The functions are on plain text; the caller knows where it stands.

use std::time::Duration;

/// What `operation = "name:vN"` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) version: u32,
}

const LONGEST_NAME: usize = 64;
const HIGHEST_VERSION: u32 = 999_999_999;
const LONGEST_DAYS: u64 = 36_500;
const DAY: u64 = 24 * 60 * 60;
const LARGEST_SIZE: u64 = 512 * 1024 * 1024;

/// Reads `name:vN`.
pub(crate) fn operation(text: &str) -> Result<Operation, String> {
    let Some((name, version)) = text.split_once(':') else {
        let like = match check_name(text) {
            Ok(()) => format!("did you mean `{text}:v1`?"),
            Err(_) => "write it like `create_note:v1`".to_owned(),
        };
        return Err(format!(
            "an operation is `name:vN`, and `{text}` names no version; {like}"
        ));
    };
    check_name(name)?;
    Ok(Operation {
        name: name.to_owned(),
        version: parse_version(version)?,
    })
}

fn check_name(name: &str) -> Result<(), String> {
    let rest_is_fine = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !rest_is_fine {
        return Err(format!(
            "`{name}` can't be an operation's name; use `a-z`, `0-9` and `_`, and begin with a letter"
        ));
    }
    if name.len() > LONGEST_NAME {
        return Err(format!(
            "an operation's name has at most {LONGEST_NAME} characters, and this has {}; shorten it",
            name.len()
        ));
    }
    Ok(())
}

fn parse_version(version: &str) -> Result<u32, String> {
    let digits = version.strip_prefix('v').unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{version}` is no version of an operation; write `v` and a number, like `v1`"
        ));
    }
    if digits.starts_with('0') {
        return Err(format!(
            "the version `{version}` begins with a zero; versions are `v1`, `v2` and so on"
        ));
    }
    match digits.parse() {
        Ok(number) if number <= HIGHEST_VERSION => Ok(number),
        _ => Err(format!(
            "the version `{version}` is too high; the highest is `v{HIGHEST_VERSION}`"
        )),
    }
}

/// Reads a duration such as `500ms` or `30d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_number(text);
    if number.is_empty() || unit.is_empty() {
        return Err(format!(
            "`{text}` is no duration; write a whole number and one of `ms`, `s`, `m`, `h`, `d`, like `30d`"
        ));
    }
    let too_long =
        || format!("the duration `{text}` is too long; the longest is `{LONGEST_DAYS}d`");
    let number: u64 = number.parse().map_err(|_| too_long())?;
    let of_seconds = |seconds: u64| number.checked_mul(seconds).map(Duration::from_secs);
    let duration = match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => of_seconds(1),
        "m" => of_seconds(60),
        "h" => of_seconds(60 * 60),
        "d" => of_seconds(DAY),
        _ => {
            return Err(format!(
                "unknown unit of time in `{text}`; use one of `ms`, `s`, `m`, `h`, `d`"
            ));
        }
    };
    match duration {
        Some(Duration::ZERO) => Err("the duration is zero; it must be longer".to_owned()),
        Some(duration) if duration <= Duration::from_secs(LONGEST_DAYS * DAY) => Ok(duration),
        _ => Err(too_long()),
    }
}

/// Reads a size such as `64KiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text);
    if number.is_empty() || unit.is_empty() {
        return Err(format!(
            "`{text}` is no size; write a whole number and one of `B`, `KiB`, `MiB`, `GiB`, like `64KiB`"
        ));
    }
    let factor = match unit {
        "B" => 1,
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        "GiB" => 1024 * 1024 * 1024,
        _ => {
            return Err(format!(
                "unknown unit of size in `{text}`; use one of `B`, `KiB`, `MiB`, `GiB`"
            ));
        }
    };
    check_size(
        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor)),
    )
}

/// Checks a number of bytes; `None` is one that no `u64` holds.
pub(crate) fn check_size(bytes: Option<u64>) -> Result<u64, String> {
    match bytes {
        Some(0) => Err("the size is zero; no result would fit".to_owned()),
        Some(bytes) if bytes <= LARGEST_SIZE => Ok(bytes),
        _ => Err("the size is too large; the largest is `512MiB`".to_owned()),
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations() {
        let longest = "a".repeat(64);
        for (text, name, version) in [
            ("create_note:v1", "create_note", 1),
            ("a:v1", "a", 1),
            ("a1_:v10", "a1_", 10),
            ("a:v999999999", "a", 999_999_999),
            (&format!("{longest}:v2"), longest.as_str(), 2),
        ] {
            let expected = Operation {
                name: name.to_owned(),
                version,
            };
            assert_eq!(operation(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "a",
            ":v1",
            "a:",
            "a:v",
            "a:1",
            "a:v0",
            "a:v01",
            "a:v1000000000",
            "a:v4294967297",
            "a:v99999999999999999999",
            "a:v-1",
            "a:v+1",
            "a:v1 ",
            " a:v1",
            "A:v1",
            "1a:v1",
            "_a:v1",
            "a-b:v1",
            "a.b:v1",
            "ä:v1",
            "a:v1:v2",
            "a:V1",
            "a:v١",
            &format!("{longest}a:v1"),
        ] {
            assert!(operation(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, expected) in [
            ("500ms", Duration::from_millis(500)),
            ("30s", Duration::from_secs(30)),
            ("5m", Duration::from_secs(300)),
            ("24h", Duration::from_secs(DAY)),
            ("30d", Duration::from_secs(30 * DAY)),
            ("36500d", Duration::from_secs(36_500 * DAY)),
            ("1ms", Duration::from_millis(1)),
        ] {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "30",
            "d",
            "0s",
            "0ms",
            "00d",
            "36501d",
            "876001h",
            "18446744073709551615d",
            "99999999999999999999s",
            "1.5h",
            "-1s",
            "+1s",
            "1 d",
            "1d ",
            "1w",
            "1D",
            "1sec",
            "٣d",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1B", 1),
            ("64KiB", 65_536),
            ("1MiB", 1_048_576),
            ("512MiB", 536_870_912),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "64",
            "KiB",
            "0KiB",
            "1GiB",
            "536870913B",
            "18446744073709551615GiB",
            "99999999999999999999B",
            "1KB",
            "1kib",
            "1.5MiB",
            "-1B",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
