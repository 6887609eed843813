//! From a copy of the agent to the payload: the walls that each child puts up around itself before anything of the
//! user's runs in it.
//!
//! Mounts, namespaces, Landlock and the bounding set were dealt with before the agent began; what is left is who the
//! child is, what it may still call and which descriptors it holds. A step that fails is reported by name, and the
//! child ends.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit as ProcessLimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sandstorm_sys::filter::Instruction;
use serde::{Deserialize, Serialize};

use crate::protocol::{Init, PayloadWalls, Program, Rlimit, StartFailure};
use crate::{files, frame, terminal};

/// What a child says on its status pipe. The pipe closes by itself when the program is executed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Status {
    Walls(PayloadWalls),
    Failure(StartFailure),
}

/// The three descriptors that a child gets as 0, 1 and 2.
#[derive(Debug)]
pub(crate) struct Stdio {
    pub(crate) input: OwnedFd,
    pub(crate) output: OwnedFd,
    pub(crate) error: OwnedFd,
    /// Becomes descriptor 3 of a program that asked for a side channel.
    pub(crate) side: Option<OwnedFd>,
}

/// A step that failed.
struct Broken(&'static str, Errno);

trait Step<T> {
    fn step(self, name: &'static str) -> Result<T, Broken>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, name: &'static str) -> Result<T, Broken> {
        self.map_err(|errno| Broken(name, errno))
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, name: &'static str) -> Result<T, Broken> {
        self.map_err(|e| Broken(name, Errno::from_io_error(&e).unwrap_or(Errno::IO)))
    }
}

/// Becomes the program. Never returns: either the program runs in this process, or it ends.
pub(crate) fn become_program(init: &Init, program: &Program, stdio: Stdio, status: OwnedFd) -> ! {
    let (uid, gid) = if program.root { (0, 0) } else { (init.uid, init.gid) };
    let Err(Broken(step, errno)) = execute(init, program, (uid, gid), stdio, &status);
    say(&status, &Status::Failure(StartFailure { step: step.to_owned(), errno: errno.raw_os_error() }));
    sandstorm_sys::fork::exit_now(127)
}

/// Becomes the payload's user without executing anything, or stays uid 0 where `as_root` says so, then does `work`. Never
/// returns.
pub(crate) fn become_helper(
    init: &Init,
    stdio: Stdio,
    status: OwnedFd,
    as_root: impl FnOnce() -> bool,
    work: impl FnOnce() -> i32,
) -> ! {
    let status = match keep_only(&stdio, status) {
        Ok(status) => status,
        Err(_) => sandstorm_sys::fork::exit_now(127),
    };
    // They are closed already, and their numbers may be somebody else's by the time they would be dropped.
    std::mem::forget(stdio);
    let put_up = || {
        set_limits(init)?;
        let (uid, gid) = if as_root() { (0, 0) } else { (init.uid, init.gid) };
        become_user(uid, gid)?;
        rustix::process::chdir("/").step("chdir")?;
        install_filter(init)?;
        measure()
    };
    match put_up() {
        Ok(walls) => say(&status, &Status::Walls(walls)),
        Err(Broken(step, errno)) => {
            say(
                &status,
                &Status::Failure(StartFailure { step: step.to_owned(), errno: errno.raw_os_error() }),
            );
            sandstorm_sys::fork::exit_now(127)
        }
    }
    drop(status);
    sandstorm_sys::fork::exit_now(work())
}

/// Closes everything but the streams and the status pipe, which moves to the number after them. No exec will do it
/// here, and what is left open would be the agent's socket, other tasks' pipes, and the writing end of the helper's
/// own input, whose end it would wait for in vain.
fn keep_only(stdio: &Stdio, status: OwnedFd) -> Result<OwnedFd, Broken> {
    const STATUS: i32 = 3;
    settle(stdio, false)?;
    sandstorm_sys::process::place_descriptor(status.as_fd(), STATUS).step("status pipe")?;
    std::mem::forget(status);
    sandstorm_sys::process::close_from(4).step("descriptors")?;
    sandstorm_sys::process::take_descriptor(STATUS).step("status pipe")
}

fn execute(
    init: &Init,
    program: &Program,
    (uid, gid): (u32, u32),
    stdio: Stdio,
    status: &OwnedFd,
) -> Result<std::convert::Infallible, Broken> {
    // Every signal was put to its default before the agent began; what it changed of its own is undone here.
    sandstorm_sys::process::restore_broken_pipes();
    sandstorm_sys::process::unblock_signals();
    rustix::process::setsid().step("setsid")?;
    settle(&stdio, program.side_channel)?;
    if program.terminal.is_some() {
        terminal::make_controlling(stdio.input.as_fd()).step("controlling terminal")?;
    }
    set_limits(init)?;
    become_user(uid, gid)?;
    rustix::process::chdir(program.cwd.as_str()).step("working directory")?;
    refuse_unreachable_directory()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    for (path, content) in &program.files {
        files::place(path, content).step("files")?;
    }
    let argv = strings(program.argv.iter().cloned())?;
    let envp = strings(program.env.iter().map(|(name, value)| format!("{name}={value}")))?;
    close_others(status, if program.side_channel { 4 } else { 3 })?;
    install_filter(init)?;
    say(status, &Status::Walls(measure()?));
    let mut refused = Errno::NOENT;
    for candidate in candidates(program) {
        let path = CString::new(candidate).map_err(|_| Broken("program", Errno::INVAL))?;
        let Err(e) = sandstorm_sys::exec::execute_path(&path, &argv, &envp);
        match Errno::from_io_error(&e).unwrap_or(Errno::IO) {
            Errno::NOENT | Errno::NOTDIR => {}
            errno => refused = errno,
        }
    }
    Err(Broken("execute", refused))
}

/// Where the program may be: as given when it has a slash, else in each directory of its own `PATH`.
fn candidates(program: &Program) -> Vec<String> {
    let Some(name) = program.argv.first() else { return Vec::new() };
    if name.contains('/') {
        return vec![name.clone()];
    }
    let path = program.env.iter().find(|(key, _)| key == "PATH").map_or("/usr/bin:/bin", |(_, value)| value);
    path.split(':').filter(|dir| dir.starts_with('/')).map(|dir| format!("{dir}/{name}")).collect()
}

fn strings(words: impl Iterator<Item = String>) -> Result<Vec<CString>, Broken> {
    words.map(|word| CString::new(word).map_err(|_| Broken("arguments", Errno::INVAL))).collect()
}

/// Puts the streams at 0, 1, 2 (and 3). They never are at those numbers before: the agent keeps 0 to 3 occupied.
fn settle(stdio: &Stdio, side: bool) -> Result<(), Broken> {
    rustix::stdio::dup2_stdin(&stdio.input).step("stdin")?;
    rustix::stdio::dup2_stdout(&stdio.output).step("stdout")?;
    rustix::stdio::dup2_stderr(&stdio.error).step("stderr")?;
    if let (true, Some(channel)) = (side, &stdio.side) {
        sandstorm_sys::process::place_descriptor(channel.as_fd(), 3).step("side channel")?;
    }
    Ok(())
}

fn set_limits(init: &Init) -> Result<(), Broken> {
    for &(limit, soft, hard) in &init.rlimits {
        let new = ProcessLimit { current: Some(soft), maximum: Some(hard) };
        rustix::process::setrlimit(resource(limit), new).step("resource limits")?;
    }
    Ok(())
}

fn resource(limit: Rlimit) -> Resource {
    match limit {
        Rlimit::AddressSpace => Resource::As,
        Rlimit::Core => Resource::Core,
        Rlimit::CpuSeconds => Resource::Cpu,
        Rlimit::Data => Resource::Data,
        Rlimit::FileSize => Resource::Fsize,
        Rlimit::LockedMemory => Resource::Memlock,
        Rlimit::MessageQueues => Resource::Msgqueue,
        Rlimit::Nice => Resource::Nice,
        Rlimit::OpenFiles => Resource::Nofile,
        Rlimit::PendingSignals => Resource::Sigpending,
        Rlimit::Processes => Resource::Nproc,
        Rlimit::RealTimePriority => Resource::Rtprio,
        Rlimit::RealTimeTime => Resource::Rttime,
        Rlimit::Stack => Resource::Stack,
    }
}

/// Takes the payload's ids and gives up every capability. The bounding set is empty since before the agent began.
fn become_user(uid: u32, gid: u32) -> Result<(), Broken> {
    use rustix::process::{Gid, Uid, getgid, getuid};
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // With a single mapped id (rootless without a subordinate range) there is nothing to change.
    if getgid() != gid {
        rustix::thread::set_thread_res_gid(gid, gid, gid).step("group id")?;
    }
    if getuid() != uid {
        rustix::thread::set_thread_res_uid(uid, uid, uid).step("user id")?;
    }
    rustix::thread::clear_ambient_capability_set().step("ambient capabilities")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).step("capabilities")
}

/// A working directory outside the root shows as `(unreachable)`: refuse it instead of running there.
fn refuse_unreachable_directory() -> Result<(), Broken> {
    let cwd = rustix::process::getcwd(Vec::new()).step("working directory")?;
    if cwd.to_bytes().starts_with(b"/") { Ok(()) } else { Err(Broken("working directory", Errno::XDEV)) }
}

/// Everything from `first` on closes at the latest when the program is executed; the status pipe must live until then.
fn close_others(status: &OwnedFd, first: u32) -> Result<(), Broken> {
    sandstorm_sys::process::close_on_exec_from(first).step("descriptors")?;
    rustix::io::fcntl_setfd(status, rustix::io::FdFlags::CLOEXEC).step("descriptors")
}

fn install_filter(init: &Init) -> Result<(), Broken> {
    let program: Vec<Instruction> =
        init.filter.as_chunks().0.iter().copied().map(Instruction::read).collect();
    sandstorm_sys::filter::install(&program).step("seccomp filter")
}

/// Asks the kernel what this process now is.
fn measure() -> Result<PayloadWalls, Broken> {
    // The bounding set was measured as empty in PID 1 and can only ever shrink.
    let sets = rustix::thread::capabilities(None).step("capabilities")?;
    Ok(PayloadWalls {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        capabilities: (sets.effective | sets.permitted | sets.inheritable).bits(),
        no_new_privs: rustix::thread::no_new_privs().step("no_new_privs")?,
        seccomp_mode: sandstorm_sys::filter::mode().step("seccomp mode")?,
    })
}

fn say(status: &impl AsFd, message: &Status) {
    // A status fits into a pipe at once; if the agent is gone, so is this process.
    if let Ok(bytes) = frame::encode(message) {
        let _ = write_all(status.as_fd(), &bytes);
    }
}

/// Writes everything to a blocking descriptor.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
