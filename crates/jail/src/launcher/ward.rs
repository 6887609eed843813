//! A living jail in the launcher's care: what it may use, when to look at it, how to end it.

mod appetite;
mod guests;
mod stillness;

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sandstorm_sys::process::{Ending, Reaped};

use appetite::Appetite;
pub(super) use guests::Guest;
use guests::Guests;
use stillness::Still;

use super::birth::Ways;
use super::networks::Namespace;
use super::protocol::{EndCause, Ended};
use super::rooms::Rooms;
use super::watch::{Part, Serial, Token, Watched, Watcher};
use crate::cgroup::{Counters, Leaf, Meter};
use crate::error::{JailError, doing};
use crate::identity::Identity;
use crate::spec::{JailSpec, OnMemory};

/// The processor budget is looked at no more often than this.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// How long after the memory alarm a kill is looked for, and after a kill an end of PID 1 is put down to it.
const ALARM_FADES: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Ward {
    serial: Serial,
    name: String,
    pid: i32,
    pidfd: Watched,
    leaf: Option<Leaf>,
    scratch: OwnedFd,
    scratch_on_disk: bool,
    /// Rings when memory runs out, where that ends the jail.
    alarm: Option<Alarm>,
    memory_kills: MemoryKills,
    appetite: Option<Appetite>,
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
    /// The way to hand its agent a new connection, where somebody may want to. While it is held, the agent outlives its host.
    door: Option<OwnedFd>,
    ways: Option<Ways>,
    /// Its network, if another jail can have it afterwards.
    network: Option<Rc<Namespace>>,
    /// The descriptors of its captured network, for whoever adopts it.
    captured: Vec<OwnedFd>,
    /// What the client wants to remember of it: what makes it outlive its client.
    cookie: Option<OwnedFd>,
    joinable: bool,
    strict_filter: bool,
    guests: Guests,
    still: Still,
}

/// What the launcher holds of a new jail.
pub(super) struct Hold {
    pub(super) pid: i32,
    pub(super) pidfd: Watched,
    pub(super) identity: Identity,
    pub(super) leaf: Option<Leaf>,
    pub(super) scratch: OwnedFd,
    pub(super) door: OwnedFd,
    pub(super) ways: Ways,
    pub(super) network: Option<Rc<Namespace>>,
    /// Copies of the captured network's descriptors, if it may outlive its client.
    pub(super) captured: Vec<OwnedFd>,
}

/// What is left of a jail that is gone.
pub(super) struct Buried {
    pub(super) ended: Ended,
    /// Its groups, to be removed or used again.
    pub(super) leaf: Option<Leaf>,
    /// Its writable space, where that is on disk. To close it may wait for the disk.
    pub(super) disk: Option<OwnedFd>,
}

#[derive(Debug)]
struct Alarm {
    fd: Watched,
    /// It is a file whose change is urgent, not a counter.
    priority: bool,
}

/// Processes that the kernel ended for memory, as far as anybody looked.
#[derive(Debug, Default)]
struct MemoryKills {
    seen: u64,
    /// When the last of them were seen.
    at: Option<Instant>,
}

impl MemoryKills {
    /// Whether there are more than before.
    fn note(&mut self, counters: &Counters) -> bool {
        let now = counters.memory_kills.unwrap_or(0);
        let more = now > self.seen;
        if more {
            *self = Self { seen: now, at: Some(Instant::now()) };
        }
        more
    }

    /// Whether one was only just.
    fn are_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < ALARM_FADES)
    }
}

impl Ward {
    /// Takes a jail into care; one with a cookie outlives its client.
    pub(super) fn new(
        watcher: &Watcher,
        serial: Serial,
        spec: &JailSpec,
        hold: Hold,
        cookie: Option<OwnedFd>,
    ) -> Self {
        let Hold { pid, pidfd, identity, leaf, scratch, door, ways, network, captured } = hold;
        let appetite = leaf.as_ref().and_then(Appetite::of);
        let counts_cpu = leaf.as_ref().is_some_and(Leaf::counts_cpu_time);
        // Nobody at the door: the agent ends with its only host.
        let held = spec.joinable || cookie.is_some();
        let mut ward = Self {
            serial,
            name: spec.name.clone(),
            pid,
            pidfd,
            leaf,
            scratch,
            scratch_on_disk: spec.root.scratch_on_disk,
            alarm: None,
            memory_kills: MemoryKills::default(),
            appetite,
            _identity: identity,
            cpu_time: spec.limits.cpu_time.filter(|_| counts_cpu),
            cpu_milli: spec.limits.cpu_milli.max(1),
            dies_at: None,
            next_cpu_look: None,
            next_memory_look: None,
            alarm_fades_at: None,
            on_memory: spec.on_memory,
            cause: None,
            gone: false,
            door: held.then_some(door),
            // What is captured already needs no way in.
            ways: Some(ways).filter(|ways| held && (captured.is_empty() || matches!(ways, Ways::Rooms(_)))),
            network,
            captured,
            cookie,
            joinable: spec.joinable,
            strict_filter: spec.strict_filter,
            guests: Guests::default(),
            still: Still::Moving,
        };
        ward.set_limits(watcher, spec.on_memory, spec.lifetime);
        ward.plan_cpu_look(Duration::ZERO);
        ward
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// PID 1 on the host.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it would outlive its client without being kept.
    pub(super) fn waits_for_nobody(&self) -> bool {
        self.door.is_some() && self.cookie.is_none()
    }

    pub(super) fn cookie(&self) -> Option<BorrowedFd<'_>> {
        self.cookie.as_ref().map(|cookie| cookie.as_fd())
    }

    pub(super) fn note(&mut self, cookie: OwnedFd) -> Result<(), JailError> {
        *self.cookie.as_mut().ok_or(JailError::Gone)? = cookie;
        Ok(())
    }

    /// Sets how it meets its limits; with a cookie it outlives its client from now on.
    pub(super) fn keep(
        &mut self,
        watcher: &Watcher,
        cookie: Option<OwnedFd>,
        on_memory: OnMemory,
        lifetime: Option<Duration>,
    ) -> Result<(), JailError> {
        if self.cause.is_some() {
            return Err(JailError::Gone);
        }
        if cookie.is_some() && self.door.is_none() {
            return Err(JailError::NotJoinable);
        }
        self.cookie = cookie.or(self.cookie.take());
        self.set_limits(watcher, on_memory, lifetime);
        Ok(())
    }

    fn set_limits(&mut self, watcher: &Watcher, on_memory: OnMemory, lifetime: Option<Duration>) {
        self.on_memory = on_memory;
        self.live_for(lifetime);
        match on_memory {
            OnMemory::EndAll if self.alarm.is_none() => self.alarm = self.ring(watcher),
            OnMemory::EndAll => {}
            OnMemory::EndProcess => self.alarm = None,
        }
    }

    fn ring(&self, watcher: &Watcher) -> Option<Alarm> {
        let alarm = self.leaf.as_ref()?.memory_alarm().ok().flatten()?;
        let token = Token::Jail(self.serial, Part::Alarm);
        let fd = match alarm.priority {
            true => watcher.urgent(alarm.fd, token),
            false => watcher.readable(alarm.fd, token),
        };
        Some(Alarm { fd: fd.ok()?, priority: alarm.priority })
    }

    /// A new connection to its agent, the descriptors of its captured network, and one of its scratch file system.
    pub(super) fn adopt(&self) -> Result<Vec<OwnedFd>, JailError> {
        let kept = self.cookie.is_some() && self.cause.is_none();
        let door = self.door.as_ref().filter(|_| kept).ok_or(JailError::Gone)?;
        let (ours, theirs) = stream()?;
        sandstorm_agent::knock(door.as_fd(), theirs.as_fd()).map_err(doing("knock at the agent's door"))?;
        let mut given = vec![ours];
        given.extend(copies(&self.captured)?);
        Ok(given)
    }

    /// The descriptors of its captured network, made now if it has none yet.
    pub(super) fn capture(&mut self) -> Result<Vec<OwnedFd>, JailError> {
        if self.cookie.is_none() || self.cause.is_some() {
            return Err(JailError::Gone);
        }
        if self.captured.is_empty() {
            let entrance = match &self.ways {
                Some(Ways::Network(Some(entrance))) => entrance,
                Some(Ways::Rooms(rooms)) => &rooms.entrance,
                _ => {
                    let why = "the network could not be captured: there is no way in";
                    return Err(JailError::Launcher(why.to_owned()));
                }
            };
            self.captured = entrance.capture()?;
        }
        copies(&self.captured)
    }

    /// Whether guests may come, and what they pass on their way.
    pub(super) fn rooms(&self) -> Result<(&Rooms, Option<&Leaf>), JailError> {
        if self.cause.is_some() || self.gone {
            return Err(JailError::Gone);
        }
        if self.guests.are_full() {
            return Err(JailError::Closed("there are too many guests in it".to_owned()));
        }
        match &self.ways {
            // A zygote's guests have the compatible filter.
            Some(Ways::Rooms(rooms)) if self.joinable && !self.strict_filter => {
                Ok((rooms, self.leaf.as_ref()))
            }
            _ => Err(JailError::NotJoinable),
        }
    }

    /// Lets go of descriptors that can be had again when they are needed.
    pub(super) fn save_descriptors(&mut self) {
        if let Some(leaf) = &mut self.leaf {
            leaf.close_entrances();
        }
    }

    /// A guest is there: it is told to the agent. One that cannot be is killed, and collected like any other.
    pub(super) fn welcome(
        &mut self,
        watcher: &Watcher,
        guest: (Serial, i32, OwnedFd),
        side: &OwnedFd,
    ) -> Result<u32, JailError> {
        let door = self.door.as_ref().ok_or(JailError::NotJoinable)?;
        let number = self.guests.welcome(door.as_fd(), watcher, self.serial, guest, side);
        if self.cause.is_some() {
            self.guests.kill_all();
        }
        number.map_err(|e| JailError::Closed(format!("its agent cannot be told of one: {e}")))
    }

    pub(super) fn guest(&self, number: u32) -> Result<&Guest, JailError> {
        self.guests.get(number).ok_or_else(|| JailError::Launcher(format!("there is no guest {number}")))
    }

    pub(super) fn kill_guest(&self, number: u32) {
        self.guests.kill(number);
    }

    /// Which zygotes have forks here.
    pub(super) fn zygotes(&self) -> impl Iterator<Item = Serial> + '_ {
        self.guests.zygotes()
    }

    pub(super) fn guest_pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.guests.pids()
    }

    /// The moment at which a limit may be reached without any descriptor saying so.
    pub(super) fn next_look(&self) -> Option<Instant> {
        if self.cause.is_some() {
            return None;
        }
        // What stands still takes nothing.
        let appetite =
            self.appetite.as_ref().filter(|_| self.still == Still::Moving).map(Appetite::next_look);
        let times =
            [self.dies_at, self.next_cpu_look, self.next_memory_look, self.next_still_look(), appetite];
        times.into_iter().flatten().min()
    }

    /// Something of it is ready. The zygotes whose guests ended are returned.
    pub(super) fn hear(&mut self, watcher: &Watcher, part: Part) -> Vec<Serial> {
        match part {
            Part::Init => self.gone = true,
            Part::Alarm => {
                self.hear_alarm();
                self.look();
            }
            Part::Guest => {
                let zygotes = self.guests.collect();
                self.tell(watcher);
                return zygotes;
            }
            Part::Door => self.tell(watcher),
        }
        Vec::new()
    }

    fn tell(&mut self, watcher: &Watcher) {
        if let Some(door) = &self.door {
            self.guests.tell(door, watcher, self.serial);
        }
    }

    fn hear_alarm(&mut self) {
        let Some(alarm) = &self.alarm else { return };
        let mut buffer = [0; 8];
        // On v1 this resets the event; on v2 the file is read anew by its path. The alarm of v1 rings before the kernel
        // ends a process, so its counter is looked at again until it shows that.
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

    /// Sees whether a limit is reached, and acts on it.
    pub(super) fn look(&mut self) {
        if self.cause.is_some() || self.gone {
            return;
        }
        let used = self.leaf.as_ref().filter(|_| self.cpu_time.is_some()).and_then(Leaf::cpu_time);
        let used = used.unwrap_or_default();
        let ends_all = self.on_memory == OnMemory::EndAll;
        let kills = self.leaf.as_ref().filter(|_| ends_all).and_then(Leaf::memory_kills);
        if kills.is_some_and(|kills| kills > 0) || self.takes_too_much() && ends_all {
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

    /// Whether its programs have more memory than they may.
    fn takes_too_much(&mut self) -> bool {
        let (Some(appetite), Some(leaf)) = (&mut self.appetite, &self.leaf) else { return false };
        appetite.is_too_much(leaf, self.scratch.as_fd())
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
        self.guests.kill_all();
        // A v1 freezer lets nobody die.
        let _ = self.resume();
    }

    /// Whether PID 1 is gone, which means that its whole namespace is.
    pub(super) fn is_over(&self) -> bool {
        self.gone
    }

    /// What the kernel counted so far.
    pub(super) fn counters(&mut self) -> Counters {
        let counters = self.leaf.as_ref().map(Leaf::counters).unwrap_or_default();
        if self.memory_kills.note(&counters) && !self.gone && self.cause.is_none() {
            // What lives on must not be held to what was held from the process that is gone.
            self.appetite.iter_mut().for_each(Appetite::hurry);
            self.takes_too_much();
        }
        counters.with_disk(self.scratch.as_fd())
    }

    /// Where whoever is told of it can read its counters.
    pub(super) fn meter(&self) -> Option<(Meter, OwnedFd)> {
        let meter = self.leaf.as_ref().and_then(Leaf::meter)?;
        Some((meter, self.scratch.try_clone().ok()?))
    }

    /// What another jail can have of one that is gone.
    pub(super) fn take_network(&mut self) -> Option<Namespace> {
        let network = self.network.take().filter(|_| self.gone && self.captured.is_empty());
        self.ways = None;
        Rc::into_inner(network?)
    }

    /// Collects PID 1, which is gone, and lets go of all that it had but of what the caller gets. `reaped`: somebody collected it already.
    pub(super) fn bury(mut self, reaped: Option<Reaped>) -> Buried {
        let reaped = reaped.or_else(|| sandstorm_sys::process::reap(self.pid).ok());
        let counters = self.counters();
        let for_memory = match self.on_memory {
            // The kernel may have ended the last process before the alarm was heard.
            OnMemory::EndAll => self.memory_kills.seen > 0,
            // Others may have been ended before; this one was if it was killed, by nobody here, when one just was.
            OnMemory::EndProcess => {
                reaped.is_some_and(|reaped| reaped.ending == Ending::Signal(Signal::KILL.as_raw()))
                    && self.memory_kills.are_fresh()
            }
        };
        if self.cause.is_none() && for_memory {
            self.cause = Some(EndCause::Memory);
        }
        let cause = self.cause.unwrap_or(EndCause::Gone);
        let ended = Ended { name: self.name, cause, counters, stuck: Vec::new() };
        Buried { ended, leaf: self.leaf, disk: Some(self.scratch).filter(|_| self.scratch_on_disk) }
    }
}

/// A connected pair of streams.
pub(super) fn stream() -> Result<(OwnedFd, OwnedFd), JailError> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(doing("make a socket"))
}

pub(super) fn copies(descriptors: &[OwnedFd]) -> Result<Vec<OwnedFd>, JailError> {
    descriptors.iter().map(|fd| fd.try_clone().map_err(doing("copy a descriptor"))).collect()
}

/// Whether a process that was not reaped yet is on its way out, by itself or killed; its end takes until all others of
/// its namespace are gone.
fn is_exiting(pid: i32) -> bool {
    let mut stat = [0; 1024];
    let read = std::fs::File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut stat));
    read.is_ok_and(|length| exiting_flag(&String::from_utf8_lossy(&stat[..length])))
}

/// The seventh word behind the name, which may hold anything.
fn exiting_flag(stat: &str) -> bool {
    const EXITING: u64 = 4;
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & EXITING != 0)
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
