//! The agent in a container that somebody else built, such as that of a pod.
//!
//! There is no launcher there. Whoever executes this program with `pod join` speaks over its standard input and output with
//! the agent of the container, which is started when there is none. A *keeper* stands in for the launcher: it listens at a
//! socket in the container's file system and hands each that comes to the agent through its door. The newest is the host.
//!
//! The container's runtime put up the walls. What every program still gets here is what it gets everywhere: no capabilities,
//! `no_new_privs`, its limits and the payload's filter.

mod counters;

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{DumpableBehavior, Resource};
use sandstorm_agent::protocol::{Init, Rlimit, ToAgent, VERSION};
use sandstorm_sys::fork::{Forked, exit_now, fork};

use crate::seccomp::{self, Arch};

/// The word by which this program is told that it stands in a pod.
pub const WORD: &str = "pod";

const BUFFER: usize = 64 * 1024;

/// The word of `pod join` that asks for the strict filter.
const STRICT: &str = "strict";

/// How often an agent is asked for again, and after which time, where there is one that does not live.
const TURNS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// What it was told to do.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    /// Speak with the agent at this socket. One that has to be started gives its programs these limits and this filter.
    Join { socket: PathBuf, limits: Limits },
    /// Try whether an address can be reached.
    Reach { address: SocketAddr, within: Duration },
    /// Tell what the kernel counted for the container, and how full the file system at a path is.
    Count { scratch: PathBuf },
}

#[derive(Debug, PartialEq, Eq)]
struct Limits {
    processes: u64,
    open_files: u64,
    /// Of each process by itself: the second line behind whoever counts for all of them.
    cpu_seconds: Option<u64>,
    /// Programs get the strict filter of system calls.
    strict_filter: bool,
}

/// `pod join SOCKET PROCESSES OPEN_FILES [CPU_SECONDS] [strict]`, `pod reach ADDRESS MILLISECONDS` or `pod count PATH`.
pub fn main() -> ExitCode {
    // Programs of the container have the same user: the memory of what started them is closed to them all the same.
    if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return ExitCode::FAILURE;
    }
    let words: Vec<String> = env::args().skip(2).collect();
    let done = match order(&words) {
        Some(Order::Join { socket, limits }) => join(&socket, &limits),
        Some(Order::Reach { address, within }) => TcpStream::connect_timeout(&address, within).map(drop),
        Some(Order::Count { scratch }) => counters::tell(&scratch, &mut io::stdout()),
        None => return ExitCode::from(2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn order(words: &[String]) -> Option<Order> {
    match words {
        [word, socket, processes, open_files, more @ ..] if word == "join" => {
            let (cpu, strict_filter) = match more {
                [cpu @ .., last] if last == STRICT => (cpu, true),
                cpu => (cpu, false),
            };
            let cpu_seconds = match cpu {
                [] => None,
                [seconds] => Some(seconds.parse().ok()?),
                _ => return None,
            };
            let (processes, open_files) = (processes.parse().ok()?, open_files.parse().ok()?);
            let limits = Limits { processes, open_files, cpu_seconds, strict_filter };
            Some(Order::Join { socket: socket.into(), limits })
        }
        [word, address, within] if word == "reach" => {
            let within = Duration::from_millis(within.parse().ok().filter(|millis| *millis > 0)?);
            Some(Order::Reach { address: address.parse().ok()?, within })
        }
        [word, scratch] if word == "count" => Some(Order::Count { scratch: scratch.into() }),
        _ => None,
    }
}

fn join(socket: &Path, limits: &Limits) -> io::Result<()> {
    sandstorm_sys::process::reset_signals();
    sandstorm_sys::process::ignore_broken_pipes();
    for _ in 0..TURNS {
        let agent = connect(socket, limits)?;
        if greets(&agent)? {
            return relay(&agent);
        }
        // Its keeper is about to go with an agent that died: after that another one is started.
        std::thread::sleep(PAUSE);
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Whether the agent says anything to who comes, as it always does first. What it says stays where it is.
fn greets(agent: &UnixStream) -> io::Result<bool> {
    loop {
        match rustix::net::recv(agent, &mut [0][..], RecvFlags::PEEK) {
            Ok((_, length)) => return Ok(length > 0),
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
}

/// The connection to the agent, which is started when nobody listens.
fn connect(socket: &Path, limits: &Limits) -> io::Result<UnixStream> {
    if let Ok(connected) = UnixStream::connect(socket) {
        return Ok(connected);
    }
    let lock = fs::File::create(socket.with_extension("lock"))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    // Another one may have started it while this one waited.
    if let Ok(connected) = UnixStream::connect(socket) {
        return Ok(connected);
    }
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    match fork()? {
        Forked::Child => {
            drop(lock);
            let _ = keep(listener, limits);
            exit_now(1)
        }
        Forked::Parent { .. } => UnixStream::connect(socket),
    }
}

/// The keeper: starts the agent and hands it whoever comes, for as long as it lives.
fn keep(listener: UnixListener, limits: &Limits) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")?;
    leave_streams()?;
    let (init, control) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (door, inside) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let introduction =
        sandstorm_agent::frame::encode(&ToAgent::Init(introduction(limits))).map_err(io::Error::other)?;
    let agent = match fork()? {
        Forked::Child => {
            drop((init, door, listener));
            let _ = serve(control, inside);
            exit_now(1)
        }
        Forked::Parent { pid } => pid,
    };
    drop((control, inside));
    // With nobody at the other end any more, the agent waits at its door.
    fs::File::from(init).write_all(&introduction)?;
    loop {
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&door, PollFlags::empty())];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        if !fds[1].revents().is_empty() {
            return sandstorm_sys::process::reap(agent).map(drop);
        }
        let (host, _) = listener.accept()?;
        sandstorm_agent::knock(door.as_fd(), host.as_fd())?;
    }
}

/// Whoever executed this program waits for the ends of its streams, which are the relay's.
fn leave_streams() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
    for stream in 0..3 {
        sandstorm_sys::process::place_descriptor(null.as_fd(), stream)?;
    }
    Ok(())
}

/// The agent. Programs whose parents end become its children.
fn serve(control: OwnedFd, door: OwnedFd) -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_no_new_privs(true)?;
    sandstorm_agent::prepare();
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    // A container in which it cannot be opened loses a preference and nothing else.
    let score = sandstorm_agent::open_score().or_else(|_| null())?;
    sandstorm_agent::serve(control, door, score)
}

/// What every program gets. The container's own user is the only one that it can be.
fn introduction(limits: &Limits) -> Init {
    let at_most = |resource: Resource, wanted: u64| {
        rustix::process::getrlimit(resource).maximum.map_or(wanted, |have| have.min(wanted))
    };
    let cpu = limits
        .cpu_seconds
        .map(|seconds| (Rlimit::CpuSeconds, at_most(Resource::Cpu, seconds.saturating_add(2))));
    let rlimits = [
        (Rlimit::Core, at_most(Resource::Core, 1)),
        (Rlimit::OpenFiles, at_most(Resource::Nofile, limits.open_files)),
        // Keeper, agent and the two threads of a relay are the same user's.
        (Rlimit::Processes, at_most(Resource::Nproc, limits.processes.saturating_add(4))),
        (Rlimit::MessageQueues, 0),
        (Rlimit::Nice, 0),
        (Rlimit::RealTimePriority, 0),
        (Rlimit::PendingSignals, at_most(Resource::Sigpending, 4096)),
    ];
    Init {
        version: VERSION,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        filter: seccomp::payload(Arch::host(), limits.strict_filter).bytes(),
        rlimits: rlimits.into_iter().chain(cpu).map(|(limit, most)| (limit, most, most)).collect(),
    }
}

/// Passes bytes on in both directions until the agent closes. Neither waits for the other: who cannot write may be waited for by
/// somebody who does not read before it could write itself.
fn relay(agent: &UnixStream) -> io::Result<()> {
    let sending = agent.try_clone()?;
    std::thread::Builder::new().spawn(move || {
        // Where that ends with an error, the agent is gone, which the other direction hears of.
        let _ = pass_on(rustix::stdio::stdin(), &sending);
        let _ = sending.shutdown(Shutdown::Write);
    })?;
    pass_on(agent.as_fd(), rustix::stdio::stdout())
}

fn pass_on(from: BorrowedFd<'_>, to: impl AsFd) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = match rustix::io::read(from, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            match rustix::io::write(&to, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Order> {
        order(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn orders_are_read_strictly() {
        for (line, cpu_seconds, strict_filter) in [
            ("join /run/x 64 1024", None, false),
            ("join /run/x 64 1024 7", Some(7), false),
            ("join /run/x 64 1024 strict", None, true),
            ("join /run/x 64 1024 7 strict", Some(7), true),
        ] {
            let limits = Limits { processes: 64, open_files: 1024, cpu_seconds, strict_filter };
            assert_eq!(words(line), Some(Order::Join { socket: "/run/x".into(), limits }));
        }
        let reach =
            Order::Reach { address: "10.0.0.1:443".parse().unwrap(), within: Duration::from_millis(5) };
        assert_eq!(words("reach 10.0.0.1:443 5"), Some(reach));
        for wrong in [
            "",
            "join",
            "join /run/x 64",
            "join /run/x 64 1 x",
            "join /run/x 64 1 7 7",
            "join /run/x 64 1 strict 7",
            "join /run/x 64 1 strict strict",
            "join /run/x 64 strict",
            "join /run/x -1 1",
            "reach h:1 5",
            "reach 10.0.0.1:443 0",
            "x",
        ] {
            assert_eq!(words(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn programs_get_the_filter_that_was_asked_for() {
        for (line, strict) in [("join /run/x 64 1024", false), ("join /run/x 64 1024 strict", true)] {
            let Some(Order::Join { limits, .. }) = words(line) else { panic!("{line}") };
            assert_eq!(introduction(&limits).filter, seccomp::payload(Arch::host(), strict).bytes());
        }
        assert_ne!(
            seccomp::payload(Arch::host(), false).bytes(),
            seccomp::payload(Arch::host(), true).bytes()
        );
    }
}
