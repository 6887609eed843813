//! What a client and its launcher say to each other. Every message names the jail that it is about.

use serde::{Deserialize, Serialize};

use crate::cgroup::Counters;
use crate::error::JailError;
use crate::report::Report;
use crate::spec::JailSpec;

/// The name that the client gave a jail in its spec.
pub type JailId = String;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answered by `Launched` or `Refused`.
    Launch(Box<JailSpec>),
    /// Ends a jail. Answered by its `Ended`; a jail that is gone needs no answer.
    Kill { name: JailId },
    /// Answered by `Counted`.
    Count { name: JailId },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Comes with the agent's socket, then the descriptors of a captured network.
    Launched(Launched),
    Refused {
        name: JailId,
        refusal: Refusal,
    },
    Counted {
        name: JailId,
        counters: Option<Counters>,
    },
    /// A jail ended, by itself or not, and nothing of it is left. Nobody asked.
    Ended(Ended),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    pub name: JailId,
    /// PID 1 on the host, for people who look; nothing acts on it.
    pub pid: i32,
    pub report: Report,
}

/// Why a jail was not made, in words and by the family of the error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// A wall or limit cannot be had on this host.
    Isolation,
    /// The host has no room for it now.
    Capacity,
    /// Something on the host failed.
    Host,
}

impl From<&JailError> for Refusal {
    fn from(error: &JailError) -> Self {
        let kind = match error {
            JailError::Step { .. }
            | JailError::UserNamespaces(..)
            | JailError::Limit { .. }
            | JailError::Wall { .. } => RefusalKind::Isolation,
            JailError::NoFreeIds(_) => RefusalKind::Capacity,
            JailError::Host { .. } => RefusalKind::Host,
        };
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self { kind, message }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub name: JailId,
    pub cause: EndCause,
    pub counters: Counters,
    /// Groups that could not be removed: their processes do not end. They are never used again.
    pub stuck: Vec<String>,
}

/// What ended a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndCause {
    /// PID 1 ended by itself.
    Gone,
    /// The client asked for it, or closed its socket.
    Asked,
    Memory,
    CpuTime,
    Lifetime,
}
