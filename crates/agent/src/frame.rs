//! Messages on a byte stream: a little-endian length, then the encoded message.
//!
//! The reader never believes the length: a frame past [`LIMIT`] is an error before a byte of it is stored, and trailing
//! bytes inside a frame are an error too, so that both sides always agree on where the next one begins.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::CHUNK;

/// Largest frame: a chunk of a stream with room for its envelope, or a long argument list.
pub const LIMIT: usize = 8 * CHUNK;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is over the limit of {LIMIT}")]
    TooLong(usize),
    #[error("a frame does not hold a message")]
    Malformed,
}

/// Encodes one message with its length in front.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = Vec::new();
    append(message, &mut frame)?;
    Ok(frame)
}

/// Encodes one message behind others. After an error they are as they were.
pub fn append<T: Serialize>(message: &T, frames: &mut Vec<u8>) -> Result<(), FrameError> {
    let begin = frames.len();
    frames.extend([0; 4]);
    let encoded = postcard::to_io(message, &mut *frames).map(drop).map_err(|_| FrameError::Malformed);
    let length = frames.len() - begin - 4;
    if let Err(error) = encoded.and(if length > LIMIT { Err(FrameError::TooLong(length)) } else { Ok(()) }) {
        frames.truncate(begin);
        return Err(error);
    }
    frames[begin..begin + 4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Bytes that are asked for in one reading, at least and at most.
const LEAST_ROOM: usize = 16 * 1024;
const MOST_ROOM: usize = CHUNK;

/// Collects bytes and gives out whole messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// What is before this was given out.
    begin: usize,
}

impl Decoder {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room().extend_from_slice(bytes);
    }

    /// Where to append what comes next; there is some spare room, more for a long frame.
    pub fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > MOST_ROOM {
            // It took a long frame once. That is over.
            self.buffer = Vec::new();
        }
        let missing = match self.length() {
            Ok(Some(length)) => (4 + length).saturating_sub(self.buffer.len()),
            _ => 0,
        };
        self.buffer.reserve(missing.clamp(LEAST_ROOM, MOST_ROOM));
        &mut self.buffer
    }

    /// The next whole message, if its last byte has arrived. After an error the stream is out of step: give it up.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(length) = self.length()? else { return Ok(None) };
        let Some(frame) = self.buffer.get(self.begin + 4..self.begin + 4 + length) else { return Ok(None) };
        let decoded = match postcard::take_from_bytes(frame) {
            Ok((message, [])) => Ok(Some(message)),
            Ok(_) | Err(_) => Err(FrameError::Malformed),
        };
        self.begin += 4 + length;
        decoded
    }

    /// Whether bytes of an unfinished frame are waiting.
    pub fn is_empty(&self) -> bool {
        self.begin == self.buffer.len()
    }

    fn length(&self) -> Result<Option<usize>, FrameError> {
        let Some(header) = self.buffer[self.begin..].first_chunk() else { return Ok(None) };
        match u32::from_le_bytes(*header) as usize {
            length if length > LIMIT => Err(FrameError::TooLong(length)),
            length => Ok(Some(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_bytes::ByteBuf;

    use super::*;
    use crate::protocol::{FromAgent, Held, InputStream, Stream, ToAgent};

    fn message() -> impl Strategy<Value = FromAgent> {
        prop_oneof![
            (any::<u16>(), any::<u32>()).prop_map(|(version, held)| FromAgent::Ready { version, held }),
            (any::<u32>(), any::<[u8; 16]>(), any::<[u64; 3]>(), any::<[u32; 2]>()).prop_map(
                |(id, tag, first, pending)| FromAgent::Held(Held { id, tag, walls: None, first, pending })
            ),
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..2000)).prop_map(|(id, bytes)| {
                FromAgent::Output { id, stream: Stream::Error, bytes: ByteBuf::from(bytes) }
            }),
            (any::<u32>(), any::<u32>()).prop_map(|(id, bytes)| FromAgent::Credit {
                id,
                to: InputStream::Main,
                bytes
            }),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_any_split(messages in proptest::collection::vec(message(), 0..8), cut in 1usize..700) {
            let bytes: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(m) = decoder.take::<FromAgent>().unwrap() {
                    seen.push(m);
                }
            }
            prop_assert_eq!(seen, messages);
            prop_assert!(decoder.is_empty());
        }

        /// Whatever arrives, the decoder answers: no panic, and never more kept than what was pushed.
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.take::<FromAgent>() {}
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.take::<ToAgent>() {}
        }

        /// A flipped byte gives an error or another message, never a panic or an endless loop.
        #[test]
        fn a_flipped_byte_is_survived(m in message(), at in any::<prop::sample::Index>(), with in 1u8..) {
            let mut bytes = encode(&m).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            let _ = decoder.take::<FromAgent>();
        }
    }

    #[test]
    fn a_huge_length_is_refused_at_once() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.take::<FromAgent>(), Err(FrameError::TooLong(u32::MAX as usize)));
    }

    #[test]
    fn bytes_after_the_message_inside_a_frame_are_refused() {
        let mut bytes = encode(&FromAgent::Ready { version: 1, held: 0 }).unwrap();
        bytes.push(0);
        bytes[0] += 1;
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert_eq!(decoder.take::<FromAgent>(), Err(FrameError::Malformed));
    }

    #[test]
    fn a_message_that_does_not_fit_is_not_sent() {
        let m = FromAgent::Output { id: 1, stream: Stream::Output, bytes: ByteBuf::from(vec![0; LIMIT]) };
        assert!(matches!(encode(&m), Err(FrameError::TooLong(_))));
    }
}
