use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

struct Error;

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Failure::new("own", "an error of the application's own")
    }
}

type Result<T, E = Error> = std::result::Result<T, E>;
type Context = Tx;

#[idempotent_tool(operation = "aliased:v1")]
fn aliased(_tx: &Context) -> Result<&'static str> {
    Ok("static text is owned enough")
}

#[idempotent_tool(operation = "of_sqlite:v1")]
fn of_sqlite(_tx: &Tx) -> Result<(), rusqlite::Error> {
    Ok(())
}

#[idempotent_tool(operation = "infallible:v1")]
fn own(_tx: &Tx, name: std::borrow::Cow<'static, str>) -> Result<usize, Failure> {
    Ok(name.len())
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<aliased>();
    is_tool::<of_sqlite>();
    is_tool::<own>();
}
