//! What a proxy tells about its sandbox's traffic.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::permit::Destination;

/// How many refused connections are remembered. The sandbox decides how many there are, so the list must not.
const REMEMBERED: usize = 64;

/// Totals since the proxy started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that reached their destination.
    pub connected: u64,
    /// Connections that were refused or cut off.
    pub refused: u64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub queries_answered: u64,
    /// Queries refused for their name, type or form.
    pub queries_refused: u64,
    /// Queries dropped for coming too fast.
    pub queries_dropped: u64,
}

/// A connection that did not get through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `None` when the kernel or the name table did not know it.
    pub destination: Option<Destination>,
    pub reason: Refusal,
}

/// Why a connection was refused or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("the connection was not redirected, so it has no destination")]
    NoDestination,
    #[error("the address stands for no name that was asked for")]
    UnknownAddress,
    #[error("the network policy does not allow the destination")]
    NotAllowed,
    #[error("the name could not be resolved")]
    Unresolved,
    #[error("the destination is not a public address")]
    ForbiddenAddress,
    #[error("the destination did not answer")]
    Unreachable,
    #[error("a connection to this port must speak TLS")]
    NotTls,
    #[error("the TLS client hello is malformed or did not arrive")]
    MalformedHello,
    #[error("the TLS client hello names no server")]
    NoServerName,
    #[error("the TLS client hello names another server")]
    OtherServerName,
    #[error("the TLS client hello is encrypted")]
    EncryptedHello,
    #[error("the sandbox has used up its bytes")]
    BytesUsedUp,
    #[error("the network policy changed and no longer allows the destination")]
    PolicyChanged,
    #[error("nothing moved for too long")]
    Idle,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connected: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) queries_answered: AtomicU64,
    pub(super) queries_refused: AtomicU64,
    pub(super) queries_dropped: AtomicU64,
}

impl Tally {
    pub(super) fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            connected: read(&self.connected),
            refused: read(&self.refused),
            bytes_up: read(&self.bytes_up),
            bytes_down: read(&self.bytes_down),
            queries_answered: read(&self.queries_answered),
            queries_refused: read(&self.queries_refused),
            queries_dropped: read(&self.queries_dropped),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Refused>);

impl Recent {
    pub(super) fn push(&mut self, refused: Refused) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(refused);
    }

    pub(super) fn list(&self) -> Vec<Refused> {
        self.0.iter().cloned().collect()
    }
}
