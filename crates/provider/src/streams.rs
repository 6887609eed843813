//! Bytes on their way: a file's content, an archive, a connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use sandstorm_types::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Error, Result};

/// Bytes that arrive in pieces.
pub struct ByteStream(BoxStream<'static, Result<Bytes>>);

impl ByteStream {
    pub fn new(stream: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Self {
        Self(stream.boxed())
    }

    /// All bytes at once, refused when there are more than `limit`.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.0.try_next().await? {
            if all.len() + piece.len() > limit {
                return Err(Error::new(ErrorKind::InvalidRequest, "there are more bytes than allowed")
                    .with("limit", limit));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}

impl Stream for ByteStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl From<Bytes> for ByteStream {
    fn from(bytes: Bytes) -> Self {
        Self::new(stream::iter([Ok(bytes)]))
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByteStream")
    }
}

/// Both directions of a connection into a sandbox.
pub struct Duplex(Pin<Box<dyn ReadWrite>>);

trait ReadWrite: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ReadWrite for T {}

impl Duplex {
    pub fn new(connection: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self(Box::pin(connection))
    }
}

impl AsyncRead for Duplex {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(cx)
    }
}

impl fmt::Debug for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Duplex")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn collecting_is_bounded() {
        let pieces =
            || ByteStream::new(stream::iter([Ok(Bytes::from_static(b"ab")), Ok(Bytes::from_static(b"c"))]));
        assert_eq!(pieces().collect(3).await.unwrap(), "abc");
        assert_eq!(pieces().collect(2).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
}
