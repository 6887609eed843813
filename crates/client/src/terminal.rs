//! A terminal in a sandbox, over a WebSocket: bytes as binary frames both ways, the rest as text.

use std::fmt;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use sandstorm_types::{End, GuestPath, SandboxId, User};
use serde::Deserialize;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::address::with_query;
use crate::{Client, Error, Result, TtySize};

type Socket = WebSocketStream<reqwest::Upgraded>;

/// The largest message that is taken from the server.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// The largest message that is sent; the server takes no more than 64 KiB.
const MOST_KEYS: usize = 32 * 1024;

/// A terminal to open.
#[derive(Debug, Clone)]
pub struct TerminalOptions {
    pub size: TtySize,
    /// A line for the shell; the shell itself unless given.
    pub command: Option<String>,
    /// The workspace unless given.
    pub cwd: Option<GuestPath>,
    /// The sandbox's user unless given.
    pub user: Option<User>,
}

impl TerminalOptions {
    pub fn new(size: TtySize) -> Self {
        Self { size, command: None, cwd: None, user: None }
    }
}

/// An open terminal. Dropping it ends the program.
#[derive(Debug)]
pub struct Terminal {
    pub keyboard: Keyboard,
    pub screen: Screen,
}

/// What goes in.
pub struct Keyboard {
    sink: SplitSink<Socket, Message>,
    server: String,
}

/// What comes out.
pub struct Screen {
    stream: SplitStream<Socket>,
    server: String,
    done: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TerminalOutput {
    Bytes(Bytes),
    /// How the program ended; nothing follows.
    End(Box<End>),
}

impl fmt::Debug for Keyboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyboard").finish_non_exhaustive()
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Client {
    pub async fn terminal(&self, sandbox: SandboxId, options: &TerminalOptions) -> Result<Terminal> {
        let size = options.size;
        let url = with_query(
            self.sandbox_url(sandbox, &["pty"]),
            &[
                ("rows", Some(size.rows.to_string())),
                ("cols", Some(size.cols.to_string())),
                ("cmd", options.command.clone()),
                ("cwd", options.cwd.as_ref().map(ToString::to_string)),
                ("user", options.user.map(|user| user_name(user).to_owned())),
            ],
        );
        // The HTTP client does the connecting, so that TLS, proxies and refusals are those of every other call.
        let key = generate_key();
        let request = self
            .for_upgrade()?
            .get(url)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", &key);
        let response = self.signed(request).send().await.map_err(|error| self.failed(error))?;
        let response = self.accepted(response).await?;
        let accept = response.headers().get("sec-websocket-accept").and_then(|value| value.to_str().ok());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS
            || accept != Some(&derive_accept_key(key.as_bytes()))
        {
            let what = "it did not become a WebSocket";
            return Err(Error::Answer { server: self.server(), what, source: None });
        }
        let upgraded = response.upgrade().await.map_err(|error| self.broken(error))?;
        let config =
            WebSocketConfig::default().max_message_size(Some(MOST_BYTES)).max_frame_size(Some(MOST_BYTES));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        let (sink, stream) = socket.split();
        Ok(Terminal {
            keyboard: Keyboard { sink, server: self.server() },
            screen: Screen { stream, server: self.server(), done: false },
        })
    }
}

impl Keyboard {
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(MOST_KEYS));
            self.send(Message::Binary(piece)).await?;
        }
        Ok(())
    }

    pub async fn resize(&mut self, size: TtySize) -> Result<()> {
        self.send(Message::text(serde_json::json!({ "resize": size }).to_string())).await
    }

    /// Says goodbye.
    pub async fn close(&mut self) -> Result<()> {
        self.send(Message::Close(None)).await
    }

    async fn send(&mut self, message: Message) -> Result<()> {
        self.sink.send(message).await.map_err(|error| broken(&self.server, Some(error)))
    }
}

impl Screen {
    /// The next output; `None` after the exit. A connection that ends before it is an error.
    pub async fn next(&mut self) -> Option<Result<TerminalOutput>> {
        if self.done {
            return None;
        }
        loop {
            let output = match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => Ok(TerminalOutput::Bytes(bytes)),
                Some(Ok(Message::Text(text))) => match end(text.as_str()) {
                    Some(end) => Ok(TerminalOutput::End(Box::new(end))),
                    // Other news is for later versions of this client.
                    None => continue,
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(Some(frame)))) if !frame.reason.is_empty() => Err(Error::Closed {
                    server: self.server.clone(),
                    reason: frame.reason.as_str().to_owned(),
                }),
                Some(Ok(Message::Close(_))) | None => Err(broken(&self.server, None)),
                Some(Err(error)) => Err(broken(&self.server, Some(error))),
            };
            self.done = !matches!(output, Ok(TerminalOutput::Bytes(_)));
            return Some(output);
        }
    }
}

fn broken(server: &str, error: Option<tungstenite::Error>) -> Error {
    Error::Broken { server: server.to_owned(), source: error.map(Into::into) }
}

/// The end that a text message tells, if it tells one.
fn end(text: &str) -> Option<End> {
    #[derive(Deserialize)]
    struct News {
        exit: End,
    }
    serde_json::from_str::<News>(text).ok().map(|news| news.exit)
}

fn user_name(user: User) -> &'static str {
    match user {
        User::User => "user",
        User::Root => "root",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_from_other_news() {
        let text = r#"{"exit":{"status":"error","success":false,"exit_code":3,"signal":null,"limits_hit":[],"metrics":{}}}"#;
        assert_eq!(end(text).unwrap().exit_code, Some(3));
        assert_eq!(end(r#"{"title":"x"}"#), None);
        assert_eq!(end("no json"), None);
    }
}
