//! The resident launcher: one that outlives its clients.
//!
//! It listens at an address of its own. A client that finds nobody there makes it: a *guardian*, in a session of its own,
//! which forks the launcher and forks another when that one dies or does not answer any more. The guardian holds the address and a lock beside it,
//! so that there is one launcher for one address, and takes both away when the launcher ends as it should.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};
use sandstorm_sys::fork::Forked;
use sandstorm_sys::process::{Ending, Reaped, reap_any};

use super::clients::{Clients, Reception};
use super::hello::{self, Welcome};
use super::pulse::{self, Need, Pulse};
use super::sources::{MountSources, Sources};
use super::state::State;
use super::watch::{Token, Watcher};
use super::{Abilities, LauncherConfig, Workshop, timespec};
use crate::cgroup::Hierarchies;
use crate::error::{JailError, doing};
use crate::instance::sweep_dead;
use crate::packet;

/// How long a launcher may take to answer, or to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A launcher that dies so soon after its start is not started again at once.
const TOO_SOON: Duration = Duration::from_secs(1);

/// What a resident launcher is made from.
#[derive(Debug, Clone)]
pub struct ResidentConfig {
    /// Its address. The directory must be one that only trusted users can write to.
    pub socket: PathBuf,
    /// Who may connect beside the user that makes it: the user that the client becomes.
    pub allowed_uid: u32,
    pub launcher: LauncherConfig,
    /// Without a client for this long it ends every jail and itself.
    pub orphan_after: Duration,
    /// What jails may show beside the host template's own.
    pub mount_sources: MountSources,
}

/// A connection to a resident launcher.
#[derive(Debug)]
pub struct Resident {
    /// For requests and answers.
    pub socket: OwnedFd,
    pub abilities: Abilities,
    pub pid: u32,
    /// The launcher's build.
    pub build: String,
}

/// Connects to the launcher at an address, or makes one. Call it in `main`, before any thread exists.
pub fn connect_or_start(config: &ResidentConfig) -> Result<Resident, JailError> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match connect(&config.socket) {
            Ok(resident) => {
                tell_sources(config);
                return Ok(resident);
            }
            Err(JailError::Host { .. }) if Instant::now() < give_up => {}
            Err(e) => return Err(e),
        }
        // Nobody answers. Whoever holds the lock is about to: it is coming up, or going.
        if let Some(lock) = take_lock(config)? {
            start(config, lock)?;
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Makes a guardian where there is none, and tells the launcher that is there what it may show.
pub(super) fn restore(config: &ResidentConfig) -> Result<(), JailError> {
    match take_lock(config)? {
        Some(lock) => start(config, lock),
        None => {
            tell_sources(config);
            Ok(())
        }
    }
}

/// One that was made with another configuration, or by another build, would refuse what is new. It believes that only its
/// own user, and one that does not know the word closes the connection: neither is a reason to do without it.
fn tell_sources(config: &ResidentConfig) {
    let told = reach(&config.socket).and_then(|socket| {
        hello::say_sources(socket.as_fd(), &config.mount_sources)?;
        hello::hear_sources_taken(socket.as_fd())
    });
    drop(told);
}

/// Connects to the launcher at an address.
pub fn connect(address: &Path) -> Result<Resident, JailError> {
    let (socket, welcome) = greet(address).map_err(doing(format!("reach {}", address.display())))?;
    if welcome.version == super::VERSION {
        let Welcome { abilities, pid, build, .. } = welcome;
        return Ok(Resident { socket, abilities, pid, build });
    }
    let told = reach(address).and_then(|socket| hello::say_drain(socket.as_fd()));
    let drains = if told.is_ok() { "; it was told to end when its last sandbox has" } else { "" };
    Err(JailError::Launcher(format!(
        "the launcher at {} (process {}, build {}) is of another version{drains}",
        address.display(),
        welcome.pid,
        welcome.build
    )))
}

fn greet(address: &Path) -> io::Result<(OwnedFd, Welcome)> {
    let socket = reach(address)?;
    hello::say_hello(socket.as_fd())?;
    let welcome = hello::hear_welcome(socket.as_fd())?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, None)?;
    Ok((socket, welcome))
}

/// A connection to whoever listens there, if that is us or root.
fn reach(address: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(address)?)?;
    let peer = sockopt::socket_peercred(&socket)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("user {} listens there", peer.as_raw()),
        ));
    }
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The lock of whoever makes or guards a launcher; `None`: somebody has it.
fn take_lock(config: &ResidentConfig) -> Result<Option<File>, JailError> {
    let path = config.socket.with_extension("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    // A link or a pipe of that name is somebody's trick.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let opened = with_rights_of(config.allowed_uid, || options.open(&path));
    let lock = opened.map_err(doing(format!("open {}", path.display())))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(doing(format!("lock {}", path.display()))(e)),
    }
}

/// Listens at the address and forks the guardian, which has the lock from then on.
fn start(config: &ResidentConfig, lock: File) -> Result<(), JailError> {
    let listener = listen(config).map_err(doing(format!("listen at {}", config.socket.display())))?;
    match sandstorm_sys::fork::fork().map_err(doing("fork the guardian"))? {
        Forked::Parent { pid } => {
            // The first child only forks: the guardian is nobody's child, so that nobody has to wait for it.
            sandstorm_sys::process::reap(pid).map(drop).map_err(doing("start the guardian"))
        }
        Forked::Child => match sandstorm_sys::fork::fork() {
            Ok(Forked::Child) => {
                guard(config, &listener);
                drop(lock);
                sandstorm_sys::fork::exit_now(0)
            }
            Ok(Forked::Parent { .. }) => sandstorm_sys::fork::exit_now(0),
            Err(_) => sandstorm_sys::fork::exit_now(1),
        },
    }
}

fn listen(config: &ResidentConfig) -> io::Result<OwnedFd> {
    let listener = socket()?;
    with_rights_of(config.allowed_uid, || {
        // The lock is ours, so whatever is there is what a guardian left that was killed.
        match fs::remove_file(&config.socket) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = rustix::net::bind(&listener, &SocketAddrUnix::new(&config.socket)?);
        rustix::process::umask(mask);
        Ok(bound?)
    })?;
    // With our own rights again: who connects sees who listened.
    rustix::net::listen(&listener, 16)?;
    Ok(listener)
}

/// Does something with another user's rights, where we are root. The directory of the address belongs to that user, who
/// may turn every name in it into something else at any moment: nothing is done there that this user could not do.
fn with_rights_of<T>(user: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let root = rustix::process::geteuid();
    if !root.is_root() || user == root.as_raw() {
        return work();
    }
    let user = rustix::process::Uid::from_raw(user);
    rustix::thread::set_thread_res_uid(root, user, root)?;
    let done = work();
    rustix::thread::set_thread_res_uid(root, root, root)?;
    done
}

/// Keeps a launcher running until one ends as it should, then takes the address away.
fn guard(config: &ResidentConfig, listener: &OwnedFd) {
    detach();
    // Jails whose launcher was killed come to the guardian, which is there to collect them.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    loop {
        let began = Instant::now();
        if outlive_one(config, listener).is_ok_and(|reaped| reaped.ending == Ending::Code(0)) {
            break;
        }
        if began.elapsed() < TOO_SOON {
            std::thread::sleep(TOO_SOON);
        }
    }
    let _ = fs::remove_file(&config.socket);
}

/// Forks a launcher and waits for its end, and for what launchers before it left. One that does not answer is killed.
fn outlive_one(config: &ResidentConfig, listener: &OwnedFd) -> io::Result<Reaped> {
    let (heart, theirs) = packet::pair()?;
    let launcher = match sandstorm_sys::fork::fork()? {
        Forked::Child => {
            drop(heart);
            sandstorm_sys::fork::exit_now(match serve(config, listener, theirs) {
                Ok(()) => 0,
                Err(_) => 1,
            })
        }
        Forked::Parent { pid } => pid,
    };
    drop(theirs);
    let pid = Pid::from_raw(launcher).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let mut pulse = Pulse::new(Instant::now());
    // One that is going has let go of its end, and needs nothing but time.
    let mut speaks = true;
    loop {
        let end = PollFd::new(&pidfd, PollFlags::IN);
        let answer = PollFd::new(&heart, PollFlags::IN);
        let wait = if speaks { pulse.wait(Instant::now()) } else { TOO_SOON };
        let both = &mut [end, answer][..if speaks { 2 } else { 1 }];
        match poll(both, Some(&timespec(wait))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        while let Some(reaped) = reap_any()? {
            if reaped.pid == launcher {
                return Ok(reaped);
            }
        }
        match pulse::hear(heart.as_fd()) {
            Some(true) => pulse.answered(Instant::now()),
            Some(false) => match pulse.look(Instant::now(), || pulse::is_stopped(launcher)) {
                Need::Nothing => {}
                Need::Question => pulse::ask(heart.as_fd()),
                Need::Replacement => {
                    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                }
            },
            None => speaks = false,
        }
    }
}

/// Nothing of the client's stays: not its terminal, not its directory, not the pipes that somebody reads to the end.
pub(super) fn detach() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// One launcher from its start to its end.
fn serve(config: &ResidentConfig, listener: &OwnedFd, heart: OwnedFd) -> Result<(), JailError> {
    let sources = Sources::new(&config.mount_sources);
    let workshop = Workshop::prepare(config.launcher.clone(), Some(sources))?;
    // What a launcher left that was killed.
    sweep_dead(&config.launcher.runtime_dir, &Hierarchies::detect());
    let listener = listener.try_clone().map_err(doing("copy the listener"))?;
    let abilities = Abilities::detect(&config.launcher);
    let watcher = Watcher::new().map_err(doing("make the list of what to wait for"))?;
    let reception = Reception::new(&watcher, listener, config.allowed_uid, abilities, config.orphan_after);
    let reception = reception.map_err(doing("wait for clients"))?;
    let heart = watcher.readable(heart, Token::Guardian).map_err(doing("listen to the guardian"))?;
    State::new(Clients::Resident(Box::new(reception)), workshop, watcher, Some(heart)).run()
}
