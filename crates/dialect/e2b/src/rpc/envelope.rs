//! Envelopes of streams: one byte of flags, four of length, a message.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde_json::json;

use super::{Code, RpcError, RpcResult};

const HEAD: usize = 5;
const COMPRESSED: u8 = 1;
const END: u8 = 2;

/// A message on its way.
pub(crate) fn message(message: &impl Serialize) -> Bytes {
    match serde_json::to_vec(message) {
        Ok(json) => enclosed(0, &json),
        // Texts and numbers are always JSON; a client that waits must hear something all the same.
        Err(_) => end(Some(&RpcError::new(Code::Internal, "a message could not be written"))),
    }
}

/// The end of a stream, and why if it failed.
pub(crate) fn end(error: Option<&RpcError>) -> Bytes {
    let body = error.map_or_else(|| json!({}), |error| json!({"error": error.body()}));
    enclosed(END, body.to_string().as_bytes())
}

fn enclosed(flags: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + payload.len());
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    bytes.put_slice(payload);
    bytes.freeze()
}

/// Takes messages out of a stream of bytes, however it is cut.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    largest: usize,
    ended: bool,
}

impl Decoder {
    pub(crate) fn new(largest: usize) -> Self {
        Self { buffer: BytesMut::new(), largest, ended: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if !self.ended {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next whole message; `None` until more came, or after the end.
    pub(crate) fn next(&mut self) -> RpcResult<Option<Bytes>> {
        if self.ended || self.buffer.len() < HEAD {
            return Ok(None);
        }
        let flags = self.buffer[0];
        let length =
            u32::from_be_bytes([self.buffer[1], self.buffer[2], self.buffer[3], self.buffer[4]]) as usize;
        if length > self.largest {
            let message = format!("a message of {length} bytes is longer than {}", self.largest);
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        let message = self.buffer.split_to(HEAD + length).freeze().slice(HEAD..);
        match flags {
            0 => Ok(Some(message)),
            END => {
                self.ended = true;
                Ok(None)
            }
            COMPRESSED => Err(RpcError::new(Code::Unimplemented, "compressed messages are not taken")),
            _ => Err(RpcError::invalid("a message has unknown flags")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_every_cut() {
        let mut bytes = message(&json!({"a": 1})).to_vec();
        bytes.extend_from_slice(&message(&json!({"b": "ü"})));
        bytes.extend_from_slice(&end(None));
        for cut in 1..=bytes.len() {
            let mut decoder = Decoder::new(100);
            let mut found = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(message) = decoder.next().unwrap() {
                    found.push(String::from_utf8(message.to_vec()).unwrap());
                }
            }
            assert_eq!(found, [r#"{"a":1}"#, r#"{"b":"ü"}"#], "{cut}");
            assert!(decoder.ended);
        }
    }

    #[test]
    fn hostile_heads_are_refused_before_their_messages() {
        let mut decoder = Decoder::new(10);
        decoder.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.next().unwrap_err().code, Code::ResourceExhausted);
        for flags in [1, 3, 4, 0x80] {
            let mut decoder = Decoder::new(10);
            decoder.push(&[flags, 0, 0, 0, 0]);
            assert!(decoder.next().is_err(), "{flags}");
        }
    }

    #[test]
    fn the_end_tells_why() {
        assert_eq!(&end(None)[..], b"\x02\0\0\0\x02{}");
        let told = end(Some(&RpcError::sandbox_gone()));
        let json: serde_json::Value = serde_json::from_slice(&told[5..]).unwrap();
        assert_eq!(json["error"]["code"], "unavailable");
        assert_eq!(told[0], END);
    }
}
