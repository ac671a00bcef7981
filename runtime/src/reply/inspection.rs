//! What `get_operation` tells beyond an operation's own reply.

use std::time::Duration;

use crate::{
    clock::{Moment, Timestamp},
    operation::record::{AttemptRecord, Record},
};

/// An operation's attempts and times.
#[derive(Debug, Clone)]
pub(crate) struct Inspection {
    pub(super) attempts: Vec<AttemptRecord>,
    pub(super) next_check_at: Option<Timestamp>,
    pub(super) key_expires_at: Option<Timestamp>,
}

impl Inspection {
    /// What to tell of `record`, its times as the time of day.
    pub(crate) fn of(record: &Record, now: Moment) -> Self {
        let mut attempts = record.attempts.clone();
        for attempt in &mut attempts {
            attempt.started_at = now.time_of_day(attempt.started_at);
        }
        let ends = record.ends.map(|ends| now.time_of_day(ends.expires_at));
        Self {
            attempts,
            next_check_at: record.due_at.map(|due| now.time_of_day(due)),
            key_expires_at: ends,
        }
    }
}

/// A time as RFC 3339 writes it, in UTC and to the millisecond.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let milliseconds = u64::try_from(at.0).unwrap_or(0);
    let since_epoch = Duration::from_millis(milliseconds);
    let (days, seconds) = (
        since_epoch.as_secs() / 86_400,
        since_epoch.as_secs() % 86_400,
    );
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        since_epoch.subsec_millis()
    )
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    // Whole cycles of 400 years first: each has the same number of days.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days_of_year(year) <= days {
        days -= days_of_year(year);
        year += 1;
    }
    let mut month = 1;
    while days_of_month(year, month) <= days {
        days -= days_of_month(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_054_399_999, "2026-11-30T15:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (13_569_465_600_000, "2400-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp(milliseconds)), expected);
        }
    }
}
