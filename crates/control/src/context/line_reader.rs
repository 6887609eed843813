//! What a kernel says in lines, where there is nothing but a program's streams.
//!
//! Everything here comes from a place that is not ours. A line that has not the nonce, the direction and the form of ours is
//! somebody else's and says nothing, however long it is; nothing is kept of it but how many bytes it had.

use bytes::{Bytes, BytesMut};
use data_encoding::BASE64;
use sandstorm_types::Stream;

use crate::context::Position;
use crate::context::consumed::Consumed;
use crate::context::nonce::Nonce;
use crate::context::wire::{MESSAGE, WireError};

/// Longest line of ours: kernels put 24 KiB into one, which are 32 in base64, with the nonce and a word before them.
const LINE: usize = 40 << 10;

/// What a line, or a piece of one, comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole message.
    Message(Vec<u8>),
    /// What user code wrote.
    Output { stream: Stream, bytes: Bytes },
    /// Bytes that say nothing by themselves: somebody else's, or the beginning of a message.
    Nothing,
}

/// What came from the kernel and is not used yet.
#[derive(Debug)]
pub(crate) struct LineReader {
    /// What our lines begin with.
    marker: Vec<u8>,
    waiting: BytesMut,
    /// Bytes of `waiting` that hold no end of a line.
    searched: usize,
    /// Whether `waiting` is inside a line that is somebody else's.
    skipping: bool,
    message: Vec<u8>,
    consumed: Consumed,
    /// Bytes since the beginning of a message that is not whole; what came between its parts is among them.
    partial: Option<usize>,
}

impl LineReader {
    pub(crate) fn new(nonce: &Nonce) -> Self {
        Self {
            marker: format!("{}<", nonce.as_str()).into_bytes(),
            waiting: BytesMut::new(),
            searched: 0,
            skipping: false,
            message: Vec::new(),
            consumed: Consumed::default(),
            partial: None,
        }
    }

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

    /// Where the first line begins that is not used, or the message that is not whole; `next` is the number of the next
    /// event.
    pub(crate) fn position(&self, next: u64) -> Position {
        self.consumed.position(next)
    }

    /// The next thing that is whole.
    pub(crate) fn take(&mut self) -> Result<Option<Piece>, WireError> {
        let ending = self.waiting[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(ending) = ending.map(|at| at + self.searched) else {
            return Ok(self.without_ending());
        };
        let line = self.waiting.split_to(ending + 1);
        self.searched = 0;
        let others = std::mem::take(&mut self.skipping) || ending > LINE;
        let read = if others { None } else { self.read(&line[..ending]) };
        match read {
            Some(Line::Message { last, payload }) => self.join(line.len(), last, &payload).map(Some),
            Some(Line::Output { stream, bytes }) => {
                self.use_up(line.len());
                Ok(Some(Piece::Output { stream, bytes }))
            }
            None => {
                self.use_up(line.len());
                Ok(Some(Piece::Nothing))
            }
        }
    }

    /// A line that does not end is kept only as long as it may be one of ours.
    fn without_ending(&mut self) -> Option<Piece> {
        self.searched = self.waiting.len();
        if !self.skipping && self.searched <= LINE {
            return None;
        }
        self.skipping = true;
        let dropped = std::mem::take(&mut self.searched);
        self.waiting.clear();
        self.use_up(dropped);
        (dropped > 0).then_some(Piece::Nothing)
    }

    /// `None`: it is somebody else's.
    fn read(&self, line: &[u8]) -> Option<Line> {
        let line = line.strip_prefix(self.marker.as_slice())?;
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (kind, text) = (&line[..colon], &line[colon + 1..]);
        let payload = BASE64.decode(text).ok()?;
        let output = |stream| Line::Output { stream, bytes: Bytes::from(payload.clone()) };
        match kind {
            b"message" => Some(Line::Message { last: true, payload }),
            b"part" => Some(Line::Message { last: false, payload }),
            b"stdout" => Some(output(Stream::Stdout)),
            b"stderr" => Some(output(Stream::Stderr)),
            _ => None,
        }
    }

    fn join(&mut self, length: usize, last: bool, payload: &[u8]) -> Result<Piece, WireError> {
        if self.message.len() + payload.len() > MESSAGE {
            return Err(WireError::MessageTooLong);
        }
        self.message.extend_from_slice(payload);
        if !last {
            *self.partial.get_or_insert(0) += length;
            return Ok(Piece::Nothing);
        }
        let whole = self.partial.take().unwrap_or(0) + length;
        self.consumed.settle(whole);
        Ok(Piece::Message(std::mem::take(&mut self.message)))
    }

    fn use_up(&mut self, bytes: usize) {
        match &mut self.partial {
            Some(partial) => *partial += bytes,
            None => self.consumed.settle(bytes),
        }
    }
}

/// A line of ours.
enum Line {
    Message { last: bool, payload: Vec<u8> },
    Output { stream: Stream, bytes: Bytes },
}

#[cfg(test)]
mod tests;
