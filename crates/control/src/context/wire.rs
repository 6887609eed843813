//! Messages on the kernel's channel: frames of at most a mebibyte, joined while their top bit says that more follows.

use bytes::{BufMut, Bytes, BytesMut};
use sandstorm_provider::CHANNEL_MESSAGE;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Position;
use crate::context::consumed::Consumed;

/// Largest payload of a frame.
const FRAME: usize = 1 << 20;
/// Largest message from a kernel.
pub(crate) const MESSAGE: usize = 128 << 20;
/// Largest message to a kernel.
pub(crate) const TO_KERNEL: usize = CHANNEL_MESSAGE - 4 * (CHANNEL_MESSAGE / FRAME + 1);
/// JSON values in one message. Each takes many times as much memory as it takes here, and ours have fewer: a kernel shows no
/// JSON that is longer than a mebibyte.
const VALUES: usize = 1 << 20;
/// Top bit of a header: the message goes on.
const MORE: u32 = 1 << 31;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("a frame of {0} bytes is too long")]
    FrameTooLong(usize),
    #[error("a message is longer than {MESSAGE} bytes")]
    MessageTooLong,
    #[error("what it said is not a message")]
    Malformed,
}

/// What came from the kernel and is not used yet.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    waiting: BytesMut,
    message: Vec<u8>,
    /// What whole messages have used.
    consumed: Consumed,
    /// Bytes of the message that is not whole yet, with its headers, that were taken out of `waiting`.
    partial: usize,
}

impl Wire {
    /// Bytes that event `number` brought.
    pub(crate) fn push(&mut self, number: u64, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        self.consumed.push(number, bytes.len());
    }

    /// Leaves out the first bytes of the first event: an earlier host has used them.
    pub(crate) fn skip(&mut self, bytes: usize) {
        let _ = self.waiting.split_to(bytes.min(self.waiting.len()));
        self.consumed.settle(bytes);
    }

    /// Where the first message that is not whole yet begins; `next` is the number of the next event.
    pub(crate) fn position(&self, next: u64) -> Position {
        self.consumed.position(next)
    }

    /// The next message, if all of it is there.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        while let Some(more) = self.take_frame()? {
            if self.message.len() > MESSAGE {
                return Err(WireError::MessageTooLong);
            }
            if !more {
                let message = std::mem::take(&mut self.message);
                let whole = std::mem::take(&mut self.partial);
                self.consumed.settle(whole);
                return read(&message).map(Some);
            }
        }
        Ok(None)
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
        let frame = self.waiting.split_to(4 + length);
        self.message.extend_from_slice(&frame[4..]);
        self.partial += frame.len();
        Ok(Some(header & MORE != 0))
    }
}

/// Reads a message from a kernel.
pub(crate) fn read<T: DeserializeOwned>(message: &[u8]) -> Result<T, WireError> {
    if message.len() > VALUES && count_values(message) > VALUES {
        return Err(WireError::Malformed);
    }
    serde_json::from_slice(message).map_err(|_| WireError::Malformed)
}

/// How many values a message holds, about: each but the first comes behind one of these signs.
fn count_values(message: &[u8]) -> usize {
    let (mut text, mut escaped, mut values) = (false, false, 0);
    for byte in message {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' => escaped = text,
            b'"' => text = !text,
            b',' | b'[' | b'{' | b':' if !text => values += 1,
            _ => {}
        }
    }
    values
}

/// A message to a kernel, in frames.
pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Bytes, WireError> {
    let bytes = serde_json::to_vec(message).map_err(|_| WireError::Malformed)?;
    if bytes.len() > TO_KERNEL {
        return Err(WireError::MessageTooLong);
    }
    let mut frames = BytesMut::with_capacity(bytes.len() + 32);
    let mut pieces = bytes.chunks(FRAME).peekable();
    while let Some(piece) = pieces.next() {
        let more = if pieces.peek().is_some() { MORE } else { 0 };
        frames.put_u32_le(piece.len() as u32 | more);
        frames.extend_from_slice(piece);
    }
    Ok(frames.freeze())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn messages_arrive_whole_however_they_are_cut() {
        let messages =
            [json!({ "text": "y".repeat(3 << 20) }), json!(1), json!([]), json!("z".repeat(70_000))];
        let stream: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
        for size in [1_000, 65_536, 1 << 20, stream.len()] {
            let mut wire = Wire::default();
            let mut got: Vec<Value> = Vec::new();
            for (number, piece) in stream.chunks(size).enumerate() {
                wire.push(number as u64, piece);
                while let Some(message) = wire.take().unwrap() {
                    got.push(message);
                }
            }
            assert!(got == messages, "cut at {size}");
            let next = stream.len().div_ceil(size) as u64;
            assert_eq!(wire.position(next), Position { event: next, skip: 0 });
        }
    }

    #[test]
    fn whoever_goes_on_at_the_position_misses_nothing() {
        let messages: Vec<Value> = (0..50).map(|n| json!({ "n": n, "text": "x".repeat(n * 7) })).collect();
        let stream: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
        let events: Vec<&[u8]> = stream.chunks(100).collect();
        let mut first = Wire::default();
        let mut heard = 0;
        for (number, bytes) in events.iter().enumerate() {
            first.push(number as u64, bytes);
            while first.take::<Value>().unwrap().is_some() {
                heard += 1;
                // Another host takes over right here.
                let at = first.position(number as u64 + 1);
                let mut second = Wire::default();
                let mut rest: Vec<Value> = Vec::new();
                for (number, bytes) in events.iter().enumerate().skip(at.event as usize) {
                    second.push(number as u64, bytes);
                    if number as u64 == at.event {
                        second.skip(at.skip);
                    }
                    while let Some(message) = second.take().unwrap() {
                        rest.push(message);
                    }
                }
                assert_eq!(rest, messages[heard..], "after {heard} messages");
            }
        }
        assert_eq!(heard, 50);
    }

    #[test]
    fn a_message_of_very_many_values_is_refused_before_it_is_read() {
        let many = format!("[{}0]", "0,".repeat(VALUES));
        assert!(matches!(read::<Value>(many.as_bytes()), Err(WireError::Malformed)));
        let text = json!({ "text": "[,:{\\\"".repeat(VALUES) });
        assert_eq!(read::<Value>(&serde_json::to_vec(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn lies_about_length_are_refused() {
        let mut wire = Wire::default();
        wire.push(0, &[255, 255, 255, 127]);
        assert!(matches!(wire.take::<Value>(), Err(WireError::FrameTooLong(_))));
        assert!(matches!(encode(&"x".repeat(CHANNEL_MESSAGE)), Err(WireError::MessageTooLong)));
    }
}
