use idempotent_tool::{Attempt, AttemptError, Inquiry, Reconciled, idempotent_tool};

#[idempotent_tool(operation = "send:v1", reconcile(find, settle = "30s"))]
async fn send(_attempt: &Attempt) -> Result<u64, AttemptError> {
    Ok(1)
}

async fn find(_inquiry: &Inquiry) -> Result<Reconciled<String>, AttemptError> {
    Ok(Reconciled::NotApplied)
}

fn main() {}
