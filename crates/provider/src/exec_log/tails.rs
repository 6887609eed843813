//! The latest events of programs that ended, in memory for whoever still listens.
//!
//! A short program is heard to its end by listeners who come a moment later, and none of them should have to read a file. But
//! thousands of programs that ended may be kept for an hour, so all of them together have so many bytes of memory, and the
//! oldest are read from their journals from then on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{ExecLog, Shared};

/// What an entry takes beside the events.
const ENTRY: u64 = 64;

/// Logs that have ended and still have events in memory, oldest first.
#[derive(Debug)]
pub struct Tails {
    most: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    logs: VecDeque<(Weak<Shared>, u64)>,
    bytes: u64,
}

impl Tails {
    /// All of them together have at most `most` bytes.
    pub const fn new(most: u64) -> Self {
        Self { most, kept: Mutex::new(Kept { logs: VecDeque::new(), bytes: 0 }) }
    }

    /// Keeps the events of a log that has ended until others have ended since.
    pub fn keep(&self, log: &ExecLog) {
        let bytes = log.tail();
        if bytes == 0 {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes + ENTRY;
        kept.logs.push_back((Arc::downgrade(&log.0), bytes + ENTRY));
        while kept.bytes > self.most {
            let Some((oldest, bytes)) = kept.logs.pop_front() else { break };
            kept.bytes -= bytes;
            if let Some(oldest) = oldest.upgrade() {
                ExecLog(oldest).drop_tail();
            }
        }
    }
}
