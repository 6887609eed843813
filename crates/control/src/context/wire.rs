//! Messages on the kernel's channel: frames of at most a mebibyte, joined while their top bit says that more follows.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Largest payload of a frame.
const FRAME: usize = 1 << 20;
/// Largest message.
const MESSAGE: usize = 128 << 20;
/// Top bit of a header: the message goes on.
const MORE: u32 = 1 << 31;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("its channel closed")]
    Closed,
    #[error("a frame of {0} bytes is too long")]
    FrameTooLong(usize),
    #[error("a message is longer than {MESSAGE} bytes")]
    MessageTooLong,
    #[error("what it said is not a message")]
    Malformed,
}

/// The reading side. It can be left in the middle of a message and taken up again.
#[derive(Debug)]
pub(crate) struct Wire<R> {
    reader: R,
    /// Bytes that arrived and are not used yet.
    waiting: Vec<u8>,
    message: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Wire<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, waiting: Vec::new(), message: Vec::new() }
    }

    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<T, WireError> {
        loop {
            if let Some(more) = self.take_frame()? {
                if self.message.len() > MESSAGE {
                    return Err(WireError::MessageTooLong);
                }
                if !more {
                    let message = std::mem::take(&mut self.message);
                    return serde_json::from_slice(&message).map_err(|_| WireError::Malformed);
                }
                continue;
            }
            let mut buffer = vec![0; 64 * 1024];
            match self.reader.read(&mut buffer).await {
                Ok(0) | Err(_) => return Err(WireError::Closed),
                Ok(n) => self.waiting.extend_from_slice(&buffer[..n]),
            }
        }
    }

    /// Moves one whole frame to the message; says whether more follows.
    fn take_frame(&mut self) -> Result<Option<bool>, WireError> {
        let Some(header) = self.waiting.first_chunk::<4>() else { return Ok(None) };
        let header = u32::from_le_bytes(*header);
        let length = (header & !MORE) as usize;
        if length > FRAME {
            return Err(WireError::FrameTooLong(length));
        }
        if self.waiting.len() < 4 + length {
            return Ok(None);
        }
        self.message.extend_from_slice(&self.waiting[4..4 + length]);
        self.waiting.drain(..4 + length);
        Ok(Some(header & MORE != 0))
    }
}

pub(crate) async fn send<T: Serialize>(
    writer: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> Result<(), WireError> {
    let bytes = serde_json::to_vec(message).map_err(|_| WireError::Malformed)?;
    if bytes.len() > MESSAGE {
        return Err(WireError::MessageTooLong);
    }
    let mut pieces = bytes.chunks(FRAME).peekable();
    while let Some(piece) = pieces.next() {
        let more = if pieces.peek().is_some() { MORE } else { 0 };
        writer.write_all(&(piece.len() as u32 | more).to_le_bytes()).await.map_err(|_| WireError::Closed)?;
        writer.write_all(piece).await.map_err(|_| WireError::Closed)?;
    }
    writer.flush().await.map_err(|_| WireError::Closed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn long_messages_arrive_whole() {
        let (mut ours, theirs) = tokio::io::duplex(1000);
        let long = json!({ "type": "x", "text": "y".repeat(3 << 20) });
        let sent = long.clone();
        let sending = async move { send(&mut ours, &sent).await.unwrap() };
        let mut wire = Wire::new(theirs);
        let (got, ()) = tokio::join!(wire.next::<Value>(), sending);
        assert_eq!(got.unwrap(), long);
        assert!(matches!(wire.next::<Value>().await, Err(WireError::Closed)));
    }

    #[tokio::test]
    async fn an_interrupted_read_loses_nothing() {
        let (mut ours, theirs) = tokio::io::duplex(100);
        let mut wire = Wire::new(theirs);
        ours.write_all(&[5, 0, 0, 0, b'"', b'a']).await.unwrap();
        let soon = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, wire.next::<String>()).await.is_err());
        ours.write_all(b"bc\"").await.unwrap();
        assert_eq!(wire.next::<String>().await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn lies_about_length_are_refused() {
        let (mut ours, theirs) = tokio::io::duplex(100);
        ours.write_all(&[255, 255, 255, 127]).await.unwrap();
        assert!(matches!(Wire::new(theirs).next::<Value>().await, Err(WireError::FrameTooLong(_))));
    }
}
