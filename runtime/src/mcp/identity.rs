//! Who sent a request, as the application finds out: within a time, and whatever its code does.

use std::{future::poll_fn, task::Poll};

use rmcp::{RoleServer, service::RequestContext};

use super::{Adapter, Unidentified};
use crate::{
    panics::{Panicked, caught},
    request::caller::Caller,
};

impl Adapter {
    /// The caller of a request for `tool`. An application that panics, or hasn't found out
    /// when the tool's budget ends, has found nobody; the caller may ask again.
    pub(super) async fn caller(
        &self,
        tool: &str,
        context: RequestContext<RoleServer>,
    ) -> Result<Caller, Unidentified> {
        let unavailable = |what| {
            tracing::error!(tool, "{what}; nothing is done");
            Err(Unidentified::Unavailable)
        };
        let panicked = "the application panicked while it identified a caller";
        let clock = self.tools.clock();
        let until = clock.monotonic().saturating_add(self.tools.patience(tool));
        let mut late = clock.reached(until);
        let mut identified = match caught(|| (self.identify)(context)) {
            Ok(identified) => identified,
            Err(Panicked) => return unavailable(panicked),
        };
        poll_fn(
            move |context| match caught(|| identified.as_mut().poll(context)) {
                Ok(Poll::Ready(found)) => Poll::Ready(found),
                Ok(Poll::Pending) => late
                    .as_mut()
                    .poll(context)
                    .map(|()| unavailable("the application did not identify a caller in time")),
                Err(Panicked) => Poll::Ready(unavailable(panicked)),
            },
        )
        .await
    }
}
