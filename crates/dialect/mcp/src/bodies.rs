//! Room for what clients send. Others collect the bodies, so each piece is counted on its way to them.

use std::mem::size_of;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use http_body::{Body as HttpBody, Frame, SizeHint};
use sandstorm_control::server::{BodyRoom, Caller, Control};
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;

use crate::sessions::kept;

/// What a piece takes that is kept by itself until all have come.
const PIECE: usize = size_of::<Bytes>();

/// How a refusal is written.
pub(crate) type Written = fn(StatusCode, &Error) -> Response;

/// Where bodies are counted, and how those are refused that have no room.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) control: Control,
    pub(crate) written: Written,
}

/// Counts what comes of a request's body against its tenant's room, until the request is answered.
pub(crate) async fn count(State(counting): State<Counting>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let Some(caller) = request.extensions().get::<Caller>() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let count = Count { room: counting.control.body_room(caller), refused: None };
    let count = Arc::new(Mutex::new(count));
    let counted = Arc::clone(&count);
    let response = next.run(request.map(|inner| Body::new(Counted { inner, count: counted }))).await;
    let refused = lock(&count).refused.take();
    match refused {
        Some(error) => refuse(counting.written, &error),
        None => kept(response, count),
    }
}

/// A refusal in plain text.
pub(crate) fn plain(status: StatusCode, error: &Error) -> Response {
    (status, error.message().to_owned()).into_response()
}

fn refuse(written: Written, error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::Quota => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = written(status, error);
    let seconds = error.retry_after().map_or(1, |after| after.as_secs().max(1));
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// What a body takes, and why no more of it was taken.
struct Count {
    room: BodyRoom,
    refused: Option<Error>,
}

fn lock(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that ends in an error when there is no room for its next piece.
struct Counted {
    inner: Body,
    count: Arc<Mutex<Count>>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else { return Poll::Pending };
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            let mut count = lock(&self.count);
            if let Err(error) = count.room.grow(data.len() + PIECE) {
                let why = error.message().to_owned();
                count.refused = Some(error);
                return Poll::Ready(Some(Err(axum::Error::new(std::io::Error::other(why)))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
