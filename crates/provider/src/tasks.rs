//! Background work. Every task has a name and ends with its tracker: none outlives its owner.

mod afterwards;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

pub use afterwards::then_start;

use crate::{Closing, OpContext, Result};

/// Starts tasks and ends them together.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Tasks that end with the server, or before it by [`Self::stop`].
    pub fn until(closing: &Closing) -> Self {
        Self { tracker: TaskTracker::new(), stop: closing.child_token() }
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
        let work = work.instrument(tracing::debug_span!("task", name));
        afterwards::spawn(self.tracker.track_future(work));
    }

    /// Runs `work` to its end, also when nobody waits for it any more, and gives what came of it.
    ///
    /// It runs in the task of who waits, which costs nothing; one that is dropped on the way leaves the rest to a task of
    /// its own.
    pub async fn complete<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let work: BoxFuture<'static, _> = Box::pin(work.in_current_span());
        Completing { work: Some(work), _counted: self.tracker.token(), tracker: &self.tracker }.await
    }

    /// The same for something that is made for whoever waits: `work` hears by its token when nobody does any more, so that
    /// it can take back what it made, and whoever removes it has something to wait for.
    pub async fn make<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        cx: &OpContext,
        operation: &'static str,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Result<T> {
        let gone = CancellationToken::new();
        let _on_drop = gone.clone().drop_guard();
        cx.run(operation, self.complete(work(gone))).await
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

/// Work that is under way in somebody's task.
struct Completing<'a, T: Send + 'static> {
    /// What is left of it.
    work: Option<BoxFuture<'static, Result<T>>>,
    _counted: TaskTrackerToken,
    tracker: &'a TaskTracker,
}

impl<T: Send + 'static> Future for Completing<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Until it is put back there is none: a panic must not leave a broken half to anybody.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let done = work.as_mut().poll(cx);
        if done.is_pending() {
            self.work = Some(work);
        }
        done
    }
}

impl<T: Send + 'static> Drop for Completing<'_, T> {
    fn drop(&mut self) {
        // Without a runtime everything ends anyway.
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            self.tracker.spawn_on(work, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_was_begun_is_completed_when_nobody_waits_any_more() {
        let tasks = Tasks::default();
        let (sender, done) = tokio::sync::oneshot::channel();
        let work = async move {
            tokio::task::yield_now().await;
            let _ = sender.send(());
            Ok(())
        };
        assert!(tasks.complete(work).now_or_never().is_none());
        tasks.stop().await;
        assert!(done.await.is_ok());
        assert_eq!(tasks.complete(async { Ok(7) }).await.unwrap(), 7);
    }

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
