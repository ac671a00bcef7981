fn register<T: idempotent_tool::Tool>() {}

fn main() {
    register::<String>();
}
