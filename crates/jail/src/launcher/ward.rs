//! A living jail in the launcher's care: what it may use, when to look at it, how to end it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sandstorm_sys::process::Ending;

use crate::cgroup::{Counters, Leaf};
use crate::error::{JailError, doing};
use crate::identity::Identity;
use crate::launcher::capture::Entrance;
use crate::launcher::protocol::{EndCause, Ended};
use crate::spec::{JailSpec, OnMemory};

/// The processor budget is looked at no more often than this.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// How long everything in a jail may take to stand still, and how often that is looked at.
const STOP_WITHIN: Duration = Duration::from_secs(10);
const STOP_LOOK: Duration = Duration::from_millis(1);

/// How long after the memory alarm a kill is looked for, and after a kill an end of PID 1 is put down to it.
const ALARM_FADES: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Ward {
    name: String,
    pid: i32,
    pidfd: OwnedFd,
    leaf: Option<Leaf>,
    scratch: OwnedFd,
    /// Rings when memory runs out, where that ends the jail.
    alarm: Option<crate::cgroup::Alarm>,
    memory_kills: MemoryKills,
    /// Its ids stay reserved until everything that has them is gone.
    _identity: Identity,
    cpu_time: Option<Duration>,
    cpu_milli: u64,
    dies_at: Option<Instant>,
    next_cpu_look: Option<Instant>,
    /// When the memory alarm rang without a kill to show for it yet.
    next_memory_look: Option<Instant>,
    alarm_fades_at: Option<Instant>,
    on_memory: OnMemory,
    cause: Option<EndCause>,
    gone: bool,
    /// What makes it outlive its client.
    kept: Option<Kept>,
    still: Still,
}

/// Processes that the kernel ended for memory, as far as anybody looked.
#[derive(Debug, Default)]
struct MemoryKills {
    seen: u64,
    /// When the last of them were seen.
    at: Option<Instant>,
}

impl MemoryKills {
    fn note(&mut self, counters: &Counters) {
        let now = counters.memory_kills.unwrap_or(0);
        if now > self.seen {
            *self = Self { seen: now, at: Some(Instant::now()) };
        }
    }

    /// Whether one was only just.
    fn are_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < ALARM_FADES)
    }
}

/// What a kept jail is found again by.
#[derive(Debug)]
struct Kept {
    /// The way to hand its agent a new connection.
    door: OwnedFd,
    /// What the client wants to remember of it.
    cookie: OwnedFd,
    /// The way to its network, while that is not captured.
    namespaces: Option<Entrance>,
    /// The descriptors of its captured network.
    captured: Vec<OwnedFd>,
}

/// Whether a jail moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Still {
    Moving,
    /// Given up at this time.
    Stopping(Instant),
    /// With what is left of its lifetime.
    Stopped(Option<Duration>),
}

impl Ward {
    pub(super) fn new(
        spec: &JailSpec,
        pid: i32,
        pidfd: OwnedFd,
        identity: Identity,
        leaf: Option<Leaf>,
        scratch: OwnedFd,
    ) -> Self {
        let now = Instant::now();
        let counts_cpu = leaf.as_ref().is_some_and(|leaf| leaf.counters().cpu_time.is_some());
        let mut ward = Self {
            name: spec.name.clone(),
            pid,
            pidfd,
            alarm: leaf
                .as_ref()
                .filter(|_| spec.on_memory == OnMemory::EndAll)
                .and_then(|leaf| leaf.memory_alarm().ok().flatten()),
            memory_kills: MemoryKills::default(),
            on_memory: spec.on_memory,
            leaf,
            scratch,
            _identity: identity,
            cpu_time: spec.limits.cpu_time.filter(|_| counts_cpu),
            cpu_milli: spec.limits.cpu_milli.max(1),
            dies_at: spec.lifetime.and_then(|lifetime| now.checked_add(lifetime)),
            next_cpu_look: None,
            next_memory_look: None,
            alarm_fades_at: None,
            cause: None,
            gone: false,
            kept: None,
            still: Still::Moving,
        };
        ward.plan_cpu_look(Duration::ZERO);
        ward
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes it outlive its client.
    pub(super) fn keep(
        &mut self,
        door: OwnedFd,
        cookie: OwnedFd,
        namespaces: Option<Entrance>,
        captured: &[OwnedFd],
    ) -> Result<(), JailError> {
        // What is captured already needs no way in.
        let namespaces = namespaces.filter(|_| captured.is_empty());
        self.kept = Some(Kept { door, cookie, namespaces, captured: copies(captured)? });
        Ok(())
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.still, Still::Stopped(_))
    }

    pub(super) fn cookie(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(|kept| kept.cookie.as_fd())
    }

    pub(super) fn note(&mut self, cookie: OwnedFd) -> Result<(), JailError> {
        self.kept.as_mut().ok_or(JailError::Gone)?.cookie = cookie;
        Ok(())
    }

    /// A new connection to its agent, and the descriptors of its captured network.
    pub(super) fn adopt(&self) -> Result<Vec<OwnedFd>, JailError> {
        let kept = self.kept.as_ref().filter(|_| self.cause.is_none()).ok_or(JailError::Gone)?;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(doing("make a socket"))?;
        sandstorm_agent::knock(kept.door.as_fd(), theirs.as_fd())
            .map_err(doing("knock at the agent's door"))?;
        let mut given = vec![ours];
        given.extend(copies(&kept.captured)?);
        Ok(given)
    }

    /// The descriptors of its captured network, made now if it has none yet.
    pub(super) fn capture(&mut self) -> Result<Vec<OwnedFd>, JailError> {
        let kept = self.kept.as_mut().filter(|_| self.cause.is_none()).ok_or(JailError::Gone)?;
        if kept.captured.is_empty() {
            let entrance = kept.namespaces.as_ref().ok_or_else(|| {
                JailError::Launcher("the network could not be captured: there is no way in".to_owned())
            })?;
            kept.captured = entrance.capture()?;
            kept.namespaces = None;
        }
        copies(&kept.captured)
    }

    /// Starts to stop everything in it; [`Ward::settled`] tells how that went.
    pub(super) fn pause(&mut self) -> Result<(), JailError> {
        if self.still == Still::Moving {
            let leaf = self.leaf.as_ref().ok_or(JailError::NoFreezer)?;
            leaf.freeze(true).map_err(|_| JailError::NoFreezer)?;
            self.still = Still::Stopping(Instant::now() + STOP_WITHIN);
        }
        Ok(())
    }

    /// Whether a pause that was asked for came about; `None` while that is open.
    pub(super) fn settled(&mut self) -> Option<Result<(), JailError>> {
        let Still::Stopping(give_up) = self.still else { return Some(Ok(())) };
        let leaf = self.leaf.as_ref()?;
        let now = Instant::now();
        if leaf.is_frozen() {
            // Time does not pass for what stands still.
            self.still = Still::Stopped(self.dies_at.take().map(|at| at.saturating_duration_since(now)));
            return Some(Ok(()));
        }
        (give_up <= now).then(|| {
            let _ = leaf.freeze(false);
            self.still = Still::Moving;
            Err(JailError::Frozen)
        })
    }

    pub(super) fn resume(&mut self) -> Result<(), JailError> {
        if let Some(leaf) = self.leaf.as_ref().filter(|_| self.still != Still::Moving) {
            leaf.freeze(false).map_err(doing("let the jail go on"))?;
        }
        if let Still::Stopped(left) = self.still {
            self.dies_at = left.and_then(|left| Instant::now().checked_add(left));
        }
        self.still = Still::Moving;
        Ok(())
    }

    /// Descriptors that tell when to look.
    pub(super) fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut interests = vec![(self.pidfd.as_fd(), PollFlags::IN)];
        if let (Some(alarm), None) = (&self.alarm, self.cause) {
            let events = if alarm.priority { PollFlags::PRI } else { PollFlags::IN };
            interests.push((alarm.fd.as_fd(), events));
        }
        interests
    }

    /// The moment at which a limit may be reached without any descriptor saying so.
    pub(super) fn next_look(&self) -> Option<Instant> {
        if self.cause.is_some() {
            return None;
        }
        let stopping = matches!(self.still, Still::Stopping(_)).then(|| Instant::now() + STOP_LOOK);
        self.dies_at.into_iter().chain(self.next_cpu_look).chain(self.next_memory_look).chain(stopping).min()
    }

    /// Sees what happened and acts on it.
    pub(super) fn look(&mut self) {
        if pidfd_is_done(&self.pidfd) {
            self.gone = true;
            return;
        }
        if self.cause.is_some() {
            return;
        }
        let counters = self.leaf.as_ref().map(Leaf::counters).unwrap_or_default();
        if let Some(alarm) = &self.alarm {
            let mut buffer = [0; 8];
            // On v1 this resets the event; on v2 the file is read anew by its path. The alarm of v1 rings before the
            // kernel ends a process, so its counter is looked at again until it shows that.
            let rang = rustix::io::read(&alarm.fd, &mut buffer).is_ok();
            if rang && !alarm.priority {
                self.alarm_fades_at = Some(Instant::now() + ALARM_FADES);
            }
            if alarm.priority {
                let _ = rustix::fs::seek(&alarm.fd, rustix::fs::SeekFrom::Start(0));
                let mut buffer = [0; 512];
                while rustix::io::read(&alarm.fd, &mut buffer).is_ok_and(|n| n > 0) {}
            }
        }
        let used = counters.cpu_time.unwrap_or_default();
        if self.on_memory == OnMemory::EndAll && counters.memory_kills.is_some_and(|kills| kills > 0) {
            self.kill(EndCause::Memory);
        } else if self.cpu_time.is_some_and(|budget| used >= budget) {
            self.kill(EndCause::CpuTime);
        } else if self.dies_at.is_some_and(|at| at <= Instant::now()) {
            self.kill(EndCause::Lifetime);
        } else {
            self.plan_cpu_look(used);
            self.alarm_fades_at = self.alarm_fades_at.filter(|at| *at > Instant::now());
            self.next_memory_look = self.alarm_fades_at.map(|_| Instant::now() + SHORTEST_LOOK);
        }
    }

    /// The rest of the budget cannot be used up faster than all processors of the jail allow.
    fn plan_cpu_look(&mut self, used: Duration) {
        self.next_cpu_look = self.cpu_time.map(|budget| {
            let rest = budget.saturating_sub(used).as_secs_f64() * 1000.0 / self.cpu_milli as f64;
            Instant::now() + Duration::from_secs_f64(rest.min(3600.0)).max(SHORTEST_LOOK)
        });
    }

    /// Ends everything in the jail. The first cause stands: a client that lost its agent asks for an end that came before.
    pub(super) fn kill(&mut self, cause: EndCause) {
        if self.cause.is_none() && !is_exiting(self.pid) {
            self.cause = Some(cause);
        }
        if let Some(leaf) = &self.leaf {
            leaf.kill();
        }
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        // A v1 freezer lets nobody die.
        let _ = self.resume();
    }

    pub(super) fn is_over(&self) -> bool {
        self.gone
    }

    /// What the kernel counted so far.
    pub(super) fn counters(&mut self) -> Counters {
        let mut counters = self.leaf.as_ref().map(Leaf::counters).unwrap_or_default();
        self.memory_kills.note(&counters);
        if let Ok(disk) = rustix::fs::fstatfs(&self.scratch) {
            let block = u64::try_from(disk.f_bsize).unwrap_or(0);
            counters.disk_used_bytes = Some(disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(block));
            counters.disk_full = disk.f_blocks > 0 && disk.f_bavail == 0;
            counters.inodes_used = Some(disk.f_files.saturating_sub(disk.f_ffree));
            counters.inodes_full = disk.f_files > 0 && disk.f_ffree == 0;
        }
        counters
    }

    /// Waits for PID 1, whose end means that its whole namespace ended, and removes what is left on the host.
    pub(super) fn bury(mut self) -> Ended {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let reaped = sandstorm_sys::process::reap(self.pid);
        let counters = self.counters();
        let for_memory = match self.on_memory {
            // The kernel may have ended the last process before the alarm was heard.
            OnMemory::EndAll => self.memory_kills.seen > 0,
            // Others may have been ended before; this one was if it was killed, by nobody here, when one just was.
            OnMemory::EndProcess => {
                reaped.is_ok_and(|reaped| reaped.ending == Ending::Signal(Signal::KILL.as_raw()))
                    && self.memory_kills.are_fresh()
            }
        };
        if self.cause.is_none() && for_memory {
            self.cause = Some(EndCause::Memory);
        }
        let stuck = self.leaf.as_ref().map(Leaf::remove).unwrap_or_default();
        Ended {
            name: self.name,
            cause: self.cause.unwrap_or(EndCause::Gone),
            counters,
            stuck: stuck.iter().map(|path| path.display().to_string()).collect(),
        }
    }

    /// Ends a jail that nobody was told of.
    pub(super) fn discard(mut self) {
        self.kill(EndCause::Asked);
        self.bury();
    }
}

fn copies(descriptors: &[OwnedFd]) -> Result<Vec<OwnedFd>, JailError> {
    descriptors.iter().map(|fd| fd.try_clone().map_err(doing("copy a descriptor"))).collect()
}

/// Whether a process that was not reaped yet is on its way out, by itself or killed; its end takes until all others of
/// its namespace are gone.
fn is_exiting(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| exiting_flag(&stat))
}

/// The seventh word behind the name, which may hold anything.
fn exiting_flag(stat: &str) -> bool {
    const EXITING: u64 = 4;
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & EXITING != 0)
}

fn pidfd_is_done(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, Timespec, poll};
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_on_its_way_out_is_told_by_its_flags() {
        assert!(exiting_flag("7 (a ) 4 4 4) R 1 7 7 0 -1 4194564 0 0"));
        assert!(!exiting_flag("7 (a ) 4 4 4) R 1 7 7 0 -1 4194560 4 4"));
        assert!(!exiting_flag("7 (a"));
        assert!(!is_exiting(i32::try_from(std::process::id()).unwrap()));
    }
}
