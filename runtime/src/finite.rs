//! JSON without numbers that turn into null: `serde_json` writes NaN and the infinities so,
//! and where null means something of its own, nobody could tell.

use std::fmt;

use serde::{
    Serialize, Serializer,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
    },
};
use serde_json::{Value, value::RawValue};

/// Why a value can't be written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    /// It holds NaN or an infinity.
    #[error("a number in it is NaN or infinite, which JSON can't write")]
    NotFinite,
    /// Its type says so.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl From<Unwritable> for serde_json::Error {
    fn from(error: Unwritable) -> Self {
        match error {
            Unwritable::NotFinite => Self::custom(error),
            Unwritable::Json(error) => error,
        }
    }
}

/// The JSON text of a value.
///
/// # Errors
///
/// When its type refuses to be written, or a number in it is not finite.
pub(crate) fn to_raw_value<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Unwritable> {
    let written = serde_json::value::to_raw_value(value)?;
    // A number that is not finite has left a null; most values have none.
    if written.get().contains("null") {
        check(value)?;
    }
    Ok(written)
}

/// The value as JSON.
///
/// # Errors
///
/// When its type refuses to be written, or a number in it is not finite.
pub(crate) fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Unwritable> {
    let written = serde_json::to_value(value)?;
    check(value)?;
    Ok(written)
}

fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), Unwritable> {
    match value.serialize(Finite) {
        Ok(()) => Ok(()),
        Err(Found::NotFinite) => Err(Unwritable::NotFinite),
        Err(Found::Refusal(message)) => Err(Unwritable::Json(serde_json::Error::custom(message))),
    }
}

/// Writes nothing, and fails at a number that is not finite.
struct Finite;

#[derive(Debug)]
enum Found {
    NotFinite,
    /// The value's own type refused, though it had been written a moment ago.
    Refusal(String),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite => Unwritable::NotFinite.fmt(f),
            Self::Refusal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Found {}

impl serde::ser::Error for Found {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Refusal(message.to_string())
    }
}

/// Methods of a serializer that find nothing wrong with what they are given.
macro_rules! fine {
    ($($method:ident($($parameter:ident: $type:ty),*);)*) => {
        $(fn $method(self, $($parameter: $type),*) -> Result<(), Found> {
            $(let _ = $parameter;)*
            Ok(())
        })*
    };
}

/// Methods of a serializer for what consists of parts.
macro_rules! parts {
    ($($method:ident($($parameter:ident: $type:ty),*);)*) => {
        $(fn $method(self, $($parameter: $type),*) -> Result<Self, Found> {
            $(let _ = $parameter;)*
            Ok(self)
        })*
    };
}

impl Serializer for Finite {
    type Ok = ();
    type Error = Found;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn serialize_f32(self, value: f32) -> Result<(), Found> {
        value.is_finite().then_some(()).ok_or(Found::NotFinite)
    }

    fn serialize_f64(self, value: f64) -> Result<(), Found> {
        value.is_finite().then_some(()).ok_or(Found::NotFinite)
    }

    fine! {
        serialize_bool(value: bool);
        serialize_i8(value: i8);
        serialize_i16(value: i16);
        serialize_i32(value: i32);
        serialize_i64(value: i64);
        serialize_i128(value: i128);
        serialize_u8(value: u8);
        serialize_u16(value: u16);
        serialize_u32(value: u32);
        serialize_u64(value: u64);
        serialize_u128(value: u128);
        serialize_char(value: char);
        serialize_str(value: &str);
        serialize_bytes(value: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        value.serialize(self)
    }

    parts! {
        serialize_seq(length: Option<usize>);
        serialize_tuple(length: usize);
        serialize_tuple_struct(name: &'static str, length: usize);
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        );
        serialize_map(length: Option<usize>);
        serialize_struct(name: &'static str, length: usize);
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        );
    }
}

/// What consists of parts without names is fine if each part is.
macro_rules! unnamed_parts {
    ($($part:ident::$method:ident;)*) => {
        $(impl $part for Finite {
            type Ok = ();
            type Error = Found;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
                value.serialize(Self)
            }

            fn end(self) -> Result<(), Found> {
                Ok(())
            }
        })*
    };
}

unnamed_parts! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

/// What consists of parts with names is fine if each part is.
macro_rules! named_parts {
    ($($part:ident;)*) => {
        $(impl $part for Finite {
            type Ok = ();
            type Error = Found;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), Found> {
                value.serialize(Self)
            }

            fn end(self) -> Result<(), Found> {
                Ok(())
            }
        })*
    };
}

named_parts! {
    SerializeStruct;
    SerializeStructVariant;
}

impl SerializeMap for Finite {
    type Ok = ();
    type Error = Found;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Found> {
        key.serialize(Self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
        value.serialize(Self)
    }

    fn end(self) -> Result<(), Found> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    struct Inner {
        single: Option<f32>,
        double: Option<f64>,
    }

    #[derive(Serialize)]
    struct Flat {
        name: &'static str,
        #[serde(flatten)]
        inner: Inner,
        #[serde(flatten)]
        others: BTreeMap<&'static str, Option<f64>>,
    }

    #[derive(Serialize)]
    enum External {
        Newtype(Option<f64>),
        Tuple(u8, Option<f32>),
        Struct { value: Option<f64> },
        Unit,
    }

    #[derive(Serialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Inner(Inner),
        Struct { value: Option<f64> },
    }

    #[derive(Serialize)]
    #[serde(tag = "kind", content = "content")]
    enum Adjacent {
        Newtype(Option<f64>),
    }

    #[derive(Serialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(Option<f64>),
    }

    #[derive(Serialize)]
    struct Newtype(Option<f64>);

    #[derive(Serialize)]
    struct Tuple(u8, Option<f64>);

    /// Checks values of one shape: that with a number that is not finite is refused, its like
    /// with a null is written.
    #[track_caller]
    fn check_shape<T: Serialize>(shape: impl Fn(Option<f64>) -> T) {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let value = shape(Some(number));
            let text = serde_json::to_string(&value).unwrap();
            assert!(text.contains("null"), "{text}");
            assert!(
                matches!(to_raw_value(&value), Err(Unwritable::NotFinite)),
                "{text}"
            );
            assert!(
                matches!(to_value(&value), Err(Unwritable::NotFinite)),
                "{text}"
            );
        }
        for number in [None, Some(0.1), Some(-0.0), Some(f64::from(f32::MAX))] {
            let value = shape(number);
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(to_raw_value(&value).unwrap().get(), text);
            assert_eq!(
                to_value(&value).unwrap(),
                serde_json::to_value(&value).unwrap()
            );
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "these are singles")]
    fn single(number: Option<f64>) -> Option<f32> {
        number.map(|number| number as f32)
    }

    #[test]
    fn a_number_that_is_not_finite_is_found_wherever_it_is() {
        let inner = |number| Inner {
            single: single(number),
            double: None,
        };
        check_shape(|number| number);
        check_shape(single);
        check_shape(|number| vec![None, number]);
        check_shape(|number| (1, number));
        check_shape(|number| [number]);
        check_shape(|number| HashMap::from([("a", number)]));
        check_shape(|number| BTreeMap::from([(7, vec![number])]));
        check_shape(Newtype);
        check_shape(|number| Tuple(1, number));
        check_shape(inner);
        check_shape(|number| Inner {
            single: None,
            double: number,
        });
        check_shape(|number| Flat {
            name: "a",
            inner: inner(number),
            others: BTreeMap::new(),
        });
        check_shape(|number| Flat {
            name: "a",
            inner: inner(None),
            others: BTreeMap::from([("b", number)]),
        });
        check_shape(External::Newtype);
        check_shape(|number| External::Tuple(1, single(number)));
        check_shape(|value| External::Struct { value });
        check_shape(|number| (External::Unit, number));
        check_shape(|number| Tagged::Inner(inner(number)));
        check_shape(|value| Tagged::Struct { value });
        check_shape(Adjacent::Newtype);
        check_shape(Untagged::Number);
        check_shape(|number| Some(Box::new(Newtype(number))));
    }

    #[test]
    fn what_json_can_write_is_written_as_ever() {
        let raw = RawValue::from_string(r#"{ "null": null }"#.to_owned()).unwrap();
        assert_eq!(to_raw_value(&raw).unwrap().get(), raw.get());
        let value = json!({ "null": [null, 1.5, u64::MAX, { "a": "null" }] });
        assert_eq!(to_value(&value).unwrap(), value);
        assert_eq!(to_raw_value(&value).unwrap().get(), value.to_string());
        let wide = (i128::from(i64::MIN), u128::from(u64::MAX), 'x', (), "null");
        assert_eq!(
            to_raw_value(&wide).unwrap().get(),
            r#"[-9223372036854775808,18446744073709551615,"x",null,"null"]"#
        );
    }
}
