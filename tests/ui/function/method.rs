use idempotent_tool::{Failure, Tx, idempotent_tool};

struct Notes;

impl Notes {
    #[idempotent_tool(operation = "create:v1")]
    fn create(&self, _tx: &Tx) -> Result<u64, Failure> {
        Ok(1)
    }
}

fn main() {}
