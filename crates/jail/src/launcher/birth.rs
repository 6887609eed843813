//! A jail that is being made: the launcher's side.
//!
//! The mold clones PID 1, the launcher releases it; PID 1 builds the walls and says so on a socket. Until then it is a
//! [`Newborn`] among what the loop waits for, so that many can be made at once while everything else goes on.

mod conception;

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use conception::Delivered;

use super::capture::Entrance;
use super::introduction::{introduce, rlimits};
use super::networks::Namespace;
use super::protocol::Launched;
use super::rooms::{Inside, Rooms};
use super::ward::{Hold, Ward, copies};
use super::watch::{Part, Serial, Token, Watched, Watcher};
use super::{Workshop, walls};
use crate::cgroup::Leaf;
use crate::error::{JailError, doing};
use crate::identity::Identity;
use crate::packet;
use crate::pid1::Word;
use crate::report::{Measured, Report};
use crate::seccomp::{self, Arch};
use crate::spec::JailSpec;

/// Building a jail takes milliseconds; one that takes this long never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// A jail whose walls are not up yet, or that failed and is on its way out.
#[derive(Debug)]
pub(super) struct Newborn {
    serial: Serial,
    spec: Box<JailSpec>,
    /// It is to outlive its client.
    cookie: Option<OwnedFd>,
    pid: i32,
    pidfd: Watched,
    stage: Stage,
    leaf: Option<Leaf>,
    identity: Identity,
    control: OwnedFd,
    door: OwnedFd,
    ways: Ways,
    /// Its network, if another jail can have it afterwards.
    network: Option<Rc<Namespace>>,
}

#[derive(Debug)]
enum Stage {
    Building {
        sync: Watched,
        give_up: Instant,
    },
    /// It is killed and not collected yet.
    Ending(JailError),
}

/// What there is of a jail whose walls stand.
struct Standing {
    report: Report,
    scratch: OwnedFd,
    captured: Vec<OwnedFd>,
    /// Copies of them that the launcher keeps.
    kept: Vec<OwnedFd>,
}

/// The ways into the jail that are kept.
#[derive(Debug)]
pub(super) enum Ways {
    /// For a network that is captured later; absent where the kernel does not let the launcher look.
    Network(Option<Entrance>),
    /// For guest interpreters, too.
    Rooms(Box<Rooms>),
}

/// What became of a newborn.
pub(super) enum Outcome {
    /// Still the same.
    Waiting(Box<Newborn>),
    /// The launcher's hold on it, the answer, and the descriptors for the client: the agent's socket, then those of a
    /// captured network.
    Grown(Box<Ward>, Box<Launched>, Vec<OwnedFd>),
    /// Nothing of it is left.
    Failed(String, JailError),
}

impl Newborn {
    /// Makes PID 1 and lets it build. `scratch`: its writable file system, where that was made before.
    pub(super) fn conceive(
        workshop: &mut Workshop,
        watcher: &Watcher,
        serial: Serial,
        spec: Box<JailSpec>,
        cookie: Option<OwnedFd>,
        scratch: Option<OwnedFd>,
    ) -> Result<Self, JailError> {
        let leaf = conception::make_leaf(workshop, &spec)?;
        let delivered = conception::deliver(workshop, watcher, serial, &spec, leaf.as_ref(), scratch);
        match delivered {
            Ok(Delivered { pid, pidfd, identity, sync, control, door, ways, network }) => {
                let stage = Stage::Building { sync, give_up: Instant::now() + PATIENCE };
                Ok(Self {
                    serial,
                    spec,
                    cookie,
                    pid,
                    pidfd,
                    stage,
                    leaf,
                    identity,
                    control,
                    door,
                    ways,
                    network,
                })
            }
            Err(e) => {
                if let Some(leaf) = &leaf {
                    leaf.remove();
                }
                Err(e)
            }
        }
    }

    /// PID 1 on the host.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// The moment at which it has taken too long.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match self.stage {
            Stage::Building { give_up, .. } => Some(give_up),
            Stage::Ending(_) => None,
        }
    }

    /// PID 1 said something, or closed the socket.
    pub(super) fn hear(mut self, workshop: &Workshop, watcher: &Watcher) -> Outcome {
        let Stage::Building { sync, .. } = &self.stage else {
            return Outcome::Waiting(Box::new(self));
        };
        let why = match packet::receive::<Word>(sync.as_fd()).map_err(doing("listen to PID 1")) {
            Ok(Some((Word::Built(measured), descriptors))) => {
                match self.furnish(workshop, measured, descriptors) {
                    Ok(standing) => return self.grow(watcher, standing),
                    Err(e) => e,
                }
            }
            Ok(Some((Word::Failed { step: name, errno }, _))) => step(&name, Errno::from_raw_os_error(errno)),
            Ok(None) => JailError::Unborn("it was killed"),
            Err(e) => e,
        };
        Outcome::Waiting(Box::new(self.abandon(why)))
    }

    /// Its time is up if it still builds.
    pub(super) fn look(self) -> Self {
        match self.next_look() {
            Some(give_up) if give_up <= Instant::now() => self.abandon(JailError::Unborn("it took too long")),
            _ => self,
        }
    }

    /// PID 1 is gone. What it said before that is heard first.
    pub(super) fn lose_init(self) -> Outcome {
        match self.stage {
            Stage::Ending(_) => self.bury(),
            _ => Outcome::Waiting(Box::new(self)),
        }
    }

    /// The walls stand: checks them, and tells the agent what it has to know.
    fn furnish(
        &mut self,
        workshop: &Workshop,
        measured: Measured,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Standing, JailError> {
        let mut descriptors = descriptors.into_iter();
        let missing = || step("report", Errno::BADMSG);
        let scratch = descriptors.next().ok_or_else(missing)?;
        if let Ways::Rooms(rooms) = &mut self.ways {
            let cgroup = descriptors.next().ok_or_else(missing)?;
            let landlock = match measured.landlock {
                true => Some(descriptors.next().ok_or_else(missing)?),
                false => None,
            };
            rooms.furnish(Inside { cgroup, landlock });
        }
        let filter = seccomp::payload(Arch::host(), self.spec.strict_filter);
        let leaf = self.leaf.as_ref();
        let report = walls::report(workshop, &self.spec, &self.identity, leaf, measured, &filter);
        walls::check(&self.spec, &report)?;
        let limits = rlimits(&self.spec, leaf.is_some(), workshop.descriptor_limit);
        introduce(&self.control, &filter, limits)?;
        let captured: Vec<OwnedFd> = descriptors.collect();
        let held = self.spec.joinable || self.cookie.is_some();
        let kept = if held { copies(&captured)? } else { Vec::new() };
        Ok(Standing { report, scratch, captured, kept })
    }

    /// PID 1 is the agent now.
    fn grow(self, watcher: &Watcher, standing: Standing) -> Outcome {
        let Standing { report, scratch, captured, kept } = standing;
        let Self { serial, spec, cookie, pid, pidfd, leaf, identity, control, door, ways, network, .. } =
            self;
        let mut given = vec![control];
        given.extend(captured);
        let hold = Hold { pid, pidfd, identity, leaf, scratch, door, ways, network, captured: kept };
        let ward = Ward::new(watcher, serial, &spec, hold, cookie);
        let meter = ward.meter().map(|(meter, scratch)| {
            given.push(scratch);
            meter
        });
        let launched = Launched { name: spec.name, pid, report, meter };
        Outcome::Grown(Box::new(ward), Box::new(launched), given)
    }

    /// Ends it before it is a jail. Whoever asked for it hears why once nothing of it is left. The first reason stands.
    pub(super) fn abandon(mut self, why: JailError) -> Self {
        if !matches!(self.stage, Stage::Ending(_)) {
            if let Some(leaf) = &self.leaf {
                leaf.kill();
            }
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
            self.stage = Stage::Ending(why);
        }
        self
    }

    /// Collects it and removes what is left on the host.
    pub(super) fn bury(self) -> Outcome {
        let _ = sandstorm_sys::process::reap(self.pid);
        if let Some(leaf) = &self.leaf {
            leaf.remove();
        }
        let why = match self.stage {
            Stage::Ending(why) => why,
            _ => JailError::Gone,
        };
        Outcome::Failed(self.spec.name, why)
    }
}

/// What tells that PID 1 ended, whether it is a jail by then or not.
fn init_token(serial: Serial) -> Token {
    Token::Jail(serial, Part::Init)
}

fn step(name: &str, source: Errno) -> JailError {
    JailError::Step { step: name.to_owned(), source }
}
