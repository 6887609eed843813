//! The two ways to speak to a kernel: on a channel of its own, or in lines on its streams.

use bytes::Bytes;
use sandstorm_provider::{ChannelInput, Error, Exec, ExecEvent, ExecInput, Result};
use sandstorm_types::{ErrorKind, Stream};

use crate::context::line_reader::{LineReader, Piece};
use crate::context::line_writer::LineWriter;
use crate::context::message::{FromKernel, ToKernel};
use crate::context::nonce::Nonce;
use crate::context::wire::{self, Wire, WireError};
use crate::context::{Position, broken};

/// Bytes of what was said beside lines that are shown when an interpreter does not start.
const COMPLAINT: usize = 300;

/// How a kernel is spoken to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Spoken {
    /// On a channel of its own.
    #[default]
    Channel,
    /// In lines on its streams, where a provider has no channels.
    Lines(Nonce),
}

/// What is heard of a kernel.
#[derive(Debug)]
pub(crate) enum Heard {
    Message(FromKernel),
    Output {
        stream: Stream,
        bytes: Bytes,
    },
    /// So many bytes of messages, or of nobody's.
    Said(usize),
}

#[derive(Debug)]
pub(crate) enum Transport {
    Channel(Channel),
    Lines(Lines),
}

#[derive(Debug)]
pub(crate) struct Channel {
    to: ChannelInput,
    input: ExecInput,
    wire: Wire,
    /// What the last event brought.
    latest: Option<Heard>,
}

#[derive(Debug)]
pub(crate) struct Lines {
    reader: LineReader,
    pub(crate) writer: LineWriter,
    /// Bytes of messages and output since the last commit.
    since_commit: usize,
    /// What was said on standard error by somebody else than user code: why an interpreter does not start.
    complaint: Vec<u8>,
    /// Bytes of both streams that were not told of.
    beside: usize,
}

impl Transport {
    /// The way to a program that was started to be spoken to like this.
    pub(crate) fn to(exec: &Exec, spoken: &Spoken) -> Result<Self> {
        match (&exec.channel, spoken) {
            (Some(channel), Spoken::Channel) => Ok(Self::Channel(Channel {
                to: channel.clone(),
                input: exec.input.clone(),
                wire: Wire::default(),
                latest: None,
            })),
            (_, Spoken::Lines(nonce)) => Ok(Self::Lines(Lines {
                reader: LineReader::new(nonce),
                writer: LineWriter::new(nonce, exec.input.clone()),
                since_commit: 0,
                complaint: Vec::new(),
                beside: 0,
            })),
            (None, Spoken::Channel) => Err(Error::new(ErrorKind::Internal, "the program has no channel")),
        }
    }

    /// Standard input of the code that runs there.
    pub(crate) fn input(&self) -> &ExecInput {
        match self {
            Self::Channel(channel) => &channel.input,
            Self::Lines(lines) => lines.writer.input(),
        }
    }

    /// Takes an event in; an earlier host has used the first `skip` bytes of it.
    pub(crate) fn push(&mut self, number: u64, event: ExecEvent, skip: usize) {
        match (self, event) {
            (Self::Channel(channel), ExecEvent::Channel { bytes, .. }) => {
                channel.wire.push(number, &bytes);
                channel.wire.skip(skip);
                channel.latest = Some(Heard::Said(bytes.len()));
            }
            (Self::Channel(channel), ExecEvent::Output { stream, bytes, .. }) => {
                channel.latest = Some(Heard::Output { stream, bytes });
            }
            (Self::Lines(lines), ExecEvent::Output { stream: Stream::Stdout, bytes, .. }) => {
                lines.reader.push(number, &bytes);
                lines.reader.skip(skip);
                // What a line comes to is known later; however little it is, it counts.
                lines.beside += bytes.len();
                lines.since_commit += bytes.len();
            }
            (Self::Lines(lines), ExecEvent::Output { stream: Stream::Stderr, bytes, .. }) => {
                let room = COMPLAINT.saturating_sub(lines.complaint.len());
                lines.complaint.extend_from_slice(&bytes[..bytes.len().min(room)]);
                lines.beside += bytes.len();
                lines.since_commit += bytes.len();
            }
            _ => {}
        }
    }

    /// What is next of what was taken in.
    pub(crate) fn take(&mut self) -> Result<Option<Heard>, WireError> {
        match self {
            // What an event brought is counted before its messages mean anything.
            Self::Channel(Channel { latest: latest @ Some(_), .. }) => Ok(latest.take()),
            Self::Channel(channel) => Ok(channel.wire.take()?.map(Heard::Message)),
            Self::Lines(lines) if lines.beside > 0 => {
                Ok(Some(Heard::Said(std::mem::take(&mut lines.beside))))
            }
            Self::Lines(lines) => Ok(match lines.reader.take()? {
                Some(Piece::Message(message)) => Some(Heard::Message(wire::read(&message)?)),
                Some(Piece::Output { stream, bytes }) => Some(Heard::Output { stream, bytes }),
                Some(Piece::Nothing) => Some(Heard::Said(0)),
                None => None,
            }),
        }
    }

    /// Where what is not used yet begins; `next` is the number of the next event.
    pub(crate) fn position(&self, next: u64) -> Position {
        match self {
            Self::Channel(channel) => channel.wire.position(next),
            Self::Lines(lines) => lines.reader.position(next),
        }
    }

    pub(crate) async fn say(&mut self, message: &ToKernel<'_>) -> Result<()> {
        let too_long = |error: WireError| {
            Error::new(ErrorKind::InvalidRequest, "the code is too long").with_source(error)
        };
        match self {
            Self::Channel(channel) => {
                let frames = wire::encode(message).map_err(too_long)?;
                match channel.to.send(frames).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => Err(broken("the interpreter ended")),
                    sent => sent,
                }
            }
            Self::Lines(lines) => lines.writer.say(message).map_err(too_long),
        }
    }

    /// Whether so much was heard since the last time that its log should be told to forget it. Where that is a message to
    /// another machine, it is not sent for every cell.
    pub(crate) fn commits(&mut self) -> bool {
        const OFTEN_ENOUGH: usize = 256 << 10;
        match self {
            Self::Channel(_) => true,
            Self::Lines(lines) => {
                let due = lines.since_commit >= OFTEN_ENOUGH;
                if due {
                    lines.since_commit = 0;
                }
                due
            }
        }
    }

    /// Why an interpreter did not start, where something was said of it.
    pub(crate) fn complaint(&self) -> Option<String> {
        let Self::Lines(lines) = self else { return None };
        let text = String::from_utf8_lossy(&lines.complaint);
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }
}
