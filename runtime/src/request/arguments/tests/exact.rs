//! Numbers that no double stands for: kept, told apart, and never taken for what the first
//! format made of them.

use serde::Serialize;
use serde_json::Number;

use super::*;

/// A decimal as libraries have it: exact, of any number that it is given.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exact(pub(super) String);

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

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "number" })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Price(Exact);

fn beyond() -> Price {
    Price(Exact("9007199254740993".into()))
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Nested {
    #[serde(default = "beyond")]
    price: Price,
    #[serde(default)]
    list: Vec<Exact>,
    #[serde(default)]
    by_name: BTreeMap<String, Exact>,
}

fn nested() -> Nested {
    Nested {
        price: beyond(),
        list: Vec::new(),
        by_name: BTreeMap::new(),
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Amount {
    Text(String),
    Number(Exact),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Exactly {
    exact: Option<Exact>,
    number: Option<Number>,
    #[schemars(with = "Option<f64>")]
    disguised: Option<Exact>,
    #[serde(default = "beyond")]
    price: Price,
    #[serde(default = "nested")]
    nested: Nested,
    amount: Option<Amount>,
    double: Option<f64>,
    #[serde(default = "limit")]
    limit: Exact,
}

fn limit() -> Exact {
    Exact("9007199254740992".into())
}

fn contract() -> CompiledArguments {
    compiled::<Exactly>()
}

fn prepare(text: &str) -> Result<(String, Fingerprint), InvalidArguments> {
    let prepared = contract().prepare(&parse(text))?;
    let seen = Exactly::from_json(&prepared.arguments).expect("what is validated can be read");
    Ok((format!("{seen:?}"), prepared.fingerprint))
}

/// The places of a number among the arguments.
const PLACES: [&str; 8] = [
    r#"{"exact":N}"#,
    r#"{"number":N}"#,
    r#"{"disguised":N}"#,
    r#"{"price":N}"#,
    r#"{"nested":{"price":N}}"#,
    r#"{"nested":{"list":[1,N]}}"#,
    r#"{"nested":{"by_name":{"a":N}}}"#,
    r#"{"amount":N}"#,
];

#[test]
fn an_integer_that_no_double_stands_for_is_kept_and_told_apart() {
    for place in PLACES {
        let mut found: Vec<(String, Fingerprint)> = Vec::new();
        for number in [
            "9007199254740991",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994",
            "9007199254740995",
            "-9007199254740993",
            "-9007199254740992",
            "18446744073709551615",
            "18446744073709551614",
            "-9223372036854775808",
            "-9223372036854775807",
        ] {
            let (seen, fingerprint) = prepare(&place.replace('N', number)).unwrap();
            let digits = number.trim_start_matches('-');
            // A double that is exact is shown with a fraction or an exponent.
            let shown = digits.get(..15).unwrap();
            assert!(
                seen.contains(digits) || seen.replace('.', "").contains(shown),
                "{place} {number}: {seen}"
            );
            for (other, with) in &found {
                assert_ne!(*other, seen, "{place} {number}");
                assert_ne!(with.as_bytes(), fingerprint.as_bytes(), "{place} {number}");
                assert!(!with.is_of(&fingerprint), "{place} {number}");
                assert!(!fingerprint.is_of(with), "{place} {number}");
            }
            found.push((seen, fingerprint));
        }
    }
}

#[test]
fn the_second_format_is_written_only_where_it_says_more() {
    let format = |text: &str| prepare(text).unwrap().1.as_bytes()[0];
    for place in &PLACES[..4] {
        // The default of `price` is beyond doubles; giving another leaves that of `nested`.
        let given = |number: &str| {
            let text = place.replace('N', number);
            let price = if text.contains("price") {
                ""
            } else {
                r#""price":1,"#
            };
            format(&text.replacen('{', &format!(r#"{{{price}"nested":{{"price":1}},"#), 1))
        };
        assert_eq!(given("1"), 1, "{place}");
        assert_eq!(given("9007199254740992"), 1, "{place}");
        assert_eq!(given("9007199254740993"), 2, "{place}");
    }
    let bare = r#""price":1,"nested":{"price":1}"#;
    assert_eq!(format(&format!("{{{bare}}}")), 1);
    assert_eq!(format(&format!(r#"{{{bare},"double":1e300}}"#)), 1);
    assert_eq!(
        format(r#"{"nested":{"price":1}}"#),
        2,
        "its default could be meant"
    );
}

#[test]
fn a_default_that_no_double_stands_for_is_itself() {
    let absent = prepare("{}").unwrap();
    for same in [
        r#"{"price":9007199254740993}"#,
        r#"{"nested":{"price":9007199254740993}}"#,
        r#"{"nested":{}}"#,
    ] {
        let given = prepare(same).unwrap();
        assert_eq!(given.0, absent.0, "{same}");
        assert!(
            given.1.is_of(&absent.1) && absent.1.is_of(&given.1),
            "{same}"
        );
    }
    for other in [
        r#"{"price":9007199254740992}"#,
        r#"{"price":9007199254740994}"#,
        r#"{"nested":{"price":9007199254740992}}"#,
    ] {
        let given = prepare(other).unwrap();
        assert_ne!(given.0, absent.0, "{other}");
        assert!(
            !given.1.is_of(&absent.1) && !absent.1.is_of(&given.1),
            "{other}"
        );
    }
    let listed = Value::Object(contract().schema().clone());
    for (name, default) in [("price", "9007199254740993"), ("limit", "9007199254740992")] {
        let listed = &listed["properties"][name]["default"];
        assert_eq!(listed.to_string(), default);
        prepare(&format!(r#"{{"{name}":{listed}}}"#)).unwrap();
    }
}

#[test]
fn what_a_parser_may_have_rounded_is_refused_where_a_number_may_be_exact() {
    for (index, place) in PLACES.into_iter().enumerate() {
        for number in [
            "9007199254740993.0",
            "1e16",
            "18446744073709551616",
            "1e300",
        ] {
            let refused = prepare(&place.replace('N', number)).is_err();
            // What is declared as a double may be as large as one.
            assert_eq!(refused, index != 2, "{place} {number}");
        }
        prepare(&place.replace('N', "9007199254740991.0")).unwrap();
        prepare(&place.replace('N', "0.1")).unwrap();
    }
    prepare(r#"{"double":1e300}"#).unwrap();
}

/// A contract that was recorded when every number was rounded still has the same default.
#[test]
fn a_default_that_was_recorded_rounded_is_the_same() {
    let schema = json!({ "type": "number" });
    let beyond = json!(9_007_199_254_740_993_u64);
    let (same, was_rounded, changed) = (
        DefaultChange::None,
        DefaultChange::WasRounded,
        DefaultChange::Changed,
    );
    for (was, is, expect) in [
        (json!(9_007_199_254_740_992.0), &beyond, was_rounded),
        (beyond.clone(), &beyond, same),
        (json!(9_007_199_254_740_994.0), &beyond, changed),
        (beyond.clone(), &json!(9_007_199_254_740_992_u64), changed),
        (json!(1), &json!(1.0), same),
    ] {
        assert_eq!(default_change(&schema, &was, is), expect, "{was} {is}");
    }
}

/// The digests of `tests/cases/exact.json` are golden as those of `canonical.json` are.
#[test]
fn the_vectors_of_exact_numbers_have_the_digests_that_were_committed() {
    let cases: Value =
        serde_json::from_str(include_str!("../../../../../tests/cases/exact.json")).unwrap();
    let golden: BTreeMap<String, [String; 2]> = serde_json::from_str(include_str!(
        "../../../../../tests/cases/exact_digests.json"
    ))
    .unwrap();
    let mut now = BTreeMap::new();
    for pair in cases["pairs"].as_array().unwrap() {
        let name = pair["name"].as_str().unwrap();
        let fingerprint = |side: &str| prepare(pair[side].as_str().unwrap()).unwrap().1;
        let (left, right) = (fingerprint("left"), fingerprint("right"));
        assert_eq!(left.is_of(&right), pair["same"], "{name}");
        now.insert(name.to_owned(), [left, right].map(vectors::hex));
    }
    assert_eq!(now, golden);
    for case in cases["rejected"].as_array().unwrap() {
        let refused = prepare(case["arguments"].as_str().unwrap()).unwrap_err();
        let paths: Vec<_> = refused
            .details()
            .iter()
            .map(InvalidArgument::path)
            .collect();
        assert_eq!(paths, [case["path"].as_str().unwrap()], "{}", case["name"]);
    }
}
