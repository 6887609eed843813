//! The requests of one connection, one after the other.

use std::collections::BTreeMap;

use sandstorm_types::HostName;
use tokio::sync::oneshot;

use super::body::Body;
use super::head::{self, Authority, Upgrade};
use super::{Checked, MAX_HEAD};
use crate::proxy::Refusal;

/// What a client sends, followed from request to request.
#[derive(Debug)]
pub(crate) struct Requests<'a> {
    authority: Authority<'a>,
    /// Put into each request in place of those of the same names.
    headers: Option<&'a BTreeMap<String, String>>,
    state: State,
    read: u64,
}

#[derive(Debug)]
enum State {
    /// Between requests, or within a head that is not whole yet.
    Head(Vec<u8>),
    /// What follows it depends on what the request asked for.
    Body(Body, Upgrade),
    /// The server decides what the connection becomes.
    Asked(Upgrade),
    /// A web socket: nothing in it names a host.
    Switched,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(name: &'a HostName, port: u16) -> Self {
        Self { authority: Authority { name, port }, headers: None, state: State::Head(Vec::new()), read: 0 }
    }

    pub(crate) fn with_headers(self, headers: Option<&'a BTreeMap<String, String>>) -> Self {
        Self { headers, ..self }
    }

    /// Takes what the client sent and returns what of it, and of what was held before, may go on. After an error
    /// nothing may.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Checked<Vec<u8>> {
        let mut passed = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                State::Head(held) => {
                    let known = held.len();
                    held.extend_from_slice(&bytes[..bytes.len().min(MAX_HEAD + 1 - known)]);
                    // The empty line may have begun in what was held.
                    let from = known.saturating_sub(3);
                    let end = held[from..].windows(4).position(|four| four == b"\r\n\r\n");
                    let Some(end) = end else {
                        // A lenient server would see the end where this does not, and answer.
                        let bare = held[from..].windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r');
                        if held.len() > MAX_HEAD || bare {
                            return Err(Refusal::MalformedRequest);
                        }
                        return Ok(passed);
                    };
                    held.truncate(from + end + 4);
                    let whole = std::mem::take(held);
                    self.state = self.after_head(&whole)?;
                    match self.headers {
                        Some(headers) => passed.extend_from_slice(&head::with_headers(&whole, headers)?),
                        None => passed.extend_from_slice(&whole),
                    }
                    whole.len() - known
                }
                State::Body(body, upgrade) => {
                    let (taken, ended) = body.follow(bytes)?;
                    passed.extend_from_slice(&bytes[..taken]);
                    if ended {
                        self.state = after_request(*upgrade);
                    }
                    taken
                }
                // Whoever does not wait for the answer wants it read as something else than it will be.
                State::Asked(_) => return Err(Refusal::MalformedRequest),
                State::Switched => {
                    passed.extend_from_slice(bytes);
                    bytes.len()
                }
            };
            bytes = &bytes[taken..];
        }
        Ok(passed)
    }

    fn after_head(&mut self, head: &[u8]) -> Checked<State> {
        let head = head::parse(head, self.authority)?;
        self.read += 1;
        // Only the first answer of a connection is known to be the answer to its first request.
        if head.upgrade != Upgrade::No && self.read > 1 {
            return Err(Refusal::MalformedRequest);
        }
        Ok(match head.body {
            Some(body) => State::Body(body, head.upgrade),
            None => after_request(head.upgrade),
        })
    }

    /// Whether the server must answer before the client may go on.
    pub(crate) fn waits_for_answer(&self) -> bool {
        matches!(self.state, State::Asked(_))
    }

    /// Whether a request has begun and is not whole.
    pub(crate) fn is_within_head(&self) -> bool {
        matches!(&self.state, State::Head(held) if !held.is_empty())
    }

    /// The server has answered, and switched protocols or not.
    pub(crate) fn answered(&mut self, switched: bool) -> Checked<()> {
        self.state = match (&self.state, switched) {
            (State::Asked(Upgrade::WebSocket), true) => State::Switched,
            (State::Asked(_), true) => return Err(Refusal::PlainHttp2),
            _ => State::Head(Vec::new()),
        };
        Ok(())
    }
}

fn after_request(upgrade: Upgrade) -> State {
    match upgrade {
        Upgrade::No => State::Head(Vec::new()),
        asked => State::Asked(asked),
    }
}

/// Watches for the status of a server's first answer.
#[derive(Debug)]
pub(crate) struct FirstStatus {
    start: Vec<u8>,
    switched: Option<oneshot::Sender<bool>>,
}

const SWITCHING: &[u8] = b"HTTP/1.1 101";

impl FirstStatus {
    /// A watcher, and where it will say whether the server switched protocols.
    pub(crate) fn new() -> (Self, oneshot::Receiver<bool>) {
        let (switched, told) = oneshot::channel();
        (Self { start: Vec::new(), switched: Some(switched) }, told)
    }

    /// Whether the server has said nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.start.is_empty()
    }

    pub(crate) fn see(&mut self, bytes: &[u8]) {
        let missing = SWITCHING.len() - self.start.len();
        self.start.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        if self.start.len() == SWITCHING.len()
            && let Some(switched) = self.switched.take()
        {
            // Nobody waits when no request asked for it.
            let _ = switched.send(self.start == SWITCHING);
        }
    }
}

#[cfg(test)]
mod tests;
