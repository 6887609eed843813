//! What a client and its launcher say to each other. Every message names the jail that it is about.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Counters, Meter};
use crate::error::JailError;
use crate::report::Report;
use crate::spec::{JailSpec, OnMemory};

/// The name that the client gave a jail in its spec.
pub type JailId = String;

/// A guest interpreter: the jail that it sits in, and its number there. Numbers count from 1.
pub type GuestId = (JailId, u32);

/// Version of these messages. A client and a resident launcher that have none in common do not work together.
pub const VERSION: u16 = 6;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answered by `Launched` or `Refused`. With `keep` the jail outlives its client, and a descriptor comes along: the
    /// cookie, a memory file that only clients read.
    Launch { spec: Box<JailSpec>, keep: bool },
    /// Ends a jail. Answered by its `Ended`; a jail that is gone needs no answer.
    Kill { name: JailId },
    /// Answered by `Counted`.
    Count { name: JailId },
    /// Stops every process of a jail. Answered by `Done`, when all of them stand still, or `Refused`.
    Pause { name: JailId },
    /// Answered by `Done` or `Refused`.
    Resume { name: JailId },
    /// Answered by a `Listed` for each kept jail, then `AllListed`.
    List,
    /// A new connection to the agent of a kept jail. Answered by `Adopted` or `Refused`.
    Adopt { name: JailId },
    /// Comes with another cookie for a kept jail. Answered by `Done` or `Refused`.
    Note { name: JailId },
    /// Captures the network of a kept jail that was born with loopback only. Answered by `Captured` or `Refused`.
    Capture { name: JailId },
    /// Makes a jail outlive its client when a cookie comes along, and sets how it meets its limits either way. The lifetime
    /// counts from now. Answered by `Done` or `Refused`.
    Keep { name: JailId, on_memory: OnMemory, lifetime: Option<Duration> },
    /// Puts a guest interpreter into a joinable jail: a fork of that owner's zygote of that name, or, with `like`, of the
    /// very zygote process that the other guest came from. Answered by `Joined` or `NotJoined`.
    Join { name: JailId, zygote: String, owner: String, like: Option<GuestId> },
    /// Makes a waiting guest go on as a copy of another of the same zygote process. Answered by `Transplanted` or
    /// `NotTransplanted`.
    Transplant { from: GuestId, to: GuestId },
    /// Ends every jail and the launcher.
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Comes with the agent's socket, then the descriptors of a captured network, then, with a meter, one of the scratch
    /// file system.
    Launched(Launched),
    Refused {
        name: JailId,
        refusal: Refusal,
    },
    Counted {
        name: JailId,
        counters: Option<Counters>,
    },
    Done {
        name: JailId,
    },
    /// Comes with the cookie.
    Listed {
        name: JailId,
        paused: bool,
    },
    AllListed,
    /// Comes with the agent's new socket, then the descriptors of a captured network, then, with a
    /// meter, one of the scratch file system.
    Adopted {
        name: JailId,
        meter: Option<Meter>,
    },
    /// Comes with the descriptors of the captured network.
    Captured {
        name: JailId,
    },
    /// The guest is in the jail and told to its agent, which says when it is warm. Comes with a copy of the agent's end of
    /// its side socket.
    Joined {
        name: JailId,
        guest: u32,
    },
    /// A `Join` came to nothing. Apart from `Refused`, which answers what is asked of a jail in the order of asking: a
    /// zygote takes its time, and other answers overtake it.
    NotJoined {
        name: JailId,
        refusal: Refusal,
    },
    /// Under the name of the jail that was copied to.
    Transplanted {
        name: JailId,
        report: TransplantReport,
    },
    /// A `Transplant` came to nothing; under the same name.
    NotTransplanted {
        name: JailId,
        refusal: Refusal,
    },
    /// A newer client has the jails now. The last answer.
    Replaced,
    /// A jail ended, by itself or not, and nothing of it is left. Nobody asked. One that ended while there was no client
    /// is told to the next.
    Ended(Ended),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    pub name: JailId,
    /// PID 1 on the host, for people who look; nothing acts on it.
    pub pid: i32,
    pub report: Report,
    /// How the client can read the counters by itself.
    pub meter: Option<Meter>,
}

/// What a transplant took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransplantReport {
    /// Pages that were copied, and their size together.
    pub pages: u64,
    pub bytes: u64,
    pub microseconds: u64,
    /// How long the source stood still.
    pub stopped_microseconds: u64,
}

/// Why something was refused, in words and by the family of the error.
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
    /// Something on the host failed. The refusal of a guest tells against its zygote if it is of this kind or of
    /// `Isolation`; the other kinds are about the jail, the client or the moment.
    Host,
    /// There is no such jail, or it ended.
    Gone,
    /// The client may not have that, or not in that jail.
    Forbidden,
}

impl From<&JailError> for Refusal {
    fn from(error: &JailError) -> Self {
        let kind = match error {
            JailError::Step { .. }
            | JailError::UserNamespaces(..)
            | JailError::Limit { .. }
            | JailError::Disk(_)
            | JailError::Wall { .. } => RefusalKind::Isolation,
            // No wall is missing: another attempt may succeed.
            JailError::NoFreeIds(_) | JailError::Unborn(_) | JailError::Crowded(_) => RefusalKind::Capacity,
            JailError::Host { .. } => RefusalKind::Host,
            JailError::Gone => RefusalKind::Gone,
            JailError::Name(_) | JailError::Target(_) => RefusalKind::Forbidden,
            JailError::Exists | JailError::Source(_) | JailError::NoFreezer | JailError::Frozen => {
                RefusalKind::Forbidden
            }
            // What a jail is or has is no failure of the zygote that was asked for a guest.
            JailError::NotJoinable | JailError::Closed(_) | JailError::NotCarried(_) => {
                RefusalKind::Forbidden
            }
            JailError::NoGuest(_) | JailError::Launcher(_) => RefusalKind::Host,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_zygote_that_fails_is_refused_as_one() {
        let why = || "why".to_owned();
        let cases = [
            (JailError::NoGuest(why()), RefusalKind::Host),
            (JailError::Closed(why()), RefusalKind::Forbidden),
            (JailError::NotJoinable, RefusalKind::Forbidden),
            (JailError::Gone, RefusalKind::Gone),
            (JailError::Crowded(why()), RefusalKind::Capacity),
        ];
        for (error, kind) in cases {
            assert_eq!(Refusal::from(&error).kind, kind, "{error}");
        }
    }
}
