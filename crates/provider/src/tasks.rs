//! Background work. Every task has a name and ends with its tracker: none outlives its owner.

use std::future::Future;

use sandstorm_types::ErrorKind;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::{Error, Result};

/// Starts tasks and ends them together.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Tasks that end when `stop` is cancelled.
    pub fn until(stop: CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), stop }
    }

    /// Runs `work` until it is done or the tracker stops. On stop its future is dropped.
    pub fn start(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let work = async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        };
        self.tracker.spawn(work.instrument(tracing::debug_span!("task", name)));
    }

    /// Runs `work` to its end, whatever becomes of who asked; a stop waits for it.
    pub fn finish(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(work.instrument(tracing::debug_span!("task", name)));
    }

    /// Runs `work` to its end, also when nobody waits for it any more, and gives what came of it.
    pub async fn complete<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self.tracker.spawn(work.in_current_span()).await {
            Ok(done) => done,
            Err(error) => {
                Err(Error::new(ErrorKind::Internal, "the work was not finished").with_source(error))
            }
        }
    }

    /// Set when everything ends.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Waits until every task is done.
    pub async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Ends all tasks and waits for them.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.finished().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_drops_what_waits_and_waits_for_what_must_end() {
        let tasks = Tasks::default();
        let (started, dropped) = tokio::sync::oneshot::channel::<()>();
        tasks.start("endless", async move {
            let _held = started;
            std::future::pending().await
        });
        let (sender, done) = tokio::sync::oneshot::channel();
        tasks.finish("last", async move {
            tokio::task::yield_now().await;
            let _ = sender.send(());
        });
        tasks.stop().await;
        assert!(dropped.await.is_err());
        assert!(done.await.is_ok());
    }
}
