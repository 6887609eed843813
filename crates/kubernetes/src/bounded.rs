//! Answers of a cluster that do not end fill no memory: each has a most size, and so has each line of one that is followed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use kube::client::Body as Asked;
use tower::{BoxError, Service};

/// Longest answer, and longest line of one that goes on.
const MOST: usize = 64 << 20;

/// A way to a cluster whose answers are bounded.
#[derive(Debug, Clone)]
pub(crate) struct Bounded<S>(pub(crate) S);

impl<S, B> Service<Request<Asked>> for Bounded<S>
where
    S: Service<Request<Asked>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<Measured<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let by_line = query.split('&').any(|part| part.starts_with("watch="));
        let answer = self.0.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Measured { body, by_line, left: MOST })) })
    }
}

/// An answer that fails when it is too long.
#[derive(Debug)]
pub(crate) struct Measured<B> {
    body: B,
    by_line: bool,
    left: usize,
}

impl<B> Measured<B> {
    /// Takes note of a piece; `false`: it was too much.
    fn take(&mut self, piece: &[u8]) -> bool {
        let last_line = piece.iter().rposition(|byte| *byte == b'\n').filter(|_| self.by_line);
        let (budget, taken) = match last_line {
            Some(end) => (MOST, piece.len() - end - 1),
            None => (self.left, piece.len()),
        };
        let left = budget.checked_sub(taken);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

impl<B> Body for Measured<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let fits = frame.data_ref().is_none_or(|piece| self.take(piece));
        Poll::Ready(Some(if fits { Ok(frame) } else { Err("the answer of the cluster is too long".into()) }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;

    use super::*;

    fn measured(by_line: bool) -> Measured<()> {
        Measured { body: (), by_line, left: MOST }
    }

    #[test]
    fn an_answer_has_a_most_size_and_a_line_too() {
        let half = vec![b'x'; MOST / 2];
        let mut answer = measured(false);
        assert!(answer.take(&half) && answer.take(&half));
        assert!(!answer.take(b"\n"), "all of it counts");
        let mut lines = measured(true);
        for _ in 0..8 {
            assert!(lines.take(&half) && lines.take(b"y\nz"), "each line by itself");
        }
        assert!(lines.take(&half) && !lines.take(&half), "a line without an end");
    }

    #[tokio::test]
    async fn a_list_without_end_is_given_up() {
        let service = tower::service_fn(|_: Request<Asked>| async {
            let endless = futures_util::stream::repeat_with(|| {
                Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(&[b' '; 1 << 16])))
            });
            Ok::<_, BoxError>(Response::new(http_body_util::StreamBody::new(endless)))
        });
        let client = Client::new(Bounded(service), "default");
        let request = Request::get("/api/v1/pods").body(Vec::new()).unwrap();
        assert!(client.request_text(request).await.is_err());
    }
}
