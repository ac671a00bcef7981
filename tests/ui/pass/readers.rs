use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

/// Neither read from JSON nor described by itself.
struct Hex(u64);

mod hex {
    use serde::Deserialize;

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<super::Hex, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map(super::Hex).map_err(serde::de::Error::custom)
    }
}

fn hex_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<String>()
}

#[idempotent_tool(operation = "read:v1")]
fn read(
    _tx: &Tx,
    #[serde(with = "hex")]
    #[schemars(with = "String", pattern(r"^[0-9a-f]+$"))]
    one: Hex,
    #[serde(deserialize_with = "hex::deserialize")]
    #[schemars(schema_with = "hex_schema")]
    two: Hex,
) -> Result<u64, Failure> {
    Ok(one.0 + two.0)
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<read>();
}
