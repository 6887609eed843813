//! Telling a client that a long call goes on.

use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};

/// Quick calls say nothing.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(2);

/// Where to tell it, if the client asked to be told.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl Progress {
    pub(crate) fn wanted(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { peer: context.peer.clone(), token })
    }

    async fn tell(&self, since: Instant, what: &str) {
        let seconds = since.elapsed().as_secs();
        let told = ProgressNotificationParam::new(self.token.clone(), seconds as f64)
            .with_message(format!("{what} for {seconds} s"));
        // A client that is gone is noticed elsewhere.
        let _ = self.peer.notify_progress(told).await;
    }
}

/// Waits, and tells whoever wants to know that it does.
pub(crate) async fn told<T>(progress: Option<&Progress>, what: &str, work: impl Future<Output = T>) -> T {
    let Some(progress) = progress else { return work.await };
    let since = Instant::now();
    let mut next = tokio::time::interval_at(tokio::time::Instant::now() + FIRST, EVERY);
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = next.tick() => progress.tell(since, what).await,
        }
    }
}
