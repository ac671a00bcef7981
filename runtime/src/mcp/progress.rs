//! News for a client that waits for an external operation.

use std::{pin::pin, time::Duration};

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};

/// How often a client that waits hears that the operation still runs.
const EVERY: Duration = Duration::from_secs(1);

/// What `answer` becomes; until then the client is told regularly that it is under way.
pub(super) async fn reported<T>(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = pin!(answer);
    let mut progress = 0.0;
    loop {
        if let Ok(answer) = tokio::time::timeout(EVERY, answer.as_mut()).await {
            return answer;
        }
        progress += 1.0;
        let news = ProgressNotificationParam::new(token.clone(), progress)
            .with_message("the operation is under way");
        if let Err(error) = peer.notify_progress(news).await {
            // Nobody listens any more; what has begun goes on.
            tracing::debug!(%error, "the progress of an operation can't be sent");
            return answer.await;
        }
    }
}
