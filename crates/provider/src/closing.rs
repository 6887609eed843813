//! The end of the server, as its parts hear it.

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

/// Hears that the server closes, and has no way to make it close.
///
/// A library that serves one connection often cancels the token that it was given when that connection ends. With the
/// server's own token, one client that leaves would then end the streams of all tenants. So parts of the server hold this
/// instead, and a connection gets a [child](Self::child_token).
#[derive(Debug, Clone)]
pub struct Closing(CancellationToken);

impl Closing {
    /// The end of the server whose token this is.
    pub fn of(server: &CancellationToken) -> Self {
        // A child: even what cancels this by mistake does not reach the server.
        Self(server.child_token())
    }

    /// A token that is cancelled with the server. Cancelling it ends what holds it and nothing else.
    pub fn child_token(&self) -> CancellationToken {
        self.0.child_token()
    }

    /// Resolves when the server closes.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.0.cancelled()
    }

    /// Resolves when the server closes.
    pub fn cancelled_owned(self) -> WaitForCancellationFutureOwned {
        self.0.cancelled_owned()
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A server that never closes.
impl Default for Closing {
    fn default() -> Self {
        Self(CancellationToken::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tasks;

    #[tokio::test]
    async fn a_part_that_ends_does_not_end_the_server_or_another_part() {
        let server = CancellationToken::new();
        let closing = Closing::of(&server);
        let (leaves, stays) = (closing.child_token(), closing.child_token());
        let part = Tasks::until(&closing);
        drop(leaves.drop_guard());
        part.stop().await;
        assert!(!server.is_cancelled() && !closing.is_cancelled() && !stays.is_cancelled());
        server.cancel();
        assert!(closing.is_cancelled() && stays.is_cancelled());
    }
}
