//! As little HTTP as a test needs: written by hand, so that the server meets a client that is not its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::PATIENCE;

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{}: no JSON ({e}): {}", self.status, self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The JSON of an answer that must have this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: &'static str,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &'static str, target: impl Into<String>) -> Self {
        Self { method, target: target.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.bytes(body.to_string()).header("content-type", "application/json")
    }

    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

/// Sends a request on a connection of its own and reads the answer's head.
pub fn open(port: u16, request: &Request) -> std::io::Result<Stream> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(2 * PATIENCE))?;
    socket.set_nodelay(true)?;
    let mut head = format!("{} {} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n", request.method, request.target);
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", request.body.len()));
    socket.write_all(head.as_bytes())?;
    socket.write_all(&request.body)?;
    Stream::read_head(socket)
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Stream {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    chunked: bool,
    /// Bytes left of the body or of the present chunk; `None`: until the connection closes.
    left: Option<usize>,
    done: bool,
}

fn broken(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned())
}

impl Stream {
    fn read_head(socket: TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| broken(&line))?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(broken("the head does not end"));
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let chunked = find("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        let left = if chunked { Some(0) } else { find("content-length").and_then(|v| v.parse().ok()) };
        let empty = matches!(status, 101 | 204 | 304) || (!chunked && left == Some(0));
        Ok(Self { status, headers, reader, chunked, left, done: empty })
    }

    /// The next piece of the body; empty at its end.
    pub fn piece(&mut self) -> std::io::Result<Vec<u8>> {
        if self.done {
            return Ok(Vec::new());
        }
        if self.chunked && self.left == Some(0) {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let size =
                usize::from_str_radix(line.trim(), 16).map_err(|_| broken("a chunk without a size"))?;
            if size == 0 {
                self.reader.read_line(&mut line)?;
                self.done = true;
                return Ok(Vec::new());
            }
            self.left = Some(size);
        }
        let mut buffer = vec![0; self.left.unwrap_or(65_536).min(65_536)];
        let n = self.reader.read(&mut buffer)?;
        if n == 0 {
            self.done = true;
            return if self.left.is_some() { Err(broken("the body ends early")) } else { Ok(Vec::new()) };
        }
        buffer.truncate(n);
        if let Some(left) = &mut self.left {
            *left -= n;
            if *left == 0 && self.chunked {
                let mut line = String::new();
                self.reader.read_line(&mut line)?;
            } else if *left == 0 {
                self.done = true;
            }
        }
        Ok(buffer)
    }

    pub fn finish(mut self) -> std::io::Result<Answer> {
        let mut body = Vec::new();
        loop {
            let piece = self.piece()?;
            if piece.is_empty() {
                return Ok(Answer { status: self.status, headers: self.headers, body });
            }
            body.extend(piece);
        }
    }

    /// The connection below it.
    pub fn socket(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// The raw connection, after an upgrade.
    pub fn upgraded(self) -> BufReader<TcpStream> {
        self.reader
    }

    pub fn events(self) -> Events {
        Events { stream: self, waiting: Vec::new() }
    }
}

/// Server-sent events, one by one.
#[derive(Debug)]
pub struct Events {
    stream: Stream,
    waiting: Vec<u8>,
}

/// One event: its id, and its data as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct SentEvent {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: Value,
}

impl Events {
    /// The next event; `None` at the end of the stream or when the connection broke.
    pub fn next_event(&mut self) -> Option<SentEvent> {
        loop {
            if let Some(end) = self.waiting.windows(2).position(|w| w == b"\n\n") {
                let block: Vec<u8> = self.waiting.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Some(event);
                }
                continue;
            }
            match self.stream.piece() {
                Ok(piece) if !piece.is_empty() => self.waiting.extend(piece),
                _ => return None,
            }
        }
    }
}

impl Iterator for Events {
    type Item = SentEvent;

    fn next(&mut self) -> Option<SentEvent> {
        self.next_event()
    }
}

fn parse(block: &str) -> Option<SentEvent> {
    let field = |name: &str| {
        let lines: Vec<&str> = block
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|value| value.strip_prefix(' ').unwrap_or(value))
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    let data = field("data")?;
    Some(SentEvent { id: field("id"), name: field("event"), data: serde_json::from_str(&data).ok()? })
}
