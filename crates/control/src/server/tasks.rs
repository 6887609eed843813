//! Background work of the server. Every task has a name and ends with the tracker: none outlives its owner.

use std::future::Future;

use sandstorm_provider::{Error, Result};
use sandstorm_types::ErrorKind;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Starts tasks and ends them together.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Runs `work` until it is done or the tracker stops. On stop its future is dropped.
    pub(super) fn start(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
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
    pub(super) fn finish(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(work.instrument(tracing::debug_span!("task", name)));
    }

    /// Runs `work` to its end, also when nobody waits for it any more, and gives what came of it.
    pub(super) async fn complete<T: Send + 'static>(
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
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Ends all tasks and waits for them.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
