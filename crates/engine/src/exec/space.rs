//! A file system without space, seen by one program: nothing is lost and nobody is ended, everything waits.

use std::io;
use std::time::Duration;

/// How often is looked whether there is space again.
const AGAIN: Duration = Duration::from_millis(200);

/// Whether something waits for space.
#[derive(Debug, Default)]
pub(crate) struct Full(bool);

impl Full {
    /// Whether an error says that there is no space, which may pass.
    pub(crate) fn is(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    pub(super) fn waits(&self) -> bool {
        self.0
    }

    /// Waits for a moment.
    pub(super) async fn wait(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.0, true) {
            tracing::warn!(%error, "a program waits until what it writes can be kept");
        }
        tokio::time::sleep(AGAIN).await;
    }

    pub(super) fn over(&mut self) {
        self.0 = false;
    }
}
