//! Whether the client of a session is there.
//!
//! A session outlives its connections: a client whose answer broke off may come back for the rest of it. One that does not
//! come back is gone, and what was done for it must not go on until its limit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;

/// Counts what a client has open in its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence(Arc<watch::Sender<usize>>);

/// One request and its answer. The client is there until it is dropped.
#[derive(Debug)]
pub(crate) struct Here(Arc<watch::Sender<usize>>);

impl Presence {
    pub(crate) fn enter(&self) -> Here {
        self.0.send_modify(|open| *open += 1);
        Here(Arc::clone(&self.0))
    }

    /// Resolves when the client had nothing open for so long.
    pub(crate) async fn left(&self, patience: Duration) {
        let mut open = self.0.subscribe();
        loop {
            // The sender is held here, so it never closes.
            let _ = open.wait_for(|open| *open == 0).await;
            if tokio::time::timeout(patience, open.wait_for(|open| *open > 0)).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// An answer, and what has to last as long as it does.
pub(crate) fn kept(response: Response, with: impl Send + Unpin + 'static) -> Response {
    response.map(|inner| Body::new(Kept { inner, _with: with }))
}

struct Kept<T> {
    inner: Body,
    _with: T,
}

impl<T: Unpin> HttpBody for Kept<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_comes_back_in_time_never_left() {
        let presence = Presence::default();
        let patience = Duration::from_secs(30);
        let began = tokio::time::Instant::now();
        let visits = async {
            for _ in 0..3 {
                let here = presence.enter();
                tokio::time::sleep(Duration::from_secs(100)).await;
                drop(here);
                tokio::time::sleep(Duration::from_secs(29)).await;
            }
        };
        tokio::join!(visits, async {
            tokio::task::yield_now().await;
            presence.left(patience).await;
            assert_eq!(began.elapsed().as_secs(), 2 * 129 + 100 + 30);
        });
    }
}
