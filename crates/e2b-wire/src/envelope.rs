//! Envelopes of streams: one byte of flags, four of length, a message.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

const HEAD: usize = 5;
const COMPRESSED: u8 = 1;
const END: u8 = 2;

/// What an envelope holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Message(Bytes),
    /// The last one: how the stream ended.
    End(Bytes),
}

/// Why bytes are no envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    #[error("a message of {length} bytes is longer than {most}")]
    TooLong { length: usize, most: usize },
    #[error("compressed messages are not taken")]
    Compressed,
    #[error("a message has unknown flags")]
    Flags,
}

/// A message on its way.
pub fn message(json: &[u8]) -> Bytes {
    enclosed(0, json)
}

/// The end of a stream.
pub fn end(json: &[u8]) -> Bytes {
    enclosed(END, json)
}

fn enclosed(flags: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + payload.len());
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    bytes.put_slice(payload);
    bytes.freeze()
}

/// Takes envelopes out of a stream of bytes, however it is cut.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    largest: usize,
    ended: bool,
}

impl Decoder {
    /// One that takes messages of at most `largest` bytes.
    pub fn new(largest: usize) -> Self {
        Self { buffer: BytesMut::new(), largest, ended: false }
    }

    /// Bytes that came and belong to no whole envelope yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if !self.ended {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next whole envelope; `None` until more came, or after the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, EnvelopeError> {
        if self.ended || self.buffer.len() < HEAD {
            return Ok(None);
        }
        let flags = self.buffer[0];
        let length =
            u32::from_be_bytes([self.buffer[1], self.buffer[2], self.buffer[3], self.buffer[4]]) as usize;
        if length > self.largest {
            return Err(EnvelopeError::TooLong { length, most: self.largest });
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        let payload = self.buffer.split_to(HEAD + length).freeze().slice(HEAD..);
        match flags {
            0 => Ok(Some(Frame::Message(payload))),
            END => {
                self.ended = true;
                Ok(Some(Frame::End(payload)))
            }
            COMPRESSED => Err(EnvelopeError::Compressed),
            _ => Err(EnvelopeError::Flags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_every_cut() {
        let parts = [message(br#"{"a":1}"#), message("{\"b\":\"ü\"}".as_bytes()), end(b"{}")];
        let mut bytes = parts.concat();
        bytes.extend_from_slice(b"behind the end");
        let wanted = [
            Frame::Message(Bytes::from_static(br#"{"a":1}"#)),
            Frame::Message(Bytes::from_static("{\"b\":\"ü\"}".as_bytes())),
            Frame::End(Bytes::from_static(b"{}")),
        ];
        for cut in 1..=bytes.len() {
            let mut decoder = Decoder::new(100);
            let mut found = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, wanted, "{cut}");
        }
    }

    #[test]
    fn hostile_heads_are_refused_before_their_messages() {
        let mut decoder = Decoder::new(10);
        decoder.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(decoder.next_frame(), Err(EnvelopeError::TooLong { most: 10, .. })));
        for flags in [1, 3, 4, 0x80] {
            let mut decoder = Decoder::new(10);
            decoder.push(&[flags, 0, 0, 0, 0]);
            assert!(decoder.next_frame().is_err(), "{flags}");
        }
        assert_eq!(&end(b"{}")[..], b"\x02\0\0\0\x02{}");
    }
}
