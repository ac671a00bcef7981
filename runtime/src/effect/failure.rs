//! What a handler says when it could not do what was asked.

use std::{borrow::Cow, error::Error, fmt, sync::Arc};

use crate::panics::caught;

use crate::finite::Unwritable;

/// A handler's refusal or failure: a code for programs and a message for the caller.
///
/// In a transactional tool everything the handler wrote is rolled back and nothing is
/// retained: the same key may run again. Both texts reach the caller, so they must hold
/// no secret. The source, if there is one, stays on the server.
///
/// ```
/// use idempotent_tool::Failure;
///
/// let failure = Failure::new("insufficient_funds", "the account holds less than the amount");
/// assert_eq!(failure.code(), "insufficient_funds");
/// assert!(!failure.is_retryable());
/// ```
#[derive(Debug)]
pub struct Failure {
    code: Cow<'static, str>,
    message: Cow<'static, str>,
    retryable: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that the same call would meet again.
    #[must_use]
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: false,
            source: None,
        }
    }

    /// Says that the same call may succeed later.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Keeps the cause for the server's own use; it is never sent to the caller, nor logged:
    /// [`on_failure`](crate::ToolboxBuilder::on_failure) is told of it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// A tool's result can't be written as JSON.
    pub(crate) fn unwritable_result(error: Unwritable) -> Self {
        match error {
            Unwritable::NotFinite => Self::new(
                "invalid_result",
                "a number in the tool's result is NaN or infinite, which JSON can't write",
            ),
            Unwritable::Json(error) => Self::new(
                "result_not_serializable",
                "the tool's result can't be written as JSON",
            )
            .with_source(error),
        }
    }

    /// The code for programs, such as `insufficient_funds`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The message for the caller.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Whom the application has told of failures, as the toolbox keeps it.
#[derive(Clone, Default)]
pub(crate) struct FailureObserver(Option<Arc<Observe>>);

type Observe = dyn Fn(&str, &(dyn Error + 'static)) + Send + Sync;

impl FailureObserver {
    pub(crate) fn new(
        observe: impl Fn(&str, &(dyn Error + 'static)) + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Tells of a handler's error; a panic there must not end what is under way.
    pub(crate) fn tell(&self, tool: &str, error: &(dyn Error + 'static)) {
        let Some(observe) = &self.0 else {
            return;
        };
        if caught(|| observe(tool, error)).is_err() {
            tracing::error!(tool, "the application's `on_failure` panicked");
        }
    }
}

impl fmt::Debug for FailureObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FailureObserver")
    }
}
