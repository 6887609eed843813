//! Refuses HTTP/1 requests that two parsers could read in two ways, before ours reads them.
//!
//! hyper takes a request with both lengths as chunked and lines that end in a bare LF as lines; both are allowed to a
//! server and both are how requests are smuggled past a proxy that reads them otherwise. This filter sits below hyper:
//! it holds back each head until it is whole, looks at it, follows the body to find the next head, and lets everything
//! through unchanged. A head that it refuses is replaced by a request of our own, which only we can write and which is
//! answered with the refusal and the end of the connection, in its turn behind the answers that are still due.

mod framing;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::ServeLimits;
use super::refusal::{Refusal, Refusals};
use framing::{Body, judge};

/// How HTTP/2 begins; it has frames of its own and none of these ambiguities.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What is no part of a chunked body: hyper ends it with an error.
const NO_CHUNK: &[u8] = b"\0\r\n\r\n";
const PIECE: usize = 8 << 10;

/// A connection that lets only unambiguous HTTP/1 through.
#[derive(Debug)]
pub(super) struct StrictHttp<I> {
    inner: I,
    max_head: usize,
    max_headers: usize,
    refusals: Refusals,
    /// Set when the server has agreed to speak another protocol from here on.
    upgraded: Arc<AtomicBool>,
    state: State,
    /// Read, but not yet judged.
    waiting: BytesMut,
    /// Judged, on the way to the parser.
    passed: BytesMut,
    /// Runs until the first head is whole. Later ones are timed by the parser, which knows when it waits for one; but it
    /// begins to do so only when it has seen which protocol is spoken.
    first: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum State {
    /// So many bytes of `waiting` were searched for the end of the head.
    Head {
        searched: usize,
    },
    Body(Body),
    /// Another protocol, or nothing more to look at.
    Open,
    /// A head was refused: what follows does not count.
    Refused,
}

impl<I> StrictHttp<I> {
    pub(super) fn new(inner: I, limits: &ServeLimits, refusals: Refusals, upgraded: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            max_head: limits.head_bytes,
            max_headers: limits.headers,
            refusals,
            upgraded,
            state: State::Head { searched: 0 },
            waiting: BytesMut::new(),
            passed: BytesMut::new(),
            first: Some(Box::pin(tokio::time::sleep(limits.head_time))),
        }
    }

    /// Moves from `waiting` to `passed` what can be judged.
    fn sift(&mut self) {
        while !self.waiting.is_empty() {
            match &mut self.state {
                State::Open => self.passed.unsplit(self.waiting.split()),
                State::Refused => self.waiting.clear(),
                State::Body(body) => match body.take(&self.waiting) {
                    Ok((length, over)) => {
                        self.passed.unsplit(self.waiting.split_to(length));
                        if over {
                            self.state = State::Head { searched: 0 };
                        }
                    }
                    Err(()) => {
                        self.waiting.clear();
                        self.passed.extend_from_slice(NO_CHUNK);
                        self.state = State::Refused;
                    }
                },
                State::Head { searched } => {
                    if PREFACE.starts_with(&self.waiting[..self.waiting.len().min(PREFACE.len())]) {
                        if self.waiting.len() < PREFACE.len() {
                            return;
                        }
                        self.state = State::Open;
                        continue;
                    }
                    // The end may begin in what was searched before.
                    let from = searched.saturating_sub(3);
                    let end = self.waiting[from..].windows(4).position(|four| four == b"\r\n\r\n");
                    match end.map(|at| from + at + 4) {
                        Some(end) if end <= self.max_head => {
                            match judge(&self.waiting[..end], self.max_headers) {
                                Ok(body) => {
                                    self.passed.unsplit(self.waiting.split_to(end));
                                    self.state = body.map_or(State::Head { searched: 0 }, State::Body);
                                }
                                Err(refusal) => self.refuse(refusal),
                            }
                        }
                        None if hopeless(&self.waiting) => self.refuse(Refusal::Malformed),
                        None if self.waiting.len() <= self.max_head => {
                            *searched = self.waiting.len();
                            return;
                        }
                        _ => self.refuse(Refusal::TooLarge),
                    }
                }
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.waiting.clear();
        self.passed.extend_from_slice(&self.refusals.request(refusal));
        self.state = State::Refused;
    }
}

impl<I: AsyncRead + Unpin> StrictHttp<I> {
    /// Reads of a body whose length is known straight to where it is wanted: uploads need not be copied.
    fn poll_plain(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, left: u64) -> Poll<io::Result<()>> {
        let most = buf.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut part))?;
        let length = part.filled().len();
        buf.advance(length);
        self.state = match left - length as u64 {
            0 => State::Head { searched: 0 },
            left => State::Body(Body::Sized(left)),
        };
        Poll::Ready(Ok(()))
    }
}

/// Whether a head that is not whole is wrong already: a bare LF, or what no request begins with.
fn hopeless(head: &[u8]) -> bool {
    let bare = head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'));
    bare || head.first().is_some_and(|byte| !byte.is_ascii_alphabetic())
}

impl<I: AsyncRead + Unpin> AsyncRead for StrictHttp<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.passed.is_empty() {
                this.first = None;
                let length = this.passed.len().min(buf.remaining());
                buf.put_slice(&this.passed[..length]);
                this.passed.advance(length);
                return Poll::Ready(Ok(()));
            }
            if matches!(this.state, State::Open) {
                return Pin::new(&mut this.inner).poll_read(cx, buf);
            }
            if let State::Body(body) = &mut this.state
                && let Some(left) = body.plain()
            {
                return this.poll_plain(cx, buf, left);
            }
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            if Pin::new(&mut this.inner).poll_read(cx, &mut piece)?.is_pending() {
                let Some(first) = &mut this.first else { return Poll::Pending };
                ready!(first.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if piece.filled().is_empty() {
                // Half a head is passed on, so that the parser sees that it broke off.
                this.passed.unsplit(this.waiting.split());
                this.state = State::Open;
                continue;
            }
            this.waiting.extend_from_slice(piece.filled());
            if this.upgraded.load(Ordering::Acquire) && matches!(this.state, State::Head { .. }) {
                this.state = State::Open;
            }
            this.sift();
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for StrictHttp<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn strict<I>(inner: I, upgraded: &Arc<AtomicBool>) -> StrictHttp<I> {
        let limits = ServeLimits { head_bytes: 1024, headers: 10, ..ServeLimits::default() };
        StrictHttp::new(inner, &limits, Refusals::new(), Arc::clone(upgraded))
    }

    /// What comes out at the other end when `sent` goes in, in pieces of `piece` bytes.
    async fn through(sent: &[u8], piece: usize) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        for part in sent.chunks(piece) {
            client.write_all(part).await.unwrap();
        }
        client.shutdown().await.unwrap();
        let mut out = Vec::new();
        strict(server, &Arc::default()).read_to_end(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn plain_requests_pass_unchanged_however_they_arrive() {
        let two = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n\n\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
        let chunked = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4;x=1\r\nab\ncd\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let chunked: Vec<u8> = String::from_utf8_lossy(chunked).replace("4;x", "5;x").into_bytes();
        let preface = [PREFACE, b"\0\0\0\n\n"].concat();
        for sent in [&two[..], &chunked, &preface] {
            for piece in [1, 2, 7, 4096] {
                assert_eq!(through(sent, piece).await, sent, "{piece}");
            }
        }
    }

    #[tokio::test]
    async fn ambiguous_heads_are_replaced_and_nothing_follows() {
        let head = |lines: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n");
        let long = format!("X: {}", "a".repeat(2000));
        for bad in [
            head("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            head("Transfer-Encoding: chunked\r\nContent-Length: 5"),
            head("Content-Length: 5\r\nContent-Length: 5"),
            head("Content-Length: 5, 5"),
            head("Content-Length: +5"),
            head("Content-Length: 0x5"),
            head("Content-Length: 99999999999999999999"),
            head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            head("Transfer-Encoding: gzip, chunked"),
            head("Transfer-Encoding: xchunked"),
            head("Transfer-Encoding:\tchunked\r\n X: folded"),
            head("X: a\r\n folded"),
            head("X : a"),
            head("X: a\nY: b"),
            head("X: a\0b"),
            head("X: a\rb"),
            head(": a"),
            head("no colon"),
            head(&long),
            head(&["X: a"; 12].join("\r\n")),
            "GET /{x} HTTP/1.1\r\nHost: h\r\n\r\n".replace("{x}", "<\\>"),
            "GET / HTTP/1.1\nHost: h\n\n".to_owned(),
            "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "GET  / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "GET / HTTP/1.1 \r\nHost: h\r\n\r\n".to_owned(),
            "GET /\r\n\r\n".to_owned(),
            "GET / HTTP/2.0\r\nHost: h\r\n\r\n".to_owned(),
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n".to_owned(),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n".to_owned(),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n".to_owned(),
        ] {
            let sent = format!("{bad}GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
            for piece in [1, 4096] {
                let out = through(sent.as_bytes(), piece).await;
                let text = String::from_utf8_lossy(&out).into_owned();
                let refused = text.contains("connection: close\r\n\r\n") || out.ends_with(NO_CHUNK);
                assert!(refused && !text.contains("smuggled"), "{bad:?} gave {text:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_has_its_time() {
        let (mut client, server) = tokio::io::duplex(4096);
        let mut server = strict(server, &Arc::default());
        client.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
        let mut head = [0; 64];
        assert_eq!(server.read(&mut head).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_new_protocol_is_left_alone() {
        let (mut client, server) = tokio::io::duplex(4096);
        let upgraded = Arc::new(AtomicBool::new(false));
        let mut server = strict(server, &upgraded);
        client.write_all(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n").await.unwrap();
        let mut head = [0; 64];
        let _ = server.read(&mut head).await.unwrap();
        upgraded.store(true, Ordering::Release);
        client.write_all(b"\x81\n\n\0").await.unwrap();
        let mut frame = [0; 4];
        server.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\x81\n\n\0");
    }
}
