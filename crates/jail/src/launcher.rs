//! The launcher: the one process that makes jails, watches them and takes them down.
//!
//! It is single-threaded and synchronous, and it is forked before its client has any thread. It keeps the lease, the
//! id blocks, the cgroup leaves and a pidfd for each jail, and answers requests on a `SEQPACKET` socket. When the
//! socket closes it ends every jail, removes what they had on the host, and exits: a client that is killed leaves
//! nothing behind.

mod birth;
mod protocol;
mod ward;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use sandstorm_sys::fork::Forked;

pub use protocol::{Answer, EndCause, Ended, JailId, Launched, Refusal, RefusalKind, Request};
use ward::Ward;

use crate::cgroup::Hierarchies;
use crate::error::{JailError, doing};
use crate::identity::IdRange;
use crate::instance::{Instance, private_directory, sweep_dead};
use crate::packet;
use crate::seccomp::{self, Arch};

/// What a launcher needs to know of its host.
#[derive(Debug, Clone)]
pub struct LauncherConfig {
    /// Ids for jails that root makes.
    pub ids: IdRange,
    /// Parent of all our control groups, relative to the root of each hierarchy.
    pub cgroup_parent: PathBuf,
    /// Where leases and locks are; made when needed.
    pub runtime_dir: PathBuf,
    /// The agent program.
    pub agent: &'static [u8],
}

/// A forked launcher, seen from its client.
#[derive(Debug)]
pub struct Launcher {
    /// For [`Request`]s and [`Answer`]s. Closing it ends the launcher and all its jails.
    pub socket: OwnedFd,
    /// Whether it can make control groups.
    pub control_groups: bool,
    pid: i32,
}

impl Launcher {
    /// Waits until the launcher is gone. Close the socket first.
    pub fn join(pid: i32) -> io::Result<()> {
        sandstorm_sys::process::reap(pid).map(drop)
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// Forks the launcher. Call it in `main`, before any thread exists.
pub fn start(config: LauncherConfig) -> Result<Launcher, JailError> {
    let (ours, theirs) = packet::pair().map_err(doing("make the launcher's socket"))?;
    match sandstorm_sys::fork::fork().map_err(doing("fork the launcher"))? {
        Forked::Parent { pid } => {
            let control_groups = Hierarchies::detect().is_writable(&config.cgroup_parent);
            Ok(Launcher { socket: ours, control_groups, pid })
        }
        Forked::Child => {
            drop(ours);
            sandstorm_sys::fork::exit_now(match serve(theirs, config) {
                Ok(()) => 0,
                Err(_) => 1,
            })
        }
    }
}

/// Serves one client until it closes its socket.
pub fn serve(socket: OwnedFd, config: LauncherConfig) -> Result<(), JailError> {
    let workshop = match Workshop::prepare(config) {
        Ok(workshop) => workshop,
        Err(e) => return refuse_all(&socket, e),
    };
    let mut state = State { socket, workshop, wards: Vec::new() };
    let served = loop {
        match state.turn() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    // Whatever went wrong, no jail outlives its launcher.
    state.end();
    served
}

/// A launcher that cannot work on this host says why to whoever asks, until nobody asks any more.
fn refuse_all(socket: &OwnedFd, error: JailError) -> Result<(), JailError> {
    while let Some((request, _)) =
        packet::receive::<Request>(socket.as_fd()).map_err(doing("read a request"))?
    {
        let answer = match request {
            Request::Launch(spec) => {
                Answer::Refused { name: spec.name.clone(), refusal: Refusal::from(&error) }
            }
            Request::Count { name } => Answer::Counted { name, counters: None },
            Request::Kill { .. } => continue,
        };
        // A client that has gone reads no answer, and the next read says so.
        let _ = packet::send(socket.as_fd(), &answer, &[]);
    }
    Err(error)
}

/// Shared by all jails of this launcher.
struct Workshop {
    config: LauncherConfig,
    hierarchies: Hierarchies,
    agent: OwnedFd,
    agent_filter: Vec<sandstorm_sys::filter::Instruction>,
    namespaces: Vec<u64>,
    /// Exists once the first jail needed groups.
    instance: Option<Instance>,
}

struct State {
    socket: OwnedFd,
    workshop: Workshop,
    wards: Vec<Ward>,
}

impl State {
    /// Waits for one thing and deals with it. `false`: the client is gone.
    fn turn(&mut self) -> Result<bool, JailError> {
        let (requested, due) = self.wait().map_err(doing("wait for jails"))?;
        for index in due.into_iter().rev() {
            self.wards[index].look();
        }
        let over: Vec<usize> = (0..self.wards.len()).filter(|i| self.wards[*i].is_over()).rev().collect();
        for index in over {
            let ended = self.wards.swap_remove(index).bury();
            self.answer(&Answer::Ended(ended))?;
        }
        if !requested {
            return Ok(true);
        }
        match packet::receive::<Request>(self.socket.as_fd()).map_err(doing("read a request"))? {
            None => Ok(false),
            Some((request, _)) => self.obey(request).map(|()| true),
        }
    }

    fn obey(&mut self, request: Request) -> Result<(), JailError> {
        match request {
            Request::Launch(spec) => match birth::launch(&mut self.workshop, &spec) {
                Ok((ward, launched, descriptors)) => {
                    // Ours to end before anybody hears of it: the client may be gone by now.
                    self.wards.push(ward);
                    let given: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                    self.answer_with(&Answer::Launched(launched), &given)
                }
                Err(e) => {
                    self.answer(&Answer::Refused { name: spec.name.clone(), refusal: Refusal::from(&e) })
                }
            },
            Request::Kill { name } => {
                if let Some(ward) = self.wards.iter_mut().find(|w| w.name() == name) {
                    ward.kill(EndCause::Asked);
                }
                Ok(())
            }
            Request::Count { name } => {
                let counters = self.wards.iter().find(|w| w.name() == name).map(Ward::counters);
                self.answer(&Answer::Counted { name, counters })
            }
        }
    }

    fn answer(&self, answer: &Answer) -> Result<(), JailError> {
        self.answer_with(answer, &[])
    }

    fn answer_with(&self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> Result<(), JailError> {
        match packet::send(self.socket.as_fd(), answer, descriptors) {
            // The client is going: the next read says so, and everything is taken down in order.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(doing("answer a request")),
        }
    }

    /// Waits for a request, for a jail that ended or raised its alarm, or for the next moment at which one must be
    /// looked at. Returns whether there is a request, and which wards are due.
    fn wait(&self) -> io::Result<(bool, Vec<usize>)> {
        let now = Instant::now();
        let timeout =
            self.wards.iter().filter_map(Ward::next_look).min().map(|at| at.saturating_duration_since(now));
        let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
        let mut owners = vec![None];
        for (index, ward) in self.wards.iter().enumerate() {
            for (fd, events) in ward.interests() {
                fds.push(PollFd::from_borrowed_fd(fd, events));
                owners.push(Some(index));
            }
        }
        match poll(&mut fds, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = Instant::now();
        let mut due: Vec<usize> = (0..self.wards.len())
            .filter(|i| self.wards[*i].next_look().is_some_and(|at| at <= now))
            .collect();
        for (fd, owner) in fds.iter().zip(&owners) {
            if let (Some(index), false) = (owner, fd.revents().is_empty())
                && !due.contains(index)
            {
                due.push(*index);
            }
        }
        due.sort_unstable();
        Ok((!fds[0].revents().is_empty(), due))
    }

    /// The client is gone: everything goes.
    fn end(mut self) {
        for ward in &mut self.wards {
            ward.kill(EndCause::Asked);
        }
        for ward in self.wards.drain(..) {
            ward.bury();
        }
        let config = &self.workshop.config;
        if let Some(instance) = self.workshop.instance.take() {
            instance.end(&self.workshop.hierarchies, &config.cgroup_parent);
            sweep_dead(&config.runtime_dir, &self.workshop.hierarchies);
        }
    }
}

impl Workshop {
    fn prepare(config: LauncherConfig) -> Result<Self, JailError> {
        leave_terminal();
        // Nobody inside may change groups, so they are given up here, where it is allowed.
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_groups(&[]).map_err(doing("give up supplementary groups"))?;
        }
        let agent = sealed(config.agent).map_err(doing("seal the agent program"))?;
        Ok(Self {
            hierarchies: Hierarchies::detect(),
            agent,
            agent_filter: birth::instructions(&seccomp::agent(Arch::host())),
            namespaces: crate::report::namespaces().map_err(doing("look at our own namespaces"))?,
            instance: None,
            config,
        })
    }

    /// The parent of this launcher's groups; takes the lease when it is first needed.
    fn group_parent(&mut self) -> Result<PathBuf, JailError> {
        private_directory(&self.config.runtime_dir)?;
        if self.instance.is_none() {
            self.instance = Some(Instance::begin(&self.config.runtime_dir, &self.config.cgroup_parent)?);
        }
        let name = self.instance.as_ref().map(Instance::name).unwrap_or_default();
        Ok(self.config.cgroup_parent.join(name))
    }
}

/// Ctrl-C in the client's terminal is the client's business; it ends us by closing the socket, after which there is
/// still work to do here.
fn leave_terminal() {
    let _ = rustix::process::setsid();
    sandstorm_sys::process::ignore_broken_pipes();
}

/// A copy of the agent that nobody can change any more, whoever gets hold of it.
fn sealed(program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels since 6.3 want to be told that it will be executed; older ones do not know the flag.
    let memfd = match rustix::fs::memfd_create("sandstorm-agent", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("sandstorm-agent", flags)?,
        other => other?,
    };
    let mut file = File::from(memfd);
    file.write_all(program)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o511))?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(file.into())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
