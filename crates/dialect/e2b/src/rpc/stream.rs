//! Answers that are streams: messages, something now and then while there are none, and an end.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use sandstorm_e2b_wire::{KEEPALIVE_INTERVAL, STREAM};
use serde_json::Value;
use tokio::time::Instant;

use super::{Code, RpcError, RpcResult, envelope};
use crate::door::Guest;
use crate::state::Dialect;

/// Between two signs of life, unless the client asks for another time.
const KEEPALIVE: Duration = Duration::from_secs(90);
const SHORTEST: Duration = Duration::from_secs(1);

/// How a stream goes.
#[derive(Debug)]
pub(crate) struct Course {
    /// What is sent while nothing happens.
    pub(crate) keepalive: Value,
    pub(crate) every: Duration,
    /// When it ends, whatever happens.
    pub(crate) until: Option<Instant>,
}

impl Course {
    pub(crate) fn new(headers: &HeaderMap, keepalive: Value, lasts: Option<Duration>) -> Self {
        let asked = headers.get(KEEPALIVE_INTERVAL).and_then(|value| value.to_str().ok()?.parse().ok());
        let every = asked.map_or(KEEPALIVE, Duration::from_secs).max(SHORTEST);
        let until = lasts.and_then(|span| Instant::now().checked_add(span));
        Self { keepalive, every, until }
    }
}

/// One step of a stream.
enum Step<T> {
    Next(Option<T>),
    Quiet,
    Over(RpcError),
}

struct State {
    messages: BoxStream<'static, RpcResult<Value>>,
    course: Course,
    dialect: Dialect,
    /// Resolves when who listens may not any more. It lasts as long as the stream, so that no busy one gets past it.
    gone: BoxFuture<'static, ()>,
    done: bool,
}

/// The answer: every message, then an end that tells of the first error.
pub(crate) fn answer(
    dialect: &Dialect,
    guest: &Guest,
    messages: impl Stream<Item = RpcResult<Value>> + Send + 'static,
    course: Course,
) -> Response {
    let seat = match dialect.control.open_stream(&guest.caller) {
        Ok(seat) => seat,
        Err(error) => return super::failed_stream(&error.into()),
    };
    let state = State {
        messages: messages.boxed(),
        course,
        dialect: dialect.clone(),
        gone: dialect.control.clone().revoked(guest.caller.clone()).boxed(),
        done: false,
    };
    let frames = stream::unfold((state, seat), |(mut state, seat)| async move {
        let frame = state.frame().await?;
        Some((frame, (state, seat)))
    });
    response(Body::from_stream(frames))
}

pub(crate) fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    response
}

fn broken_off() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the sandbox ended")
}

impl State {
    /// The next piece of the answer. The end of the sandbox breaks the connection off instead of ending the stream: a client
    /// that sees that asks `/health` and learns from it that the sandbox is gone.
    async fn frame(&mut self) -> Option<io::Result<Bytes>> {
        if self.done {
            return None;
        }
        match self.step().await {
            Step::Next(Some(Ok(message))) => Some(Ok(envelope::message(&message))),
            Step::Next(Some(Err(error))) | Step::Over(error) => {
                self.done = true;
                Some(if error.is_sandbox_gone() {
                    Err(broken_off())
                } else {
                    Ok(envelope::end(Some(&error)))
                })
            }
            Step::Next(None) => {
                self.done = true;
                Some(Ok(envelope::end(None)))
            }
            Step::Quiet => Some(Ok(envelope::message(&self.course.keepalive))),
        }
    }

    async fn step(&mut self) -> Step<RpcResult<Value>> {
        let quiet = tokio::time::sleep(self.course.every);
        let until = self.course.until;
        let over = async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let closing = &self.dialect.settings.closing;
        tokio::select! {
            biased;
            () = &mut self.gone => Step::Over(RpcError::sandbox_gone()),
            message = self.messages.next() => Step::Next(message),
            () = over => Step::Over(RpcError::new(Code::DeadlineExceeded, "the time of the stream is over")),
            () = closing.cancelled() => Step::Over(RpcError::new(Code::Unavailable, "the server is stopping")),
            () = quiet => Step::Quiet,
        }
    }
}
