//! Canonicalizing and digesting arguments, against the least that could be done.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use idempotent_tool::{Failure, Tx, idempotent_tool, internals::Arguments};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    cases::Plan,
    report::{Asked, Report, Row, median},
};

/// One line of an order.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code)] // Only its schema counts.
struct Line {
    article: String,
    count: u32,
    price: f64,
    remarks: Option<String>,
}

/// Place an order.
#[idempotent_tool(operation = "place_order:v1")]
#[allow(dead_code)] // Only its schema counts.
fn place_order(_tx: &Tx, customer: String, express: bool, lines: Vec<Line>) -> Result<(), Failure> {
    let _ = (customer, express, lines);
    Ok(())
}

pub(crate) fn run(plan: Plan, report: &mut Report) {
    let arguments = Arguments::of::<place_order>().expect("a schema");
    for (label, lines) in [("100 B", 1), ("10 kB", 120), ("1 MB", 12_500)] {
        let value = order(lines);
        let bytes = value.to_string().len();
        let ours = || {
            black_box(arguments.fingerprint(black_box(&value)));
        };
        let other = || {
            let text = serde_json::to_vec(black_box(&value)).expect("JSON");
            black_box(Sha256::digest(&text));
        };
        let (mut with_ours, mut with_other) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            with_ours.push(microseconds(ours, plan.time / 10));
            with_other.push(microseconds(other, plan.time / 10));
        }
        let ratios = with_other
            .iter()
            .zip(&with_ours)
            .map(|(other, ours)| other / ours);
        let mut row = Row::figure(
            format!("canonicalize and digest {label}"),
            1,
            "us",
            Asked::AtLeast(0.9),
            ratios.collect(),
            &with_other,
            "sorted serde_json write and the same digest",
        );
        row.ours = median(&with_ours);
        report.row(row.with_note(format!("({bytes} bytes of JSON; ratio of their speeds)")));
    }
}

fn order(lines: usize) -> Value {
    let line = |number: usize| json!({ "article": format!("article {number}"), "count": number % 7, "price": 9.95, "remarks": "as before" });
    json!({ "customer": "acme", "express": true, "lines": (0..lines).map(line).collect::<Vec<_>>() })
}

/// How long one run takes, by as many as fit into `time`.
fn microseconds(run: impl Fn(), time: Duration) -> f64 {
    run();
    let began = Instant::now();
    let mut runs = 0_u32;
    while began.elapsed() < time {
        run();
        runs += 1;
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(runs.max(1))
}
