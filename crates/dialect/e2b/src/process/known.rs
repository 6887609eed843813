//! Programs by number.
//!
//! Clients name programs by a process number. It is made from the exec's id, so that a server that was started anew
//! finds the same program under the same number; what else is kept here, configuration and tag, is lost then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_control::server::ExecView;
use sandstorm_e2b_wire::process::Config;
use sandstorm_types::{ExecId, SandboxId};

/// How long one that ended is known.
const KEPT: Duration = Duration::from_secs(60);
/// Numbers are of 30 bits, to fit wherever a process number does.
const BITS: u128 = (1 << 30) - 1;
/// Most programs that are remembered; of older ones only the exec is known.
const MOST: usize = 10_000;

/// The process number of an exec.
pub(crate) fn pid_of(exec: ExecId) -> u32 {
    u32::try_from((exec.bits() & BITS).max(2)).unwrap_or(u32::MAX)
}

#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) exec: ExecId,
    pub(crate) config: Config,
    pub(crate) tag: Option<String>,
    pub(crate) tty: bool,
    /// The last event that somebody has heard.
    pub(crate) heard: Option<u64>,
    ended: Option<Instant>,
}

impl Known {
    pub(crate) fn new(exec: ExecId, config: Config, tag: Option<String>, tty: bool) -> Self {
        Self { exec, config, tag, tty, heard: None, ended: None }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

/// Programs that were started or found.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<HashMap<(SandboxId, u32), Known>>);

impl Processes {
    fn all(&self) -> MutexGuard<'_, HashMap<(SandboxId, u32), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, sandbox: SandboxId, known: Known) {
        let mut all = self.all();
        all.retain(|_, known| known.ended.is_none_or(|at| at.elapsed() < KEPT));
        if all.len() >= MOST {
            all.clear();
        }
        all.insert((sandbox, pid_of(known.exec)), known);
    }

    /// Takes up a program of an earlier server.
    pub(crate) fn adopt(&self, sandbox: SandboxId, exec: &ExecView) -> Known {
        let config = Config { cmd: exec.title.clone(), ..Config::default() };
        let known = Known::new(exec.id, config, None, exec.tty);
        self.add(sandbox, known.clone());
        known
    }

    pub(crate) fn get(&self, sandbox: SandboxId, pid: u32) -> Option<Known> {
        let known = self.all().get(&(sandbox, pid)).cloned();
        known.filter(|known| known.ended.is_none_or(|at| at.elapsed() < KEPT))
    }

    pub(crate) fn tagged(&self, sandbox: SandboxId, tag: &str) -> Option<Known> {
        let all = self.all();
        let mut own =
            all.iter().filter(|((of, _), known)| *of == sandbox && known.tag.as_deref() == Some(tag));
        own.find(|(_, known)| known.ended.is_none()).map(|(_, known)| known.clone())
    }

    pub(crate) fn heard(&self, sandbox: SandboxId, exec: ExecId, seq: u64) {
        if let Some(known) = self.all().get_mut(&(sandbox, pid_of(exec))) {
            known.heard = Some(known.heard.map_or(seq, |before| before.max(seq)));
        }
    }

    pub(crate) fn ended(&self, sandbox: SandboxId, exec: ExecId) {
        if let Some(known) = self.all().get_mut(&(sandbox, pid_of(exec))) {
            known.ended.get_or_insert_with(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_sandbox_and_number() {
        let (processes, here, there) =
            (Processes::default(), SandboxId::from_bits(1), SandboxId::from_bits(2));
        let exec = ExecId::random();
        processes.add(here, Known::new(exec, Config::default(), Some("t".into()), false));
        assert_eq!(processes.get(here, pid_of(exec)).unwrap().exec, exec);
        assert!(processes.get(there, pid_of(exec)).is_none());
        assert!(processes.tagged(here, "t").is_some() && processes.tagged(there, "t").is_none());
        processes.heard(here, exec, 5);
        processes.heard(here, exec, 3);
        processes.ended(here, exec);
        let known = processes.get(here, pid_of(exec)).unwrap();
        assert!(known.has_ended() && known.heard == Some(5));
        assert!(processes.tagged(here, "t").is_none());
    }

    #[test]
    fn numbers_are_those_of_processes() {
        for bits in [0, 1, u128::MAX, 1 << 30, 1 << 64] {
            let pid = pid_of(ExecId::from_bits(bits));
            assert!((2..1 << 30).contains(&pid), "{bits}");
        }
    }
}
