//! Answers end with the right to hear them.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::{Body as HttpBody, Frame, SizeHint};
use sandstorm_control::server::{Caller, Control};

/// Whatever is no longer is sent at once, and not worth a clock.
const SHORT: u64 = 64 << 10;

/// An answer that is cut when its caller's key is revoked, or the token or the open door by which it came.
struct UntilRevoked {
    inner: Body,
    caller: Option<(Control, Caller)>,
    revoked: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// A stream of events ends anywhere; of content a part must not look like the whole.
    events: bool,
    over: bool,
}

/// Cuts an answer to this caller when they may not hear it any more.
pub(crate) fn until_revoked(control: &Control, caller: Caller, response: Response) -> Response {
    if response.body().size_hint().upper().is_some_and(|most| most <= SHORT) {
        return response;
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let events = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
    let caller = Some((control.clone(), caller));
    response.map(|inner| Body::new(UntilRevoked { inner, caller, revoked: None, events, over: false }))
}

impl HttpBody for UntilRevoked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        // From the first look on, so that a stream that always has something is looked after too.
        if let Some((control, caller)) = self.caller.take() {
            self.revoked = Some(Box::pin(control.revoked(caller)));
        }
        if self.revoked.as_mut().is_some_and(|revoked| revoked.as_mut().poll(cx).is_ready()) {
            self.over = true;
            let cut = "the key is not valid any more";
            return Poll::Ready((!self.events).then(|| Err(axum::Error::new(cut))));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
