//! Programs of ours there, and what they wrote. The agent drops what nobody hears, so all of it is kept here, within bounds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_e2b_wire::process::Selector;
use sandstorm_provider::{EndCause, ExecInput, ExecLog};
use sandstorm_types::{ByteSize, ExecId, SandboxId};
use tokio_util::sync::CancellationToken;

use super::places::Place;

/// Programs that ended and are remembered, and bytes of their output in all.
const MOST_ENDED: usize = 10_000;
const MOST_KEPT: u64 = 256 << 20;

/// One program.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: ExecId,
    pub(super) place: Place,
    pub(super) log: ExecLog,
    /// The way to its input; unknown for one that was found again.
    pub(super) input: Option<ExecInput>,
    pub(super) tty: bool,
    /// Most bytes that its log keeps.
    pub(super) output: ByteSize,
    /// Its number there, once that is known.
    pid: Mutex<Option<u32>>,
    /// Who set about to end it, if anybody did.
    cause: Mutex<Option<EndCause>>,
    /// Set when nothing more is to be done for it.
    pub(super) over: CancellationToken,
}

impl Running {
    pub(super) fn new(
        id: ExecId,
        place: Place,
        log: ExecLog,
        input: Option<ExecInput>,
        tty: bool,
        output: ByteSize,
    ) -> Self {
        let (pid, cause) = (Mutex::default(), Mutex::default());
        Self { id, place, log, input, tty, output, pid, cause, over: CancellationToken::new() }
    }

    pub(super) fn set_pid(&self, pid: u32) {
        *self.pid.lock().unwrap_or_else(PoisonError::into_inner) = Some(pid);
    }

    /// How it is named there: by its number, or by the tag that it was started with.
    pub(super) fn selector(&self) -> Selector {
        match *self.pid.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(pid) => Selector::Pid(pid),
            None => Selector::Tag(self.id.to_string()),
        }
    }

    /// Somebody sets about to end it; the first one counts, but a limit more than a signal that it may have survived.
    pub(super) fn blame(&self, cause: EndCause) {
        let mut blamed = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        if blamed.is_none() || matches!((*blamed, cause), (Some(EndCause::Caller), EndCause::Limit(_))) {
            *blamed = Some(cause);
        }
    }

    pub(super) fn blamed(&self) -> Option<EndCause> {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more will be heard of it.
    pub(super) fn fail(&self, reason: impl Into<String>) {
        self.log.fail(reason);
        self.over.cancel();
    }
}

#[derive(Debug, Default)]
pub(super) struct Execs(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    all: HashMap<ExecId, Arc<Running>>,
    /// In the order in which they ended, with what they hold.
    ended: VecDeque<(ExecId, u64)>,
    kept: u64,
}

impl Execs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &ExecId) -> Option<Arc<Running>> {
        self.known().all.get(id).cloned()
    }

    /// Remembers a program, unless there is one of this id.
    pub(super) fn add(&self, running: &Arc<Running>) -> bool {
        let mut known = self.known();
        let new = !known.all.contains_key(&running.id);
        if new {
            known.all.insert(running.id, Arc::clone(running));
        }
        new
    }

    pub(super) fn forget(&self, id: &ExecId) {
        let mut known = self.known();
        known.all.remove(id);
        known.drop_ended();
    }

    /// Forgets the programs of a sandbox that is gone.
    pub(super) fn forget_all(&self, sandbox: &SandboxId) {
        let mut known = self.known();
        known.all.retain(|_, running| running.place.ours() != *sandbox);
        known.drop_ended();
    }

    /// A program ended: what it wrote stays for a while, as long as there is room.
    pub(super) fn ended(&self, running: &Running) {
        let mut known = self.known();
        if !known.all.contains_key(&running.id) {
            return;
        }
        let written = running.log.written();
        let held = written.stdout.saturating_add(written.stderr).min(running.output.as_u64());
        known.ended.push_back((running.id, held));
        known.kept += held;
        while known.ended.len() > MOST_ENDED || known.kept > MOST_KEPT {
            let Some((oldest, held)) = known.ended.pop_front() else { return };
            known.kept = known.kept.saturating_sub(held);
            known.all.remove(&oldest);
        }
    }
}

impl Known {
    /// Leaves out those that are forgotten.
    fn drop_ended(&mut self) {
        let Self { all, ended, kept } = self;
        ended.retain(|(id, held)| {
            let known = all.contains_key(id);
            if !known {
                *kept = kept.saturating_sub(*held);
            }
            known
        });
    }
}
