use idempotent_tool::idempotent_tool;

#[idempotent_tool(retention = "soon", opertion = "create:v1", deadline = "0s")]
async unsafe fn create<T>(
    body: &str,
    #[cfg(all())] idempotency_key: String,
    #[serde(flatten)] (left, right): (T, T),
) -> impl Sized {
    let _ = (body, idempotency_key, left, right);
}

fn main() {}
