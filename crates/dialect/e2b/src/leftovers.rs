//! What is left of a request's body once the answer is there.
//!
//! Who is refused early, or sends a message that nobody has to read, may still be sending it. A connection on which
//! something is left is closed, and the client's next request, already on its way, would fail. So a little is read on.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Frame, SizeHint};

/// More than this, or longer, is not worth the connection.
const MOST: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_millis(500);

type Slot = Arc<Mutex<Option<Body>>>;

/// A body that is given back when it is dropped before its end.
struct Lent {
    body: Option<Body>,
    back: Slot,
}

/// Answers, and reads what little is left.
pub(crate) async fn read_on(request: Request, next: Next) -> Response {
    let slot = Slot::default();
    let lent = |body| Body::new(Lent { body: Some(body), back: Arc::clone(&slot) });
    let response = next.run(request.map(lent)).await;
    let left = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(left) = left {
        // Whatever comes of it, the answer is due.
        let _ = tokio::time::timeout(PATIENCE, to_nowhere(left)).await;
    }
    response
}

async fn to_nowhere(body: Body) {
    let mut pieces = body.into_data_stream();
    let mut read = 0;
    while let Some(Ok(piece)) = pieces.next().await {
        read += piece.len();
        if read > MOST {
            return;
        }
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.back.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use futures_util::stream;
    use tower::ServiceExt;

    use super::*;

    /// How many of four pieces were taken by a handler that reads nothing.
    async fn taken(size: usize) -> usize {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let pieces = stream::iter(0..4).map(move |_| {
            counter.fetch_add(1, Ordering::AcqRel);
            Ok::<_, std::convert::Infallible>(Bytes::from(vec![0; size]))
        });
        let router = Router::new().route("/", post(async || "refused")).layer(from_fn(read_on));
        let request = Request::post("/").body(Body::from_stream(pieces)).unwrap();
        assert_eq!(router.oneshot(request).await.unwrap().status(), 200);
        count.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn little_is_read_on_and_much_is_not() {
        assert_eq!(taken(10).await, 4);
        assert_eq!(taken(MOST).await, 2);
    }

    #[tokio::test]
    async fn a_body_that_never_ends_costs_little_time() {
        let router = Router::new().route("/", post(async || "refused")).layer(from_fn(read_on));
        let endless = stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let request = Request::post("/").body(Body::from_stream(endless)).unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(router.oneshot(request).await.unwrap().status(), 200);
        assert!(began.elapsed() < 4 * PATIENCE);
    }
}
