//! The bytes that are digested: equal exactly for arguments that mean the same.
//!
//! Every value starts with a byte that tells its type, texts carry their length, and
//! arrays and objects end with a byte that starts no value, so no two values share their
//! bytes and no boundary can shift. Changing anything here changes fingerprints: it takes
//! another format byte in [`Fingerprint`](super::fingerprint::Fingerprint).
//!
//! The first format wrote the integers of a `number` as doubles, those that no double stands
//! for included. The second writes these as they are, and is the first in all else.

use serde_json::{Map, Value};

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

/// The canonical form of a value.
#[derive(Debug, Default)]
pub(super) struct Form {
    pub(super) bytes: Vec<u8>,
    /// Whether the first format would have written another, or could have meant another by
    /// the same: an integer that no double stands for is in the value, or in a default that
    /// it leaves out.
    pub(super) is_exact: bool,
    /// Whether such an integer is in the value itself: the first format had no form of it.
    pub(super) is_rounded_by_first: bool,
}

/// Writes a normalized and validated value.
pub(super) fn write(node: &Node, value: &Value, form: &mut Form) {
    let node = node.of(value);
    let out = &mut form.bytes;
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Number(number) => {
            let reading = read(number);
            write_number(reading, out);
            let is_integer = matches!(reading, Reading::Unsigned(_) | Reading::Negative(_));
            if is_integer && node.number.is_by_value() {
                form.is_exact = true;
                form.is_rounded_by_first = true;
            }
        }
        Value::String(text) => {
            out.push(TEXT);
            write_text(text, out);
        }
        Value::Array(elements) => write_array(node, elements, form),
        Value::Object(members) => write_object(node, members, form),
    }
}

fn write_number(reading: Reading, out: &mut Vec<u8>) {
    let (tag, bytes) = match reading {
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

fn write_array(node: &Node, elements: &[Value], form: &mut Form) {
    form.bytes.push(ARRAY);
    if let ArrayRule::Items {
        unordered: true, ..
    } = node.array
        && elements.len() > 1
    {
        let mut forms: Vec<Vec<u8>> = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            let mut of_element = Form::default();
            write(node.element(index), element, &mut of_element);
            form.is_exact |= of_element.is_exact;
            form.is_rounded_by_first |= of_element.is_rounded_by_first;
            forms.push(of_element.bytes);
        }
        forms.sort_unstable();
        for of_element in &forms {
            form.bytes.extend_from_slice(of_element);
        }
    } else {
        for (index, element) in elements.iter().enumerate() {
            write(node.element(index), element, form);
        }
    }
    form.bytes.push(END);
}

fn write_object(node: &Node, members: &Map<String, Value>, form: &mut Form) {
    form.bytes.push(OBJECT);
    match &node.object {
        // Closed, so the schema's own order serves and nothing is sorted.
        ObjectRule::Members(described @ Members { others: None, .. }) => {
            for member in described.known() {
                match members.get(&member.name) {
                    Some(value) => write_member(member, value, form),
                    None => form.is_exact |= member.default_is_exact,
                }
            }
        }
        ObjectRule::Members(described) => {
            sorted(members, |name, value| {
                match (described.get(name), &described.others) {
                    (Some(member), _) => write_member(member, value, form),
                    (None, others) => {
                        let node = others.as_deref().unwrap_or(node.below());
                        write_entry(name, node, value, form);
                    }
                }
            });
            for member in described.known() {
                form.is_exact |= member.default_is_exact && !members.contains_key(&member.name);
            }
        }
        ObjectRule::Untyped => {
            sorted(members, |name, value| {
                write_entry(name, node.below(), value, form);
            });
        }
    }
    form.bytes.push(END);
}

fn write_entry(name: &str, node: &Node, value: &Value, form: &mut Form) {
    form.bytes.push(MEMBER);
    write_text(name, &mut form.bytes);
    write(node, value, form);
}

/// Writes a member, unless it only repeats its default.
fn write_member(member: &Member, value: &Value, form: &mut Form) {
    let start = form.bytes.len();
    form.bytes.push(MEMBER);
    write_text(&member.name, &mut form.bytes);
    let value_start = form.bytes.len();
    write(&member.node, value, form);
    if member.optional && form.bytes.get(value_start..) == Some(member.default.as_slice()) {
        form.bytes.truncate(start);
    }
}

/// Visits the members by name, whether or not `serde_json` keeps them so.
fn sorted<'a>(members: &'a Map<String, Value>, mut visit: impl FnMut(&'a str, &'a Value)) {
    if members.keys().is_sorted() {
        for (name, value) in members {
            visit(name, value);
        }
        return;
    }
    let mut by_name: Vec<_> = members.iter().collect();
    by_name.sort_unstable_by_key(|(name, _)| name.as_str());
    for (name, value) in by_name {
        visit(name, value);
    }
}
