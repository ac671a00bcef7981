use idempotent_tool::{Access, Asked, Caller, Failure, Handler, Tx, idempotent_tool};

mod policy {
    use super::{Access, Asked, Caller};

    pub fn may_create(_caller: &Caller, _asked: &Asked<'_>) -> Access {
        Access::Allowed
    }
}

#[idempotent_tool(
    title = "Create",
    max_result = 4_096,
    open_world = true,
    effects_outside = true,
    destructive = false,
    deadline = "500ms",
    tombstone = "36500d",
    retention = "24h",
    authorize = policy::may_create,
    crate = ::idempotent_tool,
    operation = "create_it:v999999999",
)]
fn create(_tx: &Tx) -> Result<u64, Failure> {
    Ok(1)
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<create>();
}
