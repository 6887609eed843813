//! One keep-alive connection, one request at a time, by blocking calls.
//!
//! Not the client of this workspace: the load shares the machine's cores with the server that it measures, so it has to
//! cost next to nothing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail};

/// Where a server is, and what opens it.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) port: u16,
    pub(super) key: String,
}

/// A request, ready to be sent as often as wanted.
#[derive(Debug, Clone)]
pub(super) struct Request(Vec<u8>);

impl Request {
    pub(super) fn new(address: &Address, method: &str, target: &str, body: &[u8]) -> Self {
        Self::with(address, method, target, "", body)
    }

    /// With further header lines, each ended.
    pub(super) fn with(address: &Address, method: &str, target: &str, lines: &str, body: &[u8]) -> Self {
        let kind = if method == "PUT" { "application/octet-stream" } else { "application/json" };
        let mut bytes = format!(
            "{method} {target} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\n\
             {lines}content-length: {}\r\n\r\n",
            address.port,
            address.key,
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        Self(bytes)
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The body of a good answer.
    pub(super) fn good(self) -> anyhow::Result<Vec<u8>> {
        if self.status >= 300 {
            bail!("the server answered {}: {}", self.status, shortened(&self.body));
        }
        Ok(self.body)
    }

    /// A good answer that says what a program printed; anything else would be measured for nothing.
    pub(super) fn holding(self, needle: &str) -> anyhow::Result<Vec<u8>> {
        let body = self.good()?;
        if !contains(&body, needle.as_bytes()) {
            bail!("the answer does not hold {needle}: {}", shortened(&body));
        }
        Ok(body)
    }

    pub(super) fn json(self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.good()?).context("the answer is no JSON")
    }
}

fn contains(body: &[u8], needle: &[u8]) -> bool {
    body.windows(needle.len()).any(|window| window == needle)
}

fn shortened(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(300).collect()
}

/// A connection that is kept.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    /// Bytes that were received and not yet consumed.
    waiting: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: &Address) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", address.port)).context("could not connect")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { socket, waiting: Vec::with_capacity(8192) })
    }

    pub(super) fn send(&mut self, request: &Request) -> anyhow::Result<Answer> {
        self.exchange(request).context("the connection to the server failed")
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        self.socket.write_all(&request.0)?;
        let head = self.head()?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|word| word.parse().ok());
        let status: u16 = status.ok_or_else(|| broken("an answer without a status"))?;
        let (mut length, mut chunked) = (0, false);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| broken("a length that is none"))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.trim().eq_ignore_ascii_case("chunked");
            }
        }
        let body = if chunked { self.chunks()? } else { self.take(length)? };
        Ok(Answer { status, body })
    }

    /// The head of an answer, without the empty line that ends it.
    fn head(&mut self) -> io::Result<String> {
        let end = self.find(b"\r\n\r\n")?;
        let head = self.take(end + 4)?;
        String::from_utf8(head).map_err(|_| broken("a head that is no text"))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.find(b"\r\n")?;
            let line = self.take(end + 2)?;
            let size =
                std::str::from_utf8(&line).ok().and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
            let size = size.ok_or_else(|| broken("a chunk without a size"))?;
            let mut chunk = self.take(size + 2)?;
            if size == 0 {
                return Ok(body);
            }
            chunk.truncate(size);
            body.append(&mut chunk);
        }
    }

    fn find(&mut self, mark: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(place) = self.waiting.windows(mark.len()).position(|window| window == mark) {
                return Ok(place);
            }
            self.receive()?;
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.waiting.len() < length {
            self.receive()?;
        }
        let rest = self.waiting.split_off(length);
        Ok(std::mem::replace(&mut self.waiting, rest))
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        match self.socket.read(&mut buffer)? {
            0 => Err(broken("the server closed the connection")),
            n => {
                self.waiting.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What a client reads when a server says these bytes, in small pieces, to two requests.
    fn answers(said: &'static [u8]) -> Vec<anyhow::Result<Answer>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address { port: listener.local_addr().unwrap().port(), key: "k".to_owned() };
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_nodelay(true).unwrap();
            let mut heard = [0; 4096];
            let n = socket.read(&mut heard).unwrap();
            said.chunks(7).for_each(|piece| socket.write_all(piece).unwrap());
            String::from_utf8_lossy(&heard[..n]).into_owned()
        });
        let mut connection = Connection::open(&address).unwrap();
        let request = Request::new(&address, "POST", "/v1/runs", b"{}");
        let got = vec![connection.send(&request), connection.send(&request)];
        let heard = server.join().unwrap();
        assert!(
            heard.starts_with("POST /v1/runs HTTP/1.1\r\n") && heard.ends_with("length: 2\r\n\r\n{}"),
            "{heard}"
        );
        got
    }

    #[test]
    fn answers_are_told_apart_by_their_length_and_by_chunks() {
        let got = answers(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n\
              2\r\nde\r\n1\r\nf\r\n0\r\n\r\n",
        );
        let got: Vec<_> = got.into_iter().map(Result::unwrap).collect();
        assert_eq!((got[0].status, got[0].body.as_slice()), (200, &b"abc"[..]));
        assert_eq!((got[1].status, got[1].body.as_slice()), (404, &b"def"[..]));
    }

    #[test]
    fn a_broken_answer_is_an_error() {
        let got = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc");
        assert!(got.iter().all(Result::is_err));
    }

    #[test]
    fn an_answer_without_what_was_printed_does_not_count() {
        let answer = |body: &str| Answer { status: 200, body: body.as_bytes().to_vec() };
        assert!(answer(r#"{"stdout":"1\n"}"#).holding(r#""stdout":"1\n""#).is_ok());
        assert!(answer(r#"{"stdout":""}"#).holding(r#""stdout":"1\n""#).is_err());
        assert!(Answer { status: 429, body: Vec::new() }.good().is_err());
    }
}
