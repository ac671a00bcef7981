//! What a handler knows of an attempt that did not succeed.

use std::{borrow::Cow, error::Error, fmt, time::Duration};

use crate::{effect::failure::Failure, finite::Unwritable};

/// Why an attempt of an external tool did not succeed, and what is known of **that attempt**.
///
/// - [`refused`](Self::refused): it had no effect and a further one would be refused as well.
///   The refusal is retained and replayed.
/// - [`not_applied`](Self::not_applied): it had no effect, and a further one may have. The
///   runtime tries again within its budget.
/// - [`ambiguous`](Self::ambiguous): it may have had an effect, now or later. The tool's
///   declared recovery settles it.
///
/// What isn't known for certain is ambiguous: a time-out, a dropped connection and a panic
/// are. An earlier attempt's ambiguity stands until it is settled, whatever a later attempt
/// says of itself.
///
/// Code and message reach the caller, so they must hold no secret; the source stays on the
/// server.
///
/// ```
/// use std::time::Duration;
/// use idempotent_tool::AttemptError;
///
/// let error = AttemptError::not_applied("provider_busy", "the provider takes no requests now")
///     .with_retry_after(Duration::from_secs(2));
/// assert_eq!(error.code(), "provider_busy");
/// ```
#[derive(Debug)]
pub struct AttemptError {
    pub(crate) known: Known,
    pub(crate) failure: Failure,
    pub(crate) retry_after: Option<Duration>,
}

/// What is known of an attempt that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Refused,
    NotApplied,
    Ambiguous,
}

impl AttemptError {
    /// The attempt had no effect and never will have; nor would another one.
    #[must_use]
    pub fn refused(
        code: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Known::Refused, Failure::new(code, message))
    }

    /// The attempt had no effect and never will have; another one may.
    #[must_use]
    pub fn not_applied(
        code: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Known::NotApplied, Failure::new(code, message))
    }

    /// The attempt may have had an effect, or may have it yet.
    #[must_use]
    pub fn ambiguous(
        code: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Known::Ambiguous, Failure::new(code, message))
    }

    /// Adds the provider's guidance: no attempt comes before it, and none comes at all if it
    /// lies beyond the budget.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// Keeps the cause for the server's own use; it is never sent to the caller, nor logged:
    /// [`on_failure`](crate::ToolboxBuilder::on_failure) is told of it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.failure = self.failure.with_source(source);
        self
    }

    /// The effect may exist, but its result can't be written as JSON.
    pub(crate) fn unwritable_result(error: Unwritable) -> Self {
        let failure = Failure::unwritable_result(error);
        Self {
            failure,
            ..Self::ambiguous("", "")
        }
    }

    /// What an HTTP status that is no success says of the attempt, where the provider's
    /// documentation says nothing else.
    ///
    /// 4xx is refused, but for 408, 409, 422, 425 and 429, which providers also answer while
    /// an earlier request with the same key is in progress, or after taking one. Those and
    /// everything else are ambiguous. A tool whose provider documents more says so itself.
    ///
    /// ```
    /// use idempotent_tool::AttemptError;
    ///
    /// assert!(AttemptError::from_http_status(403).is_refused());
    /// assert!(AttemptError::from_http_status(409).is_ambiguous());
    /// assert!(AttemptError::from_http_status(503).is_ambiguous());
    /// ```
    #[must_use]
    pub fn from_http_status(status: u16) -> Self {
        let code = format!("http_{status}");
        let message = format!("the provider answered with HTTP status {status}");
        match status {
            408 | 409 | 422 | 425 | 429 => Self::ambiguous(code, message),
            400..=499 => Self::refused(code, message),
            _ => Self::ambiguous(code, message),
        }
    }

    /// The code for programs.
    #[must_use]
    pub fn code(&self) -> &str {
        self.failure.code()
    }

    /// The message for the caller.
    #[must_use]
    pub fn message(&self) -> &str {
        self.failure.message()
    }

    /// Whether the attempt was refused for good.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.known == Known::Refused
    }

    /// Whether the attempt may have had an effect.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.known == Known::Ambiguous
    }

    fn new(known: Known, failure: Failure) -> Self {
        Self {
            known,
            failure,
            retry_after: None,
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl Error for AttemptError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.source()
    }
}

/// With `?` on the errors of a client. The URL, which may hold a secret, stays in the source.
///
/// A connection that was never made is *not applied*; a request that can't be built is
/// *refused*; a status (after `error_for_status()`) goes by
/// [`AttemptError::from_http_status`]; everything else happened after the request may have
/// left, and is *ambiguous*.
///
/// That holds of a client that follows no redirects (`redirect::Policy::none()`): one that
/// does tells the error of the last request, and the one before it may have had the effect.
/// `error_for_status()` lets the 3xx pass that such a client is answered with: ask
/// `status().is_success()`, and give any other to [`AttemptError::from_http_status`].
#[cfg(feature = "reqwest")]
impl From<reqwest::Error> for AttemptError {
    fn from(error: reqwest::Error) -> Self {
        let told = if let Some(status) = error.status() {
            Self::from_http_status(status.as_u16())
        } else if error.is_builder() {
            Self::refused("invalid_request", "the request can't be built")
        } else if error.is_connect() {
            Self::not_applied("not_connected", "the provider can't be reached")
        } else if error.is_timeout() {
            Self::ambiguous("timed_out", "the provider did not answer in time")
        } else {
            Self::ambiguous("answer_lost", "the provider's answer was lost")
        };
        told.with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_refused_only_where_it_can_mean_nothing_else() {
        for status in [400, 401, 402, 403, 404, 405, 410, 413, 415] {
            assert!(
                AttemptError::from_http_status(status).is_refused(),
                "{status}"
            );
        }
        for status in [301, 408, 409, 422, 425, 429, 500, 502, 503, 504, 599] {
            assert!(
                AttemptError::from_http_status(status).is_ambiguous(),
                "{status}"
            );
        }
    }
}
