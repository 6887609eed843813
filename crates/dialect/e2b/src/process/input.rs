//! Input for programs: in one call, or as a stream.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;
use sandstorm_e2b_wire::STREAM;
use sandstorm_e2b_wire::process::{Input, InputMessage, InputRequest};
use serde_json::json;

use super::known::Known;
use crate::door::Guest;
use crate::rpc::envelope::{self, Decoder, Frame};
use crate::rpc::{self, RpcError, RpcResult, stream};
use crate::state::Dialect;

/// Longest message of a stream of input.
const LARGEST: usize = 8 << 20;

impl Dialect {
    pub(super) async fn send_input(&self, guest: &Guest, asked: InputRequest) -> RpcResult<()> {
        let known = self.running(guest, asked.process.as_ref()).await?;
        self.write_input(guest, &known, asked.input.as_ref()).await
    }

    async fn write_input(&self, guest: &Guest, known: &Known, input: Option<&Input>) -> RpcResult<()> {
        let bytes = input.ok_or_else(|| RpcError::invalid("input is missing"))?.bytes();
        let bytes = bytes.map_err(|_| RpcError::invalid("the input is not standard base64"))?;
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(bytes);
        Ok(self.control.write_stdin(&guest.caller, guest.sandbox, known.exec, bytes).await?)
    }

    pub(super) async fn stream_input(&self, guest: &Guest, headers: &HeaderMap, content: Body) -> Response {
        let taken = async {
            rpc::expect(headers, STREAM)?;
            self.take_input(guest, content).await
        };
        match rpc::in_time(headers, taken).await {
            Ok(()) => {
                let mut frames = envelope::message(&json!({})).to_vec();
                frames.extend_from_slice(&envelope::end(None));
                stream::response(Body::from(frames))
            }
            Err(error) => rpc::failed_stream(&error),
        }
    }

    /// Takes input as it comes: which program first, then its bytes.
    async fn take_input(&self, guest: &Guest, content: Body) -> RpcResult<()> {
        // It may last for as long as the program does.
        let _seat = self.control.open_stream(&guest.caller)?;
        let gone = self.control.clone().revoked(guest.caller.clone());
        tokio::select! {
            taken = self.pass_input_on(guest, content) => taken,
            () = gone => Err(RpcError::sandbox_gone()),
        }
    }

    async fn pass_input_on(&self, guest: &Guest, content: Body) -> RpcResult<()> {
        let mut room = self.control.body_room(&guest.caller);
        let mut pieces = content.into_data_stream();
        let mut decoder = Decoder::new(LARGEST);
        let mut program: Option<Known> = None;
        while let Some(piece) = pieces.next().await {
            let broken = |_| RpcError::new(rpc::Code::Canceled, "the stream of input broke off");
            let piece = piece.map_err(broken)?;
            // For as long as the program takes what has come whole, too.
            room.hold(decoder.buffered() + piece.len())?;
            decoder.push(&piece);
            while let Some(Frame::Message(message)) = decoder.next_frame()? {
                match rpc::read(&message)? {
                    InputMessage::Start(asked) => {
                        program = Some(self.running(guest, asked.process.as_ref()).await?);
                    }
                    InputMessage::Data(data) => {
                        let known = program.as_ref();
                        let known =
                            known.ok_or_else(|| RpcError::invalid("the program must be named first"))?;
                        self.write_input(guest, known, data.input.as_ref()).await?;
                    }
                    InputMessage::Keepalive(_) => {}
                }
            }
            room.hold(decoder.buffered())?;
        }
        Ok(())
    }
}
