//! A server that answers each connection as it was told, and remembers what it was asked.

use std::net::SocketAddr;

use sandstorm_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// `GET /v1/sandboxes HTTP/1.1`
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Script {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Script {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), Some("ss_key")).unwrap()
    }

    pub(crate) async fn accept(&self) -> (TcpStream, Asked) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let asked = read(&mut stream).await;
        (stream, asked)
    }

    /// Answers one connection after the other, closing each, and gives what was asked.
    pub(crate) async fn play(&self, answers: &[&str]) -> Vec<Asked> {
        let mut all = Vec::new();
        for answer in answers {
            let (mut stream, asked) = self.accept().await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            all.push(asked);
        }
        all
    }
}

/// Reads a request with its body, which must have a length or come in chunks.
async fn read(stream: &mut TcpStream) -> Asked {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the client left");
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines();
    let line = lines.next().unwrap().to_owned();
    let pair = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let mut asked = Asked { line, headers: lines.map(pair).collect(), body: bytes[head + 4..].to_vec() };
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    while asked.body.len() < length {
        assert_ne!(stream.read_buf(&mut asked.body).await.unwrap(), 0, "the client left");
    }
    while asked.header("transfer-encoding").is_some() && !asked.body.ends_with(b"0\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut asked.body).await.unwrap(), 0, "the client left");
    }
    asked
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}", body.len())
}

/// A stream of events that breaks off when the connection closes: the last chunk never comes.
pub(crate) fn broken_stream(events: &str) -> String {
    let chunk = format!("{:x}\r\n{events}\r\n", events.len());
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{chunk}")
}

/// The same, ended in good order.
pub(crate) fn whole_stream(events: &str) -> String {
    format!("{}0\r\n\r\n", broken_stream(events))
}
