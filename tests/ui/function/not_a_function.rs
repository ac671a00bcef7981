use idempotent_tool::idempotent_tool;

#[idempotent_tool(operation = "create:v1")]
struct Create {
    _body: String,
}

fn main() {}
