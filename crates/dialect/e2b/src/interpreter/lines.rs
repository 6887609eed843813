//! The answer of an execution: a line of JSON for each thing that happens, and one now and then while nothing does.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::{HeaderValue, header};
use sandstorm_control::server::{Attached, StreamGuard};
use sandstorm_types::{Event, EventBody, Phase};
use serde_json::{Value, json};

use super::printing::Printing;
use super::variables::Held;
use super::{Plain, output};
use crate::door::Guest;
use crate::state::Dialect;

/// Between two signs of life.
const KEEPALIVE: Duration = Duration::from_secs(5);

struct Lines {
    dialect: Dialect,
    guest: Guest,
    /// Dropping them ends the execution.
    events: BoxStream<'static, Event>,
    /// Lines that are known already.
    waiting: std::collections::VecDeque<Value>,
    /// What was printed and is no whole line yet.
    printing: Printing,
    complained: bool,
    over: bool,
    _seat: StreamGuard,
    /// Let go of after the events: what is put back comes behind the execution.
    _held: Held,
}

pub(super) fn answer(
    dialect: &Dialect,
    guest: &Guest,
    count: u64,
    attached: Attached,
    held: Held,
) -> Result<Response, Plain> {
    let lines = Lines {
        dialect: dialect.clone(),
        guest: guest.clone(),
        events: attached.events,
        printing: Printing::default(),
        waiting: [json!({"type": "number_of_executions", "execution_count": count})].into(),
        complained: false,
        over: false,
        _seat: dialect.control.open_stream(&guest.caller)?,
        _held: held,
    };
    let lines = stream::unfold(lines, |mut lines| async move {
        let line = lines.next().await?;
        Some((line, lines))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

impl Lines {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Some(Ok(Bytes::from(format!("{line}\n"))));
            }
            if self.over {
                return None;
            }
            let event = tokio::select! {
                biased;
                event = self.events.next() => event,
                () = self.printing.rested() => {
                    self.waiting.extend(self.printing.take());
                    continue;
                }
                () = tokio::time::sleep(KEEPALIVE) => {
                    self.waiting.push_back(json!({"type": "keepalive"}));
                    continue;
                }
            };
            if let Err(broken) = self.take(event).await {
                self.over = true;
                return Some(Err(broken));
            }
        }
    }

    async fn take(&mut self, event: Option<Event>) -> io::Result<()> {
        let body = event.map(|event| event.body);
        match &body {
            Some(EventBody::Stdout(chunk)) => {
                self.waiting.extend(self.printing.add("stdout", chunk.data.as_bytes()));
            }
            Some(EventBody::Stderr(chunk)) => {
                self.waiting.extend(self.printing.add("stderr", chunk.data.as_bytes()));
            }
            _ => self.waiting.extend(self.printing.take()),
        }
        match body {
            Some(EventBody::Stdout(_) | EventBody::Stderr(_)) => {}
            Some(EventBody::Result(result)) => self.waiting.push_back(output::result(result)),
            Some(EventBody::Error(error)) => {
                self.complained = true;
                self.waiting.push_back(output::error(&error));
            }
            Some(EventBody::Start { .. }) => {}
            Some(EventBody::End(end)) => {
                self.over = true;
                check_sandbox(&self.dialect, &self.guest).await?;
                if !self.complained {
                    self.waiting.extend(output::unsaid(&end));
                }
                self.waiting.push_back(json!({"type": "end_of_execution"}));
            }
            None => {
                self.over = true;
                check_sandbox(&self.dialect, &self.guest).await?;
                self.waiting.push_back(json!({"type": "end_of_execution"}));
            }
        }
        Ok(())
    }
}

/// A sandbox that ended takes the connection with it: by that clients know.
async fn check_sandbox(dialect: &Dialect, guest: &Guest) -> io::Result<()> {
    let view = dialect.control.sandbox(&guest.caller, guest.sandbox).await;
    let gone = |phase| matches!(phase, Phase::Terminating | Phase::Terminated | Phase::Failed);
    match view {
        Ok(view) if !gone(view.phase) => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::ConnectionReset, "the sandbox ended")),
    }
}
