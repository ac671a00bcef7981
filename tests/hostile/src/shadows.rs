//! Names that an expansion might mean when it doesn't say whose.

#![expect(
    dead_code,
    clippy::redundant_pub_crate,
    reason = "most are only in the way"
)]

/// Makes a type that is a number in JSON and bears another type's name.
macro_rules! number {
    ($name:ident) => {
        /// A number.
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
        #[non_exhaustive]
        pub struct $name(pub u8);

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                <u8 as ::serde::Deserialize>::deserialize(deserializer).map(|number| Self(number))
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                ::serde::Serialize::serialize(&self.0, serializer)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(::core::stringify!($name))
            }

            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                <u8 as ::schemars::JsonSchema>::json_schema(generator)
            }
        }
    };
}

number!(Option);
number!(Result);
number!(String);
number!(Vec);

/// Makes empty modules.
macro_rules! modules {
    ($($name:ident)*) => { $(pub(crate) mod $name {})* };
}

modules!(alloc core schemars serde serde_json std);

/// Makes traits without methods.
macro_rules! traits {
    ($($name:ident)*) => { $(pub(crate) trait $name {})* };
}

traits!(Clone Default Deserialize From Into Iterator JsonSchema Serialize Sized);

/// Makes types without values.
macro_rules! types {
    ($($name:ident)*) => { $(pub(crate) enum $name {})* };
}

types!(Schema Value);
