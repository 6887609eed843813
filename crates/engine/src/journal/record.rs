//! One record of a journal: a length, a mark of its content, the content.

use std::time::Duration;

use bytes::Bytes;
use sandstorm_provider::{EndCause, ExecEnd, ExecEvent, ExecStatus, Keep, Usage};
use sandstorm_types::{ByteSize, Denied, LimitName, LimitSet, PerStream, Stream};
use serde::{Deserialize, Serialize};

use crate::exec::Tally;

/// Length and mark.
pub(super) const HEADER: usize = 8;

/// Longest content: a chunk of output and room for its envelope.
pub(super) const LONGEST: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// The first of every file.
    Head(Head),
    Started,
    Output {
        error: bool,
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Channel {
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Exited(End),
    /// How much was written in all, after part of it was not kept.
    Written(u64, u64),
    /// What is left of its time, whether that runs, and when this was so.
    Clock(Clock),
    /// The end of a program that was refused something on the network.
    ExitedDenied(End, Vec<Denied>),
}

/// What a program was started with, and how far its log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) about: About,
    /// Number of the first event in this file.
    pub(super) first: u64,
    pub(super) kept: (u64, u64),
    pub(super) written: (u64, u64),
    pub(super) channel: u64,
}

/// What a new host has to know of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Bytes of output that are kept; `None`: everything, until it is forgotten.
    pub(crate) limit: Option<u64>,
    pub(crate) lasting: bool,
    /// Whether its input is written as it comes.
    pub(crate) input: bool,
    pub(crate) channel: bool,
    /// What the kernel had counted when it began.
    pub(crate) began: Tally,
    /// The guest interpreter that runs it.
    pub(crate) guest: Option<u32>,
}

impl About {
    pub(crate) fn keep(&self) -> Keep {
        self.limit.map_or(Keep::UntilForgotten, |limit| Keep::UpTo(ByteSize::bytes(limit)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    pub(super) left: Duration,
    pub(super) runs: bool,
    /// Since the machine started.
    pub(super) at: Duration,
}

/// The twin of [`ExecEnd`] in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    status: Result<i32, i32>,
    cause: Cause,
    limits_hit: LimitSet,
    written: (u64, u64),
    truncated: (bool, bool),
    cpu: Duration,
    memory: u64,
    peak_memory: u64,
    processes: u32,
    disk: u64,
    inodes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Cause {
    Program,
    Limit(LimitName),
    Caller,
    Sandbox,
}

pub(super) fn pair<T>(both: PerStream<T>) -> (T, T) {
    (both.stdout, both.stderr)
}

pub(super) fn both<T>((stdout, stderr): (T, T)) -> PerStream<T> {
    PerStream { stdout, stderr }
}

impl From<&ExecEnd> for End {
    fn from(end: &ExecEnd) -> Self {
        let usage = &end.usage;
        Self {
            status: match end.status {
                ExecStatus::Code(code) => Ok(code),
                ExecStatus::Signal(signal) => Err(signal),
            },
            cause: match end.cause {
                // There are no compilers here: what is compiled is a program.
                EndCause::Program | EndCause::Compiler => Cause::Program,
                EndCause::Limit(limit) => Cause::Limit(limit),
                EndCause::Caller => Cause::Caller,
                EndCause::Sandbox => Cause::Sandbox,
            },
            limits_hit: end.limits_hit,
            written: pair(end.written),
            truncated: pair(end.truncated),
            cpu: usage.cpu,
            memory: usage.memory.as_u64(),
            peak_memory: usage.peak_memory.as_u64(),
            processes: usage.processes,
            disk: usage.disk.as_u64(),
            inodes: usage.inodes,
        }
    }
}

impl From<End> for ExecEnd {
    fn from(end: End) -> Self {
        Self {
            status: end.status.map_or_else(ExecStatus::Signal, ExecStatus::Code),
            cause: match end.cause {
                Cause::Program => EndCause::Program,
                Cause::Limit(limit) => EndCause::Limit(limit),
                Cause::Caller => EndCause::Caller,
                Cause::Sandbox => EndCause::Sandbox,
            },
            limits_hit: end.limits_hit,
            denied: Vec::new(),
            written: both(end.written),
            truncated: both(end.truncated),
            usage: Usage {
                cpu: end.cpu,
                memory: ByteSize::bytes(end.memory),
                peak_memory: ByteSize::bytes(end.peak_memory),
                processes: end.processes,
                disk: ByteSize::bytes(end.disk),
                inodes: end.inodes,
            },
        }
    }
}

impl From<&ExecEvent> for Record {
    fn from(event: &ExecEvent) -> Self {
        match event {
            ExecEvent::Started => Self::Started,
            ExecEvent::Output { stream, offset, bytes } => {
                Self::Output { error: *stream == Stream::Stderr, offset: *offset, bytes: bytes.to_vec() }
            }
            ExecEvent::Channel { offset, bytes } => Self::Channel { offset: *offset, bytes: bytes.to_vec() },
            ExecEvent::Exited(end) if end.denied.is_empty() => Self::Exited(End::from(end)),
            ExecEvent::Exited(end) => Self::ExitedDenied(End::from(end), end.denied.clone()),
        }
    }
}

impl Record {
    /// The event that it holds, if it is one.
    pub(super) fn into_event(self) -> Option<ExecEvent> {
        Some(match self {
            Self::Started => ExecEvent::Started,
            Self::Output { error, offset, bytes } => ExecEvent::Output {
                stream: if error { Stream::Stderr } else { Stream::Stdout },
                offset,
                bytes: Bytes::from(bytes),
            },
            Self::Channel { offset, bytes } => ExecEvent::Channel { offset, bytes: Bytes::from(bytes) },
            Self::Exited(end) => ExecEvent::Exited(end.into()),
            Self::ExitedDenied(end, denied) => ExecEvent::Exited(ExecEnd { denied, ..end.into() }),
            Self::Head(_) | Self::Written(..) | Self::Clock(_) => return None,
        })
    }

    pub(super) fn is_event(&self) -> bool {
        !matches!(self, Self::Head(_) | Self::Written(..) | Self::Clock(_))
    }

    pub(super) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = postcard::to_extend(self, vec![0; HEADER]).map_err(std::io::Error::other)?;
        let length = u32::try_from(bytes.len() - HEADER).map_err(std::io::Error::other)?;
        let mark = mark(&bytes[HEADER..]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..HEADER].copy_from_slice(&mark);
        Ok(bytes)
    }

    /// The record at the start of `bytes` and its length in all. `None`: there is no whole one.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (wanted, rest) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let content = rest.get(..length).filter(|_| length <= LONGEST)?;
        match postcard::take_from_bytes(content) {
            Ok((record, [])) if mark(content) == *wanted => Some((record, HEADER + length)),
            _ => None,
        }
    }
}

fn mark(content: &[u8]) -> [u8; 4] {
    let hash = blake3::hash(content);
    let [a, b, c, d, ..] = *hash.as_bytes();
    [a, b, c, d]
}
