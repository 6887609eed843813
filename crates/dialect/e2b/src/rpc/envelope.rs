//! Messages of streams in their envelopes.

use bytes::Bytes;
use sandstorm_e2b_wire::envelope::{self, EnvelopeError};
pub(crate) use sandstorm_e2b_wire::envelope::{Decoder, Frame};
use serde::Serialize;
use serde_json::json;

use super::{Code, RpcError};

/// A message on its way.
pub(crate) fn message(message: &impl Serialize) -> Bytes {
    match serde_json::to_vec(message) {
        Ok(json) => envelope::message(&json),
        // Texts and numbers are always JSON; a client that waits must hear something all the same.
        Err(_) => end(Some(&RpcError::new(Code::Internal, "a message could not be written"))),
    }
}

/// The end of a stream, and why if it failed.
pub(crate) fn end(error: Option<&RpcError>) -> Bytes {
    let body = error.map_or_else(|| json!({}), |error| json!({"error": error.body()}));
    envelope::end(body.to_string().as_bytes())
}

impl From<EnvelopeError> for RpcError {
    fn from(error: EnvelopeError) -> Self {
        let code = match error {
            EnvelopeError::TooLong { .. } => Code::ResourceExhausted,
            EnvelopeError::Compressed => Code::Unimplemented,
            EnvelopeError::Flags => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_tells_why() {
        let told = end(Some(&RpcError::sandbox_gone()));
        let mut decoder = Decoder::new(1000);
        decoder.push(&told);
        let Ok(Some(Frame::End(json))) = decoder.next_frame() else { panic!("{told:?}") };
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["error"]["code"], "unavailable");
    }
}
