//! A stream of messages from the agent: bounded, never silent for long, and with an end that says how it went.

use std::time::Duration;

use reqwest::Response;
use sandstorm_e2b_wire::envelope::{Decoder, Frame};
use serde::de::DeserializeOwned;

use super::client::broken;
use super::error::{Failure, Refusal};

/// Longest message. The agent sends output in pieces of 32 KiB, and a server in between may put some together.
const LARGEST: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct RpcStream {
    response: Response,
    decoder: Decoder,
    silence: Duration,
    over: bool,
}

impl RpcStream {
    pub(super) fn new(response: Response, silence: Duration) -> Self {
        Self { response, decoder: Decoder::new(LARGEST), silence, over: false }
    }

    /// The next message; `None` after a good end. May be dropped and called again.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        if self.over {
            return Ok(None);
        }
        let next = self.frame().await;
        self.over = !matches!(next, Ok(Frame::Message(_)));
        match next? {
            Frame::Message(json) => serde_json::from_slice(&json).map(Some).map_err(|_| {
                self.over = true;
                Failure::Senseless("a message of the stream cannot be read")
            }),
            Frame::End(json) => match Refusal::of_end(&json) {
                None => Ok(None),
                Some(refusal) => Err(Failure::Refused(Box::new(refusal))),
            },
        }
    }

    async fn frame(&mut self) -> Result<Frame, Failure> {
        loop {
            let hostile = |_| Failure::Senseless("the stream is none");
            if let Some(frame) = self.decoder.next_frame().map_err(hostile)? {
                return Ok(frame);
            }
            let piece = tokio::time::timeout(self.silence, self.response.chunk()).await;
            match piece.map_err(|_| Failure::Silent(self.silence))?.map_err(broken)? {
                Some(piece) => self.decoder.push(&piece),
                None => return Err(Failure::Broken(None)),
            }
        }
    }
}
