//! What a demonstration prints, and how it fails.

use std::{cell::RefCell, fmt::Display};

use serde_json::Value;

use super::Outcome;

/// The checks of a demonstration that have passed.
#[derive(Debug, Default)]
pub struct Report {
    passed: RefCell<Vec<&'static str>>,
}

impl Report {
    /// Runs one check; a failure bears its name.
    ///
    /// # Errors
    ///
    /// The check's own, after its name.
    pub async fn check(&self, name: &'static str, check: impl Future<Output = Outcome>) -> Outcome {
        println!("{name}");
        check
            .await
            .map_err(|error| format!("the check `{name}` failed: {error}"))?;
        self.passed.borrow_mut().push(name);
        Ok(())
    }

    /// The last line: what has passed.
    pub fn finish(&self) {
        println!("\nPassed: {}", self.passed.borrow().join(", "));
    }
}

/// One observation of a check.
pub fn observe(what: &str, observed: impl Display) {
    println!("  {what:<36} {observed}");
}

/// Fails with what was expected and what was observed instead.
///
/// # Errors
///
/// When it does not hold.
pub fn expect(holds: bool, what: &str, observed: &dyn Display) -> Outcome {
    if holds {
        return Ok(());
    }
    Err(format!("expected {what}, observed {observed}").into())
}

/// The text of a member of a reply; empty if there is none.
#[must_use]
pub fn text<'a>(reply: &'a Value, member: &str) -> &'a str {
    reply[member].as_str().unwrap_or_default()
}

/// Fails unless the reply has this status.
///
/// # Errors
///
/// When it has another one.
pub fn expect_status(reply: &Value, status: &str) -> Outcome {
    let expected = format!("the status `{status}`");
    expect(text(reply, "status") == status, &expected, reply)
}
