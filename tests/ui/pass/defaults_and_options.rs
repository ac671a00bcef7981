use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[derive(Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Style {
    bold: bool,
}

mod settings {
    pub fn priority() -> Option<u8> {
        Some(5)
    }
}

#[idempotent_tool(operation = "create:v1")]
fn create(
    _tx: &Tx,
    #[serde(default)] style: Style,
    #[serde(default = "settings::priority")] priority: Option<u8>,
    #[serde(rename(serialize = "ignored", deserialize = "due-at"))] due: Option<String>,
) -> Result<bool, Failure> {
    Ok(style.bold && priority.is_some() && due.is_some())
}

fn names<T: Handler>() -> Vec<String> {
    T::defaults().into_iter().map(|d| format!("{}={}", d.name, (d.make)().unwrap())).collect()
}

fn main() {
    assert_eq!(names::<create>(), [r#"style={"bold":false}"#, "priority=5"]);
}
