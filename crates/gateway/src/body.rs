//! Request bodies: bounded in size while they stream, and in the time between their pieces.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use sandstorm_control::server::gather;
use sandstorm_provider::{ByteStream, Error};
use sandstorm_types::ErrorKind;
use tokio::time::{Instant, Sleep};

use crate::problem::{ApiError, ApiResult};

/// No piece came for too long.
#[derive(Debug)]
struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body came too slowly")
    }
}

impl StdError for Stalled {}

/// Bytes in a second that a body has to bring on average, once its patience is used up.
const SLOWEST: u64 = 4 << 10;

/// How fast a body has to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Longest pause between two pieces.
    pub(crate) pause: Duration,
    /// How long a body may be waited for in all, beside a second for each [`SLOWEST`] bytes of it. `None`: it may last for as
    /// long as it likes.
    pub(crate) patience: Option<Duration>,
}

/// A body that fails when its next piece, or all that came of it, took too long. Time counts only while somebody waits for
/// it: a sandbox that takes nothing is not the client's fault.
struct Paced {
    inner: Body,
    pace: Pace,
    /// The present wait: since when, and the end of patience.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    waited: Duration,
    brought: u64,
}

/// Bounds the time that a body takes.
pub(crate) fn paced(inner: Body, pace: Pace) -> Body {
    if inner.is_end_stream() {
        return inner;
    }
    Body::new(Paced { inner, pace, waiting: None, waited: Duration::ZERO, brought: 0 })
}

impl Paced {
    /// How long the next piece may take.
    fn patience(&self) -> Duration {
        let Some(patience) = self.pace.patience else { return self.pace.pause };
        let earned = Duration::from_secs(self.brought / SLOWEST);
        self.pace.pause.min(patience.saturating_add(earned).saturating_sub(self.waited))
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            if let Some((since, _)) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            if let Some(Ok(frame)) = &frame {
                self.brought += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            return Poll::Ready(frame);
        }
        let patience = self.patience();
        let (_, timer) = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + patience)))
        });
        timer.as_mut().poll(cx).map(|()| Some(Err(axum::Error::new(Stalled))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whether a body does not say how long it is, and may go on for as long as its sender likes.
pub(crate) fn is_stream(body: &Body) -> bool {
    HttpBody::size_hint(body).exact().is_none()
}

/// All of a body, refused as soon as it is longer than `limit`, takes longer than `time`, or `grow` has no room for what its
/// buffer grows by.
pub(crate) async fn collect(
    mut body: Body,
    limit: usize,
    time: Duration,
    mut grow: impl FnMut(usize) -> Result<(), Error>,
) -> ApiResult<Bytes> {
    let said = HttpBody::size_hint(&body);
    if said.lower() > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let most = said.upper().map_or(limit, |most| usize::try_from(most).unwrap_or(limit).min(limit));
    let read = async {
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            if all.len() + data.len() > limit {
                return Err(ApiError::too_large(limit));
            }
            gather(&mut all, &data, most, &mut grow)?;
        }
        Ok(all.into())
    };
    tokio::time::timeout(time, read).await.unwrap_or_else(|_| Err(ApiError::too_slow()))
}

/// A body as the provider takes it.
pub(crate) fn stream(body: Body) -> ByteStream {
    ByteStream::new(body.into_data_stream().map(|piece| piece.map_err(|error| broken_off(&error))))
}

/// Why a body that the provider takes has no more.
fn broken_off(error: &axum::Error) -> Error {
    let message = if is_stalled(error) { "the body came too slowly" } else { "the body broke off" };
    Error::new(ErrorKind::Cancelled, message)
}

fn broken(error: &axum::Error) -> ApiError {
    if is_stalled(error) {
        ApiError::too_slow()
    } else {
        ApiError::invalid("the body broke off or is malformed")
    }
}

fn is_stalled(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(source) = cause {
        if source.is::<Stalled>() {
            return true;
        }
        cause = source.source();
    }
    false
}

/// Refuses bodies that must be decoded first: a few bytes could become any number.
pub(crate) fn refuse_encoding(headers: &HeaderMap) -> ApiResult<()> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            Err(ApiError::media_type("plain bytes, without Content-Encoding"))
        }
        _ => Ok(()),
    }
}

/// The media type of the body in lower case, without parameters; `None` when none is named.
pub(crate) fn media_type(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let text = text.ok_or_else(|| ApiError::media_type("one known media type"))?;
    Ok(Some(text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()))
}

/// Refuses raw bodies of a type that is surely a mistake, and unknown ones where only some make sense.
pub(crate) fn expect_bytes(headers: &HeaderMap, allowed: &[&str]) -> ApiResult<()> {
    refuse_encoding(headers)?;
    match media_type(headers)? {
        Some(given) if !allowed.is_empty() && !allowed.contains(&given.as_str()) => {
            Err(ApiError::media_type(allowed[0]))
        }
        Some(given) if given.starts_with("multipart/") => {
            Err(ApiError::media_type("application/octet-stream"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use futures_util::stream;

    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    fn pieces(count: usize) -> Body {
        Body::from_stream(stream::iter((0..count).map(|_| Ok::<_, Stalled>(Bytes::from_static(b"ab")))))
    }

    async fn status(body: Body, limit: usize) -> u16 {
        match collect(body, limit, TIME, |_| Ok(())).await {
            Ok(_) => 200,
            Err(error) => error.into_response().status().as_u16(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn size_and_time_are_bounded() {
        assert_eq!(status(pieces(2), 4).await, 200);
        assert_eq!(status(pieces(3), 4).await, 413);
        assert_eq!(status(Body::from("abcde"), 4).await, 413);
        let silent = || Body::from_stream(stream::pending::<Result<Bytes, Stalled>>());
        let second = Pace { pause: Duration::from_secs(1), patience: None };
        assert_eq!(status(paced(silent(), second), 4).await, 408);
        assert_eq!(status(silent(), 4).await, 408);
        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Some((Ok::<_, Stalled>(Bytes::from_static(b"x")), ()))
        });
        assert_eq!(status(paced(Body::from_stream(trickle), second), 1 << 20).await, 408);
    }

    #[tokio::test]
    async fn a_body_takes_room_for_its_whole_buffer() {
        let mut taken = 0;
        let grow = |more| {
            taken += more;
            Ok(())
        };
        assert_eq!(collect(pieces(3), 100, TIME, grow).await.unwrap().len(), 6);
        assert_eq!(taken, 8, "the buffer doubles");
        taken = 0;
        let grow = |more| {
            taken += more;
            Ok(())
        };
        assert_eq!(collect(Body::from("abcdef"), 100, TIME, grow).await.unwrap().len(), 6);
        assert_eq!(taken, 6, "a body that says how long it is");
    }

    /// How many pieces come of an endless body that brings one of this size each second.
    async fn pieces_of_a_trickle(size: usize, patience: Option<Duration>, most: usize) -> usize {
        let trickle = stream::unfold((), move |()| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Stalled>(Bytes::from(vec![0; size])), ()))
        });
        let pace = Pace { pause: Duration::from_secs(30), patience };
        let mut body = paced(Body::from_stream(trickle), pace);
        let mut count = 0;
        while let Some(Ok(_)) = body.frame().await {
            count += 1;
            if count == most {
                break;
            }
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_not_waited_for_for_ever() {
        let patience = Some(Duration::from_secs(60));
        assert_eq!(pieces_of_a_trickle(1, patience, 10_000).await, 60, "a byte each second");
        assert_eq!(
            pieces_of_a_trickle(SLOWEST as usize, patience, 10_000).await,
            10_000,
            "slow, but it comes"
        );
        assert_eq!(pieces_of_a_trickle(1, None, 10_000).await, 10_000, "input for a program");
    }

    #[test]
    fn encoded_and_mistaken_bodies_are_refused() {
        let headers = |name: header::HeaderName, value: &'static str| {
            HeaderMap::from_iter([(name, http::HeaderValue::from_static(value))])
        };
        assert!(expect_bytes(&headers(header::CONTENT_ENCODING, "gzip"), &[]).is_err());
        assert!(
            expect_bytes(&headers(header::CONTENT_TYPE, "multipart/form-data; boundary=x"), &[]).is_err()
        );
        assert!(
            expect_bytes(&headers(header::CONTENT_TYPE, "Text/Plain; charset=x"), &["text/plain"]).is_ok()
        );
        assert!(expect_bytes(&headers(header::CONTENT_TYPE, "text/html"), &["text/plain"]).is_err());
    }
}
