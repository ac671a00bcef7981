use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[idempotent_tool(operation = "match_it:v1")]
fn r#match(_tx: &Tx, #[serde(default)] r#type: u8, r#ref: u8) -> Result<u8, Failure> {
    Ok(r#type + r#ref)
}

fn name_of_default<T: Handler>() -> &'static str {
    T::defaults()[0].name
}

fn main() {
    assert_eq!(name_of_default::<r#match>(), "type");
}
