//! Work of the gateway that goes on beside a request: connections, tunnels. All of it ends with the server.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Starts tasks and ends them together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Tasks that end when `stop` is cancelled.
    pub(crate) fn until(stop: CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), stop }
    }

    /// Runs `work` until it is done or everything stops; its future is dropped then.
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

    /// Waits until every task is done.
    pub(crate) async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Ends all tasks and waits for them.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.finished().await;
    }
}
