//! A stream of events that survives a broken connection where the server keeps what was missed.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use reqwest::Url;
use sandstorm_types::{ErrorKind, Problem};
use serde::de::DeserializeOwned;

use crate::pace;
use crate::sse::{Message, Parser};
use crate::transport::Call;
use crate::{Client, Error, Result};

/// How long a stream may take to begin: there is nothing to compute first.
const HEAD: Duration = Duration::from_secs(20);

/// Events of type `T`. Waiting for the next one may be given up and taken up again without loss.
pub(crate) struct EventStream<T> {
    client: Client,
    connection: Connection,
    /// Where to connect anew; `None`: what is missed is lost, so a break is an error.
    resume: Option<Url>,
    waiting: VecDeque<Message>,
    last_id: Option<String>,
    /// Connections in a row that brought nothing, and since when.
    failures: u32,
    lost_at: Option<Instant>,
    /// Of those the last ones that ended in good order.
    empty: u32,
    done: bool,
    of: PhantomData<fn() -> T>,
}

struct Open {
    response: reqwest::Response,
    parser: Parser,
}

impl Open {
    fn new(client: &Client, response: reqwest::Response) -> Self {
        Self { response, parser: Parser::new(client.options().most_event) }
    }
}

enum Connection {
    Open(Box<Open>),
    /// To be made, after a pause if others failed.
    None,
}

impl<T> std::fmt::Debug for EventStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("last_id", &self.last_id)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> EventStream<T> {
    /// Over a response that has begun.
    pub(crate) fn over(client: &Client, response: reqwest::Response) -> Self {
        let connection = Connection::Open(Box::new(Open::new(client, response)));
        Self {
            client: client.clone(),
            connection,
            resume: None,
            waiting: VecDeque::new(),
            last_id: None,
            failures: 0,
            lost_at: None,
            empty: 0,
            done: false,
            of: PhantomData,
        }
    }

    /// Connects, and again whenever the connection breaks.
    pub(crate) async fn open(client: &Client, url: Url, after: Option<u64>) -> Result<Self> {
        let last_id = after.map(|after| after.to_string());
        let response = client.send(call(&url, last_id.as_deref())).await?;
        Ok(Self { last_id, resume: Some(url), ..Self::over(client, response) })
    }

    /// Connects once: what is missed is lost.
    pub(crate) async fn open_once(client: &Client, url: Url) -> Result<Self> {
        let response = client.send(call(&url, None)).await?;
        Ok(Self::over(client, response))
    }

    /// From now on a broken connection is made anew there.
    pub(crate) fn resume_at(&mut self, url: Url) {
        self.resume = Some(url);
    }

    /// Nothing more is expected: the end of the connection is the end.
    pub(crate) fn finish(&mut self) {
        self.done = true;
    }

    /// The next event. `None` after [`Self::finish`], or when the stream ended in good order and has nothing to resume.
    pub(crate) async fn next(&mut self) -> Option<Result<T>> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                if message.id.is_some() {
                    self.last_id = message.id;
                }
                return Some(match message.event.as_deref() {
                    Some("problem") => {
                        self.done = true;
                        Err(failure(&message.data))
                    }
                    _ => self.read(&message.data),
                });
            }
            if self.done {
                return None;
            }
            match self.receive().await {
                Ok(true) => {}
                // Nothing came, twice in good order: there is nothing more.
                Ok(false) if self.resume.is_none() || self.empty > 0 => {
                    self.done = true;
                    return None;
                }
                // A server that goes away in good order ends its streams; another one takes over.
                Ok(false) => {
                    self.lose();
                    self.empty += 1;
                }
                Err(error) if self.resume.is_some() && error.is_passing() && self.has_patience() => {
                    tracing::debug!(%error, failures = self.failures, "the stream broke; connecting anew");
                    self.lose();
                    self.empty = 0;
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
    }

    fn read(&self, data: &str) -> Result<T> {
        serde_json::from_str(data).map_err(|source| self.client.senseless("an event cannot be read", source))
    }

    fn lose(&mut self) {
        self.connection = Connection::None;
        self.failures += 1;
        self.lost_at.get_or_insert_with(Instant::now);
    }

    /// Whether another connection is worth a try.
    fn has_patience(&self) -> bool {
        self.failures < pace::MOST_FAILURES
            && self.lost_at.is_none_or(|since| since.elapsed() < self.client.options().patience)
    }

    /// Takes what comes next from the connection, which is made if there is none. `false` at its end.
    async fn receive(&mut self) -> Result<bool> {
        let open = match &mut self.connection {
            Connection::Open(open) => open,
            Connection::None => {
                let url = self.resume.as_ref().expect("only streams that resume lose their connection");
                tokio::time::sleep(pace::spread(pace::backoff(self.failures.saturating_sub(1)))).await;
                let response = self.client.send(call(url, self.last_id.as_deref())).await?;
                self.connection = Connection::Open(Box::new(Open::new(&self.client, response)));
                return Ok(true);
            }
        };
        let silence = self.client.options().silence;
        let piece = tokio::time::timeout(silence, open.response.chunk()).await;
        let piece =
            piece.map_err(|_| self.client.silent(silence))?.map_err(|error| self.client.broken(error))?;
        let Some(piece) = piece else { return Ok(false) };
        open.parser.push(&piece, &mut self.waiting).map_err(|error| error.at(self.client.server()))?;
        if !self.waiting.is_empty() {
            (self.failures, self.empty, self.lost_at) = (0, 0, None);
        }
        Ok(true)
    }
}

/// The failure that ends a stream, in the server's words.
fn failure(data: &str) -> Error {
    match serde_json::from_str::<Problem>(data) {
        Ok(problem) => Error::Failed { kind: problem.code, detail: problem.detail },
        Err(_) => {
            Error::Failed { kind: ErrorKind::Internal, detail: "the stream ended with a failure".to_owned() }
        }
    }
}

fn call(url: &Url, last_id: Option<&str>) -> Call {
    let call = Call::get(url.clone()).events().within(HEAD);
    match last_id {
        Some(id) => call.header("last-event-id", id),
        None => call,
    }
}
