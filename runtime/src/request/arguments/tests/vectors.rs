//! Every vector of `tests/cases/canonical.json`, with its digest of the day it was written.

use std::fmt::Write;

use serde::Serialize;

use super::*;

const CASES: &str = include_str!("../../../../../tests/cases/canonical.json");
/// Digests of the vectors. A change of one makes every live key of every user a conflict:
/// it takes another format byte, never another golden file.
const GOLDEN: &str = include_str!("../../../../../tests/cases/digests.json");

#[derive(Deserialize)]
struct Cases {
    pairs: Vec<Pair>,
    rejected: Vec<Rejected>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    left: String,
    right: String,
    same: bool,
}

#[derive(Deserialize)]
struct Rejected {
    name: String,
    arguments: String,
    path: String,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Probe {
    text: String,
    #[serde(default)]
    count: u64,
    #[serde(default)]
    delta: i64,
    #[serde(default = "one")]
    ratio: f64,
    #[serde(default = "yes")]
    exact: bool,
    #[serde(default)]
    tags: BTreeSet<String>,
    #[serde(default)]
    items: Vec<i64>,
    #[serde(default)]
    labels: HashMap<String, String>,
    note: Option<String>,
    #[serde(default)]
    nested: Nested,
    #[serde(default = "five")]
    limit: Option<u32>,
    #[serde(default, skip_serializing)]
    password: String,
    #[serde(default)]
    any: Value,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Nested {
    a: i64,
    #[serde(default = "yes")]
    b: bool,
    c: Option<f64>,
}

impl Default for Nested {
    fn default() -> Self {
        Self {
            a: 0,
            b: true,
            c: None,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn probe() -> CompiledArguments {
    // What the attribute supplies for a parameter that schemars has no default of.
    let password = ArgumentDefault {
        name: "password",
        make: || serde_json::to_string(""),
    };
    compile::<Probe>(&[password]).unwrap()
}

fn cases() -> Cases {
    serde_json::from_str(CASES).unwrap()
}

pub(super) fn hex(fingerprint: Fingerprint) -> String {
    fingerprint
        .as_bytes()
        .iter()
        .fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        })
}

#[test]
fn pairs_are_one_or_two() {
    let contract = probe();
    let cases = cases();
    assert!(cases.pairs.len() >= 36);
    for Pair {
        name,
        left,
        right,
        same,
    } in cases.pairs
    {
        let equal = fingerprint(&contract, &left) == fingerprint(&contract, &right);
        assert_eq!(equal, same, "{name}");
    }
}

#[test]
fn rejections_name_the_path() {
    let contract = probe();
    let cases = cases();
    assert!(cases.rejected.len() >= 12);
    for Rejected {
        name,
        arguments,
        path,
    } in cases.rejected
    {
        let errors = match serde_json::from_str(&arguments) {
            Ok(value) => as_object(value)
                .and_then(|map| contract.prepare(&map))
                .map(|_| ())
                .unwrap_err(),
            // What no parser accepts may fail before us.
            Err(_) if name == "not finite" => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        let paths: Vec<_> = errors.details().iter().map(InvalidArgument::path).collect();
        assert_eq!(paths, [path], "{name}");
    }
}

#[test]
fn digests_are_those_that_were_committed() {
    let contract = probe();
    let golden: BTreeMap<String, [String; 2]> = serde_json::from_str(GOLDEN).unwrap();
    let now: BTreeMap<String, [String; 2]> = cases()
        .pairs
        .into_iter()
        .map(
            |Pair {
                 name, left, right, ..
             }| {
                (
                    name,
                    [left, right].map(|text| hex(fingerprint(&contract, &text))),
                )
            },
        )
        .collect();
    assert_eq!(now, golden);
}
