//! What is said to a kernel in lines, and what its code is given to read.

use std::collections::VecDeque;

use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_provider::{Delivery, Error, ExecInput, InputFrame};
use sandstorm_types::ErrorKind;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::context::nonce::Nonce;
use crate::context::wire::{TO_KERNEL, WireError};

/// Most bytes of one line, before they are base64: with it a line fits into what providers hand over at once.
const PIECE: usize = 40 << 10;
/// Pieces of input for user code that may wait here.
const WAITING: usize = 4;

/// Lines on their way. They go out while somebody hears what comes back: a kernel that is not heard need not read.
#[derive(Debug)]
pub(crate) struct LineWriter {
    /// What our lines begin with.
    marker: String,
    queue: VecDeque<InputFrame>,
    to: ExecInput,
    /// Standard input of user code.
    input: ExecInput,
    coming: mpsc::Receiver<InputFrame>,
}

impl LineWriter {
    pub(crate) fn new(nonce: &Nonce, to: ExecInput) -> Self {
        let (input, coming) = ExecInput::channel(WAITING);
        Self { marker: format!("{}>", nonce.as_str()), queue: VecDeque::new(), to, input, coming }
    }

    pub(crate) fn input(&self) -> &ExecInput {
        &self.input
    }

    /// Ends whatever an earlier host may have left half said.
    pub(crate) fn begin_anew(&mut self) {
        self.queue.push_back(InputFrame::Data(Bytes::from_static(b"\n")));
    }

    pub(crate) fn say<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        let bytes = serde_json::to_vec(message).map_err(|_| WireError::Malformed)?;
        if bytes.len() > TO_KERNEL {
            return Err(WireError::MessageTooLong);
        }
        let mut pieces = bytes.chunks(PIECE).peekable();
        while let Some(piece) = pieces.next() {
            let kind = if pieces.peek().is_some() { "part" } else { "message" };
            self.push(kind, piece);
        }
        Ok(())
    }

    pub(crate) fn interrupt(&mut self) {
        self.push("interrupt", &[]);
    }

    fn push(&mut self, kind: &str, payload: &[u8]) {
        let line = self.line(kind, payload);
        self.queue.push_back(InputFrame::Data(line));
    }

    fn line(&self, kind: &str, payload: &[u8]) -> Bytes {
        Bytes::from(format!("{}{kind}:{}\n", self.marker, BASE64.encode(payload)))
    }

    /// Queues input whose writer waits until the kernel's place has all of its lines.
    fn push_delivery(&mut self, delivery: Delivery) {
        if let Err(error) = delivery.check_uncounted() {
            return delivery.receipt.give(Err(error));
        }
        delivery.bytes.chunks(PIECE).for_each(|piece| self.push("stdin", piece));
        // The last word goes with the receipt: what was queued before it arrives before it.
        let bytes = if delivery.close { self.line("stdin_end", &[]) } else { Bytes::new() };
        let receipt = delivery.receipt.without_count();
        self.queue.push_back(InputFrame::Deliver(Delivery { bytes, at: None, close: false, receipt }));
    }

    /// Hands lines over for as long as it is waited for, and ends only when that is not possible. Dropping the future loses
    /// nothing.
    pub(crate) async fn work(&mut self) -> Error {
        loop {
            while !self.queue.is_empty() {
                match self.to.hand_over(&mut self.queue).await {
                    Ok(()) => {}
                    // It has ended, of which its events tell more.
                    Err(error) if error.kind() == ErrorKind::Conflict => return std::future::pending().await,
                    Err(error) => return error,
                }
            }
            match self.coming.recv().await {
                Some(InputFrame::Data(bytes)) => {
                    bytes.chunks(PIECE).for_each(|piece| self.push("stdin", piece));
                }
                Some(InputFrame::Deliver(delivery)) => self.push_delivery(delivery),
                Some(InputFrame::Close) => self.push("stdin_end", &[]),
                // Not while `input` is here.
                None => return std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> (LineWriter, mpsc::Receiver<InputFrame>) {
        let (to, written) = ExecInput::channel(64);
        (LineWriter::new(&Nonce::for_tests("abc"), to), written)
    }

    async fn lines(writer: &mut LineWriter, mut written: mpsc::Receiver<InputFrame>) -> Vec<String> {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), writer.work()).await;
        let mut all = Vec::new();
        while let Ok(frame) = written.try_recv() {
            let bytes = match frame {
                InputFrame::Data(bytes) => bytes,
                InputFrame::Deliver(delivery) => {
                    delivery.receipt.give(Ok(Some(1)));
                    delivery.bytes
                }
                InputFrame::Close => panic!("the kernel goes on"),
            };
            all.push(String::from_utf8(bytes.into()).unwrap());
        }
        all
    }

    #[tokio::test]
    async fn everything_goes_out_in_its_order() {
        let (mut writer, written) = writer();
        writer.begin_anew();
        writer.say(&1).unwrap();
        writer.interrupt();
        let input = writer.input().clone();
        // The count of what the kernel is sent is not the writer's.
        let typing = async {
            assert!(input.deliver("hi", Some(0)).await.is_err());
            assert_eq!(input.deliver("hi", None).await.unwrap(), None);
        };
        let (sent, ()) = futures_util::future::join(lines(&mut writer, written), typing).await;
        let expected = ["\n", "abc>message:MQ==\n", "abc>interrupt:\n", "abc>stdin:aGk=\n", ""];
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn the_end_of_input_is_a_line_too() {
        let (mut writer, written) = writer();
        let input = writer.input().clone();
        let closing = async { input.close().await.unwrap() };
        let (sent, ()) = futures_util::future::join(lines(&mut writer, written), closing).await;
        assert_eq!(sent, ["abc>stdin_end:\n"]);
    }

    #[tokio::test]
    async fn long_messages_go_in_parts_and_too_long_ones_not_at_all() {
        let (mut writer, written) = writer();
        assert!(matches!(writer.say(&"x".repeat(TO_KERNEL)), Err(WireError::MessageTooLong)));
        writer.say(&"x".repeat(2 * PIECE)).unwrap();
        let sent = lines(&mut writer, written).await;
        let kinds: Vec<_> = sent.iter().map(|line| line[4..].split(':').next().unwrap()).collect();
        assert_eq!(kinds, ["part", "part", "message"]);
    }

    #[tokio::test]
    async fn who_takes_no_more_is_left_to_its_events() {
        let (mut writer, written) = writer();
        drop(written);
        writer.interrupt();
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), writer.work()).await;
        assert!(waited.is_err());
        let mut deaf = LineWriter::new(&Nonce::for_tests("abc"), ExecInput::none());
        deaf.interrupt();
        assert_eq!(deaf.work().await.kind(), ErrorKind::InvalidRequest);
    }
}
