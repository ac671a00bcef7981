//! What must hold for all arguments: equal meaning, equal digest, and nothing else.

use proptest::{
    collection::{btree_map, btree_set, vec},
    option,
    prelude::*,
    sample::{Index, subsequence},
    strategy::ValueTree,
    test_runner::TestRunner,
};

use super::{exact::Exact, *};

fn zero() -> Exact {
    Exact("0.0".into())
}

fn beyond() -> Exact {
    Exact("9007199254740993".into())
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
struct Typed {
    text: String,
    #[serde(default)]
    count: u64,
    #[serde(default)]
    delta: i64,
    #[serde(default = "zero")]
    #[schemars(with = "f64")]
    ratio: Exact,
    amount: Option<Exact>,
    #[serde(default = "beyond")]
    price: Exact,
    #[serde(default)]
    tags: BTreeSet<String>,
    #[serde(default)]
    items: Vec<Option<u8>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    note: Option<String>,
    #[serde(default = "five")]
    limit: Option<u32>,
    kind: Option<Kind>,
    #[serde(default)]
    any: Value,
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind")]
enum Kind {
    A {
        #[serde(default)]
        x: i64,
        y: Option<String>,
    },
    B {
        #[serde(default = "zero")]
        #[schemars(with = "f64")]
        x: Exact,
    },
}

/// Texts of the bytes that mean something in the canonical form and in JSON, so that
/// boundaries get a chance to shift.
fn text() -> impl Strategy<Value = String> {
    "[amosen\u{1}\u{2}\u{3}\":,\\\\\u{e9}]{0,3}"
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_u64..3).prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        (1_i32..4).prop_map(|half| Value::from(f64::from(half) / 2.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(text(), inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Numbers as JSON text, near the edges and in several spellings.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_u8..3).prop_map(|value| value.to_string()),
        (0_u8..3).prop_map(|value| format!("{value}.0")),
        (0_u8..3).prop_map(|value| format!("{value}e0")),
        Just("-0.0".to_owned()),
        (0_u64..3).prop_map(|less| (u64::MAX - less).to_string()),
        (0_i64..3).prop_map(|more| (i64::MIN + more).to_string()),
        (0_u64..3).prop_map(|more| ((1 << 53) - 1 + more).to_string()),
        any::<u64>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>()
            .prop_filter("JSON has finite numbers", |value| value.is_finite())
            .prop_map(|value| format!("{value:?}")),
    ]
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The members of arguments as JSON text, each given or not, valid or not quite.
fn members() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let strings = |texts: Vec<String>| {
        let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
        format!("[{}]", texts.join(","))
    };
    let kind = prop_oneof![
        (option::of(number()), option::of(text())).prop_map(|(x, y)| {
            let x = x.map_or_else(String::new, |x| format!(r#","x":{x}"#));
            let y = y.map_or_else(String::new, |y| format!(r#","y":{}"#, quoted(&y)));
            format!(r#"{{"kind":"A"{x}{y}}}"#)
        }),
        option::of(number()).prop_map(|x| {
            let x = x.map_or_else(String::new, |x| format!(r#""x":{x},"#));
            format!(r#"{{{x}"kind":"B"}}"#)
        }),
        Just("null".to_owned()),
    ];
    let all = (
        text().prop_map(|text| quoted(&text)),
        number().boxed(),
        number().boxed(),
        (number(), number(), number()).boxed(),
        btree_set(text(), 0..3)
            .prop_map(|tags| tags.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
            .prop_map(strings),
        vec(option::of(0_u8..3), 0..3).prop_map(|items| Value::from(items).to_string()),
        btree_map(text(), text(), 0..3).prop_map(|labels| {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)))
                .collect();
            format!("{{{}}}", labels.join(","))
        }),
        option::of(text())
            .prop_map(|note| note.map_or_else(|| "null".to_owned(), |note| quoted(&note))),
        prop_oneof![
            Just("null".to_owned()),
            Just("5".to_owned()),
            Just("5.0".to_owned()),
            number()
        ],
        kind.boxed(),
        json().prop_map(|any| any.to_string()).boxed(),
    );
    let names = [
        "count", "delta", "ratio", "amount", "price", "tags", "items", "labels", "note", "limit",
        "kind", "any",
    ];
    (all, subsequence(names.to_vec(), 0..=names.len())).prop_map(move |(all, given)| {
        let (text, count, delta, reals, tags, items, labels, note, limit, kind, any) = all;
        let (ratio, amount, price) = reals;
        let values = [
            count, delta, ratio, amount, price, tags, items, labels, note, limit, kind, any,
        ];
        let optional = names
            .into_iter()
            .zip(values)
            .filter(|(name, _)| given.contains(name));
        std::iter::once(("text", text)).chain(optional).collect()
    })
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn untyped_form(value: &Value) -> Vec<u8> {
    let mut form = Form::default();
    canonical::write(&node::UNTYPED, value, &mut form);
    form.bytes
}

thread_local! {
    static TYPED: CompiledArguments = compiled::<Typed>();
}

fn prepare(text: &str) -> Option<(Typed, Fingerprint)> {
    TYPED.with(|contract| {
        let prepared = contract.prepare(&parse(text)).ok()?;
        let typed = Typed::from_json(&prepared.arguments).expect("what is validated can be read");
        Some((typed, prepared.fingerprint))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn untyped_values_share_a_form_only_if_they_are_one(left in json(), right in json()) {
        prop_assert_eq!(left == right, untyped_form(&left) == untyped_form(&right));
    }

    #[test]
    fn no_form_begins_another(left in json(), right in json()) {
        if left != right {
            prop_assert!(!untyped_form(&left).starts_with(&untyped_form(&right)));
        }
    }

    #[test]
    fn arguments_share_a_digest_exactly_if_the_handler_sees_the_same(
        left in members(),
        right in members(),
        same in vec(any::<Index>(), 0..12),
    ) {
        // Two independent sets rarely agree, so the right one takes most of the left's members.
        let mut right = right;
        for index in same {
            let (name, value) = index.get(&left);
            match right.iter_mut().find(|(it, _)| it == name) {
                Some(member) => member.1.clone_from(value),
                None => right.push((name, value.clone())),
            }
        }
        if let (Some((left, one)), Some((right, other))) =
            (prepare(&object(&left)), prepare(&object(&right)))
        {
            let same = one.as_bytes() == other.as_bytes();
            prop_assert_eq!(left == right, same, "{:?} {:?}", left, right);
            // What is stored is of no other request, whatever the first format may have meant.
            prop_assert_eq!(left == right, one.is_of(&other), "{:?} {:?}", left, right);
        }
    }

    #[test]
    fn order_and_spelled_defaults_change_nothing(
        (given, shuffled) in members().prop_flat_map(|given| {
            let mut full = given.clone();
            let defaults = [
                ("count", "0.0"), ("delta", "0"), ("ratio", "0e5"), ("amount", "null"),
                ("price", "9007199254740993"), ("tags", "[]"),
                ("items", "[]"), ("labels", "{}"), ("note", "null"), ("limit", "5"),
                ("kind", "null"), ("any", "null"),
            ];
            for (name, value) in defaults {
                if full.iter().all(|(it, _)| *it != name) {
                    full.push((name, value.to_owned()));
                }
            }
            (Just(given), Just(full).prop_shuffle())
        }),
    ) {
        let (given, shuffled) = (prepare(&object(&given)), prepare(&object(&shuffled)));
        prop_assert_eq!(given.is_some(), shuffled.is_some());
        if let (Some((given, one)), Some((shuffled, other))) = (given, shuffled) {
            prop_assert_eq!(given, shuffled);
            prop_assert_eq!(one.as_bytes(), other.as_bytes());
        }
    }

    #[test]
    fn integers_never_collide(left in any::<u64>(), right in any::<u64>(), near in 0_u64..4) {
        for (left, right) in [(left, right), (left, left.wrapping_add(near))] {
            let digest = |count: u64| {
                let (_, digest) = prepare(&format!(r#"{{"text":"","count":{count}}}"#))?;
                Some(digest)
            };
            let (one, other) = (digest(left), digest(right));
            prop_assert!(one.is_some());
            prop_assert_eq!(left == right, one == other);
        }
    }
}

#[test]
fn the_generator_of_arguments_finds_valid_ones() {
    let mut runner = TestRunner::deterministic();
    let valid = (0..500)
        .filter(|_| {
            let members = members().new_tree(&mut runner).unwrap().current();
            prepare(&object(&members)).is_some()
        })
        .count();
    assert!(valid > 100, "only {valid} of 500 are valid");
}
