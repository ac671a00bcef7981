//! The bytes that are digested: equal exactly for arguments that mean the same.
//!
//! Every value starts with a byte that tells its type, texts carry their length, and
//! arrays and objects end with a byte that starts no value, so no two values share their
//! bytes and no boundary can shift. Changing anything here changes fingerprints: it takes
//! another format byte in [`Fingerprint`](super::fingerprint::Fingerprint).

use serde_json::{Map, Number, Value};

use super::{
    node::{ArrayRule, Member, Members, Node, ObjectRule},
    number::{Reading, read},
};

const NULL: u8 = b'n';
const FALSE: u8 = b'f';
const TRUE: u8 = b't';
const UNSIGNED: u8 = b'u';
const NEGATIVE: u8 = b'i';
const DOUBLE: u8 = b'd';
const TEXT: u8 = b's';
const ARRAY: u8 = b'a';
const OBJECT: u8 = b'o';
const MEMBER: u8 = b'm';
const END: u8 = b'e';

/// Writes a normalized and validated value.
pub(super) fn write(node: &Node, value: &Value, out: &mut Vec<u8>) {
    let node = node.of(value);
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => {
            out.push(TEXT);
            write_text(text, out);
        }
        Value::Array(elements) => write_array(node, elements, out),
        Value::Object(members) => write_object(node, members, out),
    }
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    let (tag, bytes) = match read(number) {
        Reading::Unsigned(value) => (UNSIGNED, value.to_be_bytes()),
        Reading::Negative(value) => (NEGATIVE, value.to_be_bytes()),
        Reading::Double(value) => (DOUBLE, value.to_bits().to_be_bytes()),
        // Normalizing refuses it.
        Reading::Infinite => (DOUBLE, f64::INFINITY.to_bits().to_be_bytes()),
    };
    out.push(tag);
    out.extend_from_slice(&bytes);
}

/// Writes a text after its length: seven bits a byte, the lowest first, the high bit on
/// all but the last.
fn write_text(text: &str, out: &mut Vec<u8>) {
    let mut length = text.len();
    loop {
        let [low, ..] = length.to_le_bytes();
        length >>= 7;
        if length == 0 {
            out.push(low);
            break;
        }
        out.push(low | 0x80);
    }
    out.extend_from_slice(text.as_bytes());
}

fn write_array(node: &Node, elements: &[Value], out: &mut Vec<u8>) {
    out.push(ARRAY);
    if let ArrayRule::Items {
        unordered: true, ..
    } = node.array
        && elements.len() > 1
    {
        let mut forms: Vec<Vec<u8>> = elements
            .iter()
            .enumerate()
            .map(|(index, element)| {
                let mut form = Vec::new();
                write(node.element(index), element, &mut form);
                form
            })
            .collect();
        forms.sort_unstable();
        forms.iter().for_each(|form| out.extend_from_slice(form));
    } else {
        for (index, element) in elements.iter().enumerate() {
            write(node.element(index), element, out);
        }
    }
    out.push(END);
}

fn write_object(node: &Node, members: &Map<String, Value>, out: &mut Vec<u8>) {
    out.push(OBJECT);
    match &node.object {
        // Closed, so the schema's own order serves and nothing is sorted.
        ObjectRule::Members(described @ Members { others: None, .. }) => {
            for member in described.known() {
                if let Some(value) = members.get(&member.name) {
                    write_member(member, value, out);
                }
            }
        }
        ObjectRule::Members(described) => sorted(members, |name, value| {
            match (described.get(name), &described.others) {
                (Some(member), _) => write_member(member, value, out),
                (None, others) => {
                    write_entry(name, others.as_deref().unwrap_or(node.below()), value, out);
                }
            }
        }),
        ObjectRule::Untyped => {
            sorted(members, |name, value| {
                write_entry(name, node.below(), value, out)
            });
        }
    }
    out.push(END);
}

fn write_entry(name: &str, node: &Node, value: &Value, out: &mut Vec<u8>) {
    out.push(MEMBER);
    write_text(name, out);
    write(node, value, out);
}

/// Writes a member, unless it only repeats its default.
fn write_member(member: &Member, value: &Value, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(MEMBER);
    write_text(&member.name, out);
    let value_start = out.len();
    write(&member.node, value, out);
    if member.optional && out.get(value_start..) == Some(member.default.as_slice()) {
        out.truncate(start);
    }
}

/// Visits the members by name, whether or not `serde_json` keeps them so.
fn sorted<'a>(members: &'a Map<String, Value>, mut visit: impl FnMut(&'a str, &'a Value)) {
    if members.keys().is_sorted() {
        members.iter().for_each(|(name, value)| visit(name, value));
        return;
    }
    let mut by_name: Vec<_> = members.iter().collect();
    by_name.sort_unstable_by_key(|(name, _)| name.as_str());
    by_name
        .into_iter()
        .for_each(|(name, value)| visit(name, value));
}
