//! Background work of the engine. Every task has a name and ends with the tracker: none outlives its owner.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Starts tasks and ends them together.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Runs `work` until it is done or the tracker stops. On stop its future is dropped.
    pub(crate) fn start(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let work = async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        };
        self.tracker.spawn(work.instrument(tracing::debug_span!("task", name)));
    }

    /// Ends all tasks and waits for them.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
