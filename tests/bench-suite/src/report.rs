//! The table, and the same as JSON lines.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use serde_json::json;

use crate::load::Measured;

/// What a figure is asked to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    AtLeast(f64),
    AtMost(f64),
    /// The figure is only stated.
    Stated,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub case: String,
    pub callers: usize,
    pub unit: &'static str,
    /// What the other side is; empty if the figure stands alone.
    pub against: &'static str,
    pub ours: f64,
    pub other: f64,
    /// Of each round.
    pub ratios: Vec<f64>,
    pub asked: Asked,
    /// Median and 99th percentile of a call's latency on our side, in microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    /// The other side's median.
    pub other_p50_us: f64,
    pub note: String,
}

/// Prints rows as they come, and keeps them as JSON lines.
pub(crate) struct Report {
    json: Option<BufWriter<File>>,
    missed: Vec<String>,
}

impl Report {
    pub(crate) fn new(json: Option<&Path>) -> Self {
        let json = json.map(|path| BufWriter::new(File::create(path).expect("the JSON file")));
        println!(
            "{:<52} {:>7} {:>11} {:>11}  {:>7} {:>15}  {:>8}  {:>8} {:>9} {:>9}",
            "case",
            "callers",
            "ours",
            "other",
            "ratio",
            "range",
            "asked",
            "p50 us",
            "p99 us",
            "other p50"
        );
        Self {
            json,
            missed: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, mut row: Row) {
        row.ratios.sort_by(f64::total_cmp);
        let ratio = median(&row.ratios);
        let (least, most) = (row.ratios.first().copied(), row.ratios.last().copied());
        let range = match (least, most) {
            (Some(least), Some(most)) if 1 < row.ratios.len() => format!("{least:.2}..{most:.2}"),
            _ => String::new(),
        };
        let (asked, met) = match row.asked {
            Asked::AtLeast(bound) => (format!(">= {bound}"), bound <= ratio),
            Asked::AtMost(bound) => (format!("<= {bound}"), ratio <= bound),
            Asked::Stated => (String::new(), true),
        };
        if !met {
            self.missed.push(row.case.clone());
        }
        println!(
            "{:<52} {:>7} {:>11} {:>11}  {:>7.3} {:>15}  {:>8}{} {:>8.1} {:>9.1} {:>9.1}  {} {}",
            row.case,
            row.callers,
            number(row.ours),
            number(row.other),
            ratio,
            range,
            asked,
            if met { " " } else { "!" },
            row.p50_us,
            row.p99_us,
            row.other_p50_us,
            if row.against.is_empty() {
                String::new()
            } else {
                format!("{}; other: {}", row.unit, row.against)
            },
            row.note,
        );
        if let Some(json) = &mut self.json {
            let line = json!({
                "case": row.case, "callers": row.callers, "ours": row.ours, "other": row.other,
                "ratio": ratio, "p50_us": row.p50_us, "p99_us": row.p99_us,
                "other_p50_us": row.other_p50_us,
                "least": least, "most": most, "rounds": row.ratios.len(), "unit": row.unit,
                "against": row.against, "asked": asked, "met": met, "note": row.note,
            });
            writeln!(json, "{line}")
                .and_then(|()| json.flush())
                .expect("the JSON file");
        }
    }

    /// Says which figures are not what was asked.
    pub(crate) fn finish(self) {
        if self.missed.is_empty() {
            println!("every figure is as asked");
        } else {
            println!(
                "{} figures are not as asked: {}",
                self.missed.len(),
                self.missed.join(", ")
            );
        }
    }
}

impl Row {
    /// Calls per second, round by round.
    pub(crate) fn throughput(
        case: impl Into<String>,
        callers: usize,
        against: &'static str,
        asked: Asked,
        ours: &[Measured],
        other: &[Measured],
    ) -> Self {
        let rates = |side: &[Measured]| side.iter().map(Measured::per_second).collect::<Vec<_>>();
        Self {
            case: case.into(),
            callers,
            unit: "calls/s",
            against,
            ours: median(&rates(ours)),
            other: median(&rates(other)),
            ratios: rates(ours)
                .iter()
                .zip(rates(other))
                .map(|(ours, other)| ours / other)
                .collect(),
            asked,
            p50_us: median(&ours.iter().map(|run| run.permille(500)).collect::<Vec<_>>()),
            p99_us: median(&ours.iter().map(|run| run.permille(990)).collect::<Vec<_>>()),
            other_p50_us: median(
                &other
                    .iter()
                    .map(|run| run.permille(500))
                    .collect::<Vec<_>>(),
            ),
            note: String::new(),
        }
    }

    /// A figure of each round, of which only ours is asked anything.
    pub(crate) fn figure(
        case: impl Into<String>,
        callers: usize,
        unit: &'static str,
        asked: Asked,
        ours: Vec<f64>,
        other: &[f64],
        against: &'static str,
    ) -> Self {
        Self {
            case: case.into(),
            callers,
            unit,
            against,
            ours: median(&ours),
            other: median(other),
            ratios: ours,
            asked,
            p50_us: 0.0,
            p99_us: 0.0,
            other_p50_us: f64::NAN,
            note: String::new(),
        }
    }

    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(middle), 1) => *middle,
        (Some(upper), _) => f64::midpoint(values[middle - 1], *upper),
        (None, _) => f64::NAN,
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "-".to_owned()
    } else if value.abs() < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}
