//! Records that have to be made, however long the store cannot be reached.

use std::fmt::Display;
use std::time::Duration;

use sandstorm_store::StoreError;

use super::Inner;

/// The longest wait between two tries.
const LONGEST: Duration = Duration::from_secs(5);

/// How long to wait before the next try to store `what` about `id`.
#[derive(Debug)]
pub(super) struct Patience<T> {
    what: &'static str,
    id: T,
    wait: Duration,
}

impl<T: Display> Patience<T> {
    pub(super) fn new(what: &'static str, id: T) -> Self {
        Self { what, id, wait: Duration::from_millis(50) }
    }

    /// Waits after a try that failed; gives the error back when another one would fail, too, or this server stops.
    pub(super) async fn wait(&mut self, inner: &Inner, error: StoreError) -> Result<(), StoreError> {
        let (what, id) = (self.what, &self.id);
        if !error.is_transient() || inner.tasks.stopping().is_cancelled() {
            tracing::error!(%id, %error, "{what} cannot be stored");
            return Err(error);
        }
        tracing::warn!(%id, %error, "{what} cannot be stored yet");
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(LONGEST);
        Ok(())
    }
}
