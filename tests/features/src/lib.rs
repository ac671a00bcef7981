//! The tools that the vectors in `../cases/canonical.json` and `../cases/exact.json` describe.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use idempotent_tool::{Failure, Tx, idempotent_tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// A nested argument.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Nested {
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

fn yes() -> bool {
    true
}

fn five() -> Option<u32> {
    Some(5)
}

fn one() -> f64 {
    1.0
}

/// Returns what it got, as the handler sees it.
#[idempotent_tool(operation = "canonical_probe:v1")]
pub fn canonical_probe(
    _tx: &Tx,
    text: String,
    #[serde(default)] count: u64,
    #[serde(default)] delta: i64,
    #[serde(default = "one")] ratio: f64,
    #[serde(default = "yes")] exact: bool,
    #[serde(default)] tags: BTreeSet<String>,
    #[serde(default)] items: Vec<i64>,
    #[serde(default)] labels: HashMap<String, String>,
    note: Option<String>,
    #[serde(default)] nested: Nested,
    #[serde(default = "five")] limit: Option<u32>,
    #[serde(default, skip_serializing)] password: String,
    #[serde(default)] any: Value,
) -> Result<String, Failure> {
    Ok(format!(
        "{text:?} {count} {delta} {ratio:?} {exact} {tags:?} {items:?} {labels} {note:?} \
         {nested:?} {limit:?} {password:?} {any}",
        labels = labels.len(),
    ))
}

/// Results whose bytes a parser in between would change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Extremes {
    z_first: f32,
    largest: u64,
    least: i64,
    whole: f64,
    tiny: f64,
    any: Value,
    unit: (),
}

/// Returns numbers at their limits.
#[idempotent_tool(operation = "extremes:v1")]
pub fn extremes(_tx: &Tx, #[serde(default = "tenth")] single: f32) -> Result<Extremes, Failure> {
    Ok(Extremes {
        z_first: single,
        largest: u64::MAX,
        least: i64::MIN,
        whole: 1.0,
        tiny: f64::MIN_POSITIVE,
        any: Value::from(0.5),
        unit: (),
    })
}

fn tenth() -> f32 {
    0.1
}

/// A decimal as libraries have it: exact, of any number that it is given.
#[derive(Debug)]
pub struct Exact(String);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Number::deserialize(deserializer)?.to_string()))
    }
}

impl Serialize for Exact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: Number = self.0.parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl JsonSchema for Exact {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Exact".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number" })
    }
}

/// A newtype around one.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Price(Exact);

fn beyond() -> Price {
    Price(Exact("9007199254740993".to_owned()))
}

/// Exact numbers further down.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Prices {
    #[serde(default = "beyond")]
    price: Price,
    #[serde(default)]
    list: Vec<Exact>,
    #[serde(default)]
    by_name: BTreeMap<String, Exact>,
}

fn prices() -> Prices {
    Prices {
        price: beyond(),
        list: Vec::new(),
        by_name: BTreeMap::new(),
    }
}

/// Returns the numbers that it got, as the handler sees them.
#[idempotent_tool(operation = "exact_probe:v1")]
pub fn exact_probe(
    _tx: &Tx,
    exact: Option<Exact>,
    number: Option<Number>,
    #[schemars(with = "Option<f64>")] disguised: Option<Exact>,
    #[serde(default = "beyond")] price: Price,
    #[serde(default = "prices")] nested: Prices,
) -> Result<String, Failure> {
    let number = number.map(|number| number.to_string());
    Ok(format!(
        "{exact:?} {number:?} {disguised:?} {price:?} {nested:?}"
    ))
}
