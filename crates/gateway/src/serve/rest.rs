//! Reads the rest of a request body whose answer came before its end.
//!
//! An ordinary client sends its whole body and then reads the answer. If the server closes the connection earlier, the client gets
//! a broken pipe instead of the answer. So the answer goes out at once, and what is left of the body is read and dropped beside it:
//! within bounds for each connection, on so many connections at once, and never for a client that was too slow before.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

/// What is read for nothing on one connection at most, and for how long, all its requests together.
const MOST: u64 = 256 << 20;
const LONGEST: Duration = Duration::from_secs(30);
/// Longest pause between two pieces.
const PAUSE: Duration = Duration::from_secs(5);
/// Connections on which the server reads for nothing at once.
const AT_ONCE: usize = 256;

/// Places for connections on which the rest of a body is read.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Semaphore>);

/// What may still be read for nothing on one connection.
#[derive(Debug)]
pub(super) struct Patience(Mutex<Left>);

#[derive(Debug, Clone, Copy)]
struct Left {
    bytes: u64,
    time: Duration,
}

/// The end of a request body to which it comes back when its reader drops it before its end.
#[derive(Debug)]
pub(super) struct Rest<B> {
    back: oneshot::Receiver<Returned<B>>,
    /// The client sends nothing before it is asked to.
    expects: bool,
}

#[derive(Debug)]
struct Returned<B> {
    body: B,
    /// Whether anything was read of it, so that the client was asked for it.
    asked: bool,
}

/// A body on its way through the routes.
struct Lent<B: HttpBody> {
    /// `None` once there is no more to be had from it.
    body: Option<B>,
    asked: bool,
    back: Option<oneshot::Sender<Returned<B>>>,
}

impl Places {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Patience {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Left { bytes: MOST, time: LONGEST }))
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request as the routes take it. `None`: nothing can be left of its body that would matter, which is so with HTTP/2 too,
/// where a stream ends without its connection.
pub(super) fn lend(request: Request<Incoming>) -> (Request<Body>, Option<Rest<Incoming>>) {
    if request.body().is_end_stream() || request.version() >= Version::HTTP_2 {
        return (request.map(Body::new), None);
    }
    let expects = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let (lent, back) = lent(body);
    (Request::from_parts(parts, Body::new(lent)), Some(Rest { back, expects }))
}

fn lent<B: HttpBody>(body: B) -> (Lent<B>, oneshot::Receiver<Returned<B>>) {
    let (back, rest) = oneshot::channel();
    (Lent { body: Some(body), asked: false, back: Some(back) }, rest)
}

impl<B: HttpBody + Unpin> HttpBody for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.asked = true;
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            this.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl<B: HttpBody> Drop for Lent<B> {
    fn drop(&mut self) {
        let left = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Some(back)) = (left, self.back.take()) {
            let _ = back.send(Returned { body, asked: self.asked });
        }
    }
}

impl<B> Rest<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Send,
{
    /// What is to be done beside this answer, which says so if its connection ends with it.
    pub(super) fn beside(
        mut self,
        response: &mut Response,
        patience: &Arc<Patience>,
        places: &Places,
    ) -> Option<impl Future<Output = ()> + Send + use<B>> {
        let status = response.status();
        let returned = match self.back.try_recv() {
            Ok(returned) => Some(returned),
            // Its reader may still let go of it, where the answer says that something failed.
            Err(TryRecvError::Empty) if status.is_client_error() || status.is_server_error() => None,
            Err(_) => return None,
        };
        let left = *patience.left();
        let place = Arc::clone(&places.0).try_acquire_owned().ok();
        let is_slow = status == StatusCode::REQUEST_TIMEOUT;
        let unasked = self.expects && returned.as_ref().is_some_and(|returned| !returned.asked);
        let declared = returned.as_ref().map_or(0, |returned| returned.body.size_hint().lower());
        if is_slow || unasked || place.is_none() || left.time.is_zero() || declared > left.bytes {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if is_slow || unasked || left.time.is_zero() {
            return None;
        }
        Some(read_on(returned, self.back, Arc::clone(patience), left, place?))
    }
}

/// Reads to the end or to the bounds. Dropping a body before its end closes the connection.
async fn read_on<B: HttpBody<Data = Bytes> + Unpin>(
    returned: Option<Returned<B>>,
    back: oneshot::Receiver<Returned<B>>,
    patience: Arc<Patience>,
    left: Left,
    _place: OwnedSemaphorePermit,
) {
    let began = Instant::now();
    let mut read = 0;
    let reading = async {
        let returned = match returned {
            Some(returned) => returned,
            None => match back.await {
                Ok(returned) => returned,
                Err(_) => return,
            },
        };
        let mut body = returned.body;
        while read <= left.bytes {
            match timeout(PAUSE, body.frame()).await {
                Ok(Some(Ok(frame))) => read += frame.data_ref().map_or(0, Bytes::len) as u64,
                _ => return,
            }
        }
    };
    let _ = timeout(left.time, reading).await;
    let mut now = patience.left();
    now.bytes = left.bytes.saturating_sub(read);
    now.time = left.time.saturating_sub(began.elapsed());
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::response::IntoResponse;
    use futures_util::stream;

    use super::*;

    /// A body of so many pieces of a mebibyte, and how many of them were read.
    fn mebibytes(count: usize) -> (Body, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&read);
        let piece = Bytes::from(vec![0; 1 << 20]);
        let pieces = futures_util::StreamExt::map(stream::iter(0..count), move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(piece.clone())
        });
        (Body::from_stream(pieces), read)
    }

    fn refused() -> Response {
        StatusCode::UNAUTHORIZED.into_response()
    }

    /// Answers without reading the body, and reads on. Whether the answer ends the connection.
    async fn refuse(body: Body, patience: &Arc<Patience>, places: &Places, expects: bool) -> bool {
        let (lent, back) = lent(body);
        drop(lent);
        let mut response = refused();
        if let Some(reading) = (Rest { back, expects }).beside(&mut response, patience, places) {
            reading.await;
        }
        response.headers().contains_key(header::CONNECTION)
    }

    #[tokio::test]
    async fn the_rest_is_read_to_its_end_and_no_more_than_a_connection_may_have() {
        let (patience, places) = (Arc::new(Patience::new()), Places::new());
        let (body, read) = mebibytes(100);
        assert!(!refuse(body, &patience, &places, false).await);
        assert_eq!(read.load(Ordering::Relaxed), 100);
        // Request after request of one connection uses up the same bound.
        let (body, read) = mebibytes(100_000);
        refuse(body, &patience, &places, false).await;
        assert_eq!(read.load(Ordering::Relaxed), 157);
        let (body, read) = mebibytes(100_000);
        refuse(body, &patience, &places, false).await;
        assert_eq!(read.load(Ordering::Relaxed), 1);
        let (body, read) = mebibytes(2);
        let patience = Arc::new(Patience::new());
        let all: Vec<_> = (0..AT_ONCE).map(|_| Arc::clone(&places.0).try_acquire_owned().unwrap()).collect();
        assert!(refuse(body, &patience, &places, false).await, "too many at once");
        assert_eq!(read.load(Ordering::Relaxed), 0);
        drop(all);
    }

    #[tokio::test]
    async fn what_is_declared_too_large_ends_the_connection_and_what_was_not_asked_for_is_not_read() {
        let (patience, places) = (Arc::new(Patience::new()), Places::new());
        let small = Arc::new(Patience(Mutex::new(Left { bytes: 3, time: LONGEST })));
        assert!(refuse(Body::from("four"), &small, &places, false).await);
        assert!(!refuse(Body::from("four"), &patience, &places, false).await);
        let (body, read) = mebibytes(2);
        assert!(refuse(body, &patience, &places, true).await);
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_or_come_back_is_not_waited_for_for_ever() {
        let (patience, places) = (Arc::new(Patience::new()), Places::new());
        let began = Instant::now();
        let silent = || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        refuse(silent(), &patience, &places, false).await;
        assert!(began.elapsed() < 2 * PAUSE, "{:?}", began.elapsed());
        // Its reader keeps it.
        let (kept, back) = lent(silent());
        let reading = (Rest { back, expects: false }).beside(&mut refused(), &patience, &places);
        reading.unwrap().await;
        assert!(began.elapsed() <= LONGEST + Duration::from_millis(10));
        drop(kept);
        // The time is used up.
        assert!(refuse(silent(), &patience, &places, false).await);
        // A reader that keeps it under a good answer is left alone.
        let (_kept, back) = lent(silent());
        let mut good = StatusCode::OK.into_response();
        assert!((Rest { back, expects: false }).beside(&mut good, &patience, &places).is_none());
        // And who was too slow already is not waited for.
        let (lent, back) = lent(silent());
        drop(lent);
        let mut slow = StatusCode::REQUEST_TIMEOUT.into_response();
        let fresh = Arc::new(Patience::new());
        assert!((Rest { back, expects: false }).beside(&mut slow, &fresh, &places).is_none());
        assert_eq!(slow.headers()[header::CONNECTION], "close");
    }

    #[tokio::test]
    async fn a_body_that_was_read_leaves_nothing() {
        let (patience, places) = (Arc::new(Patience::new()), Places::new());
        let (lent, back) = lent(Body::from("all of it"));
        assert_eq!(lent.collect().await.unwrap().to_bytes(), "all of it");
        assert!((Rest { back, expects: false }).beside(&mut refused(), &patience, &places).is_none());
    }
}
