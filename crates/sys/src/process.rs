//! Calls about this process and its children that rustix leaves out.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// How a child ended and what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    pub pid: i32,
    pub ending: Ending,
    pub user_time: Duration,
    pub system_time: Duration,
    pub peak_memory_bytes: u64,
}

/// The two ways a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Code(i32),
    Signal(i32),
}

/// Collects one ended child, any of them, without waiting. `None`: there is none now.
pub fn reap_any() -> io::Result<Option<Reaped>> {
    wait4(-1, libc::WNOHANG)
}

/// What there is of children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    None,
    /// They all live.
    Living,
    /// One of those that ended and were not collected.
    Ended(i32),
}

/// Looks for ended children without collecting any: until it is collected, a child can still be asked about.
pub fn look_for_ended() -> io::Result<Children> {
    // SAFETY: `siginfo_t` is plain data; all zeroes is a valid value, and means that no child ended.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a live local variable of the right type.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) } == -1 {
        return match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => Ok(Children::None),
            e => Err(e),
        };
    }
    // SAFETY: `waitid` has filled it in for an ended child, or left it zeroed.
    let pid = unsafe { info.si_pid() };
    Ok(if pid == 0 { Children::Living } else { Children::Ended(pid) })
}

/// Waits for the given child to end.
pub fn reap(pid: i32) -> io::Result<Reaped> {
    loop {
        match wait4(pid, 0) {
            Ok(Some(reaped)) => return Ok(reaped),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Waits for any child to end.
pub fn reap_next() -> io::Result<Reaped> {
    reap(-1)
}

fn wait4(pid: i32, options: i32) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: `rusage` is plain data; all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live local variables of the right type.
    let pid = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
    match pid {
        -1 => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) && options & libc::WNOHANG != 0 => Ok(None),
            e => Err(e),
        },
        0 => Ok(None),
        pid => Ok(Some(Reaped {
            pid,
            ending: if libc::WIFSIGNALED(status) {
                Ending::Signal(libc::WTERMSIG(status))
            } else {
                Ending::Code(libc::WEXITSTATUS(status))
            },
            user_time: duration(usage.ru_utime),
            system_time: duration(usage.ru_stime),
            peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
        })),
    }
}

/// Collects the child behind a descriptor, without waiting. `None`: it lives.
pub fn reap_descriptor(child: BorrowedFd<'_>) -> io::Result<Option<Reaped>> {
    // SAFETY: `siginfo_t` is plain data; all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `rusage` is plain data; all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // libc's own function leaves the usage out.
    // SAFETY: both pointers are to live local variables of the right type.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            child.as_raw_fd(),
            &raw mut info,
            flags,
            &raw mut usage,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `waitid` has filled in the part that tells of a child, or left all of it zero.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    Ok(Some(Reaped {
        pid,
        ending: match info.si_code {
            libc::CLD_EXITED => Ending::Code(status),
            _ => Ending::Signal(status),
        },
        user_time: duration(usage.ru_utime),
        system_time: duration(usage.ru_stime),
        peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    }))
}

/// Collects every child there is, waiting for those that live, and tells of each.
pub fn reap_all(mut collected: impl FnMut(Reaped)) {
    while let Ok(reaped) = reap_next() {
        collected(reaped);
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec).unwrap_or(0).saturating_mul(1000),
    )
}

/// Namespaces that a process is in, by the kernel's numbers for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    Ipc = 2,
    Mount = 3,
    Network = 4,
    Pid = 5,
    User = 9,
    Uts = 10,
}

/// A namespace of the process behind a descriptor. Kernels before 6.11 do not know the question.
pub fn namespace_of(process: BorrowedFd<'_>, kind: NamespaceKind) -> io::Result<OwnedFd> {
    /// `_IO(PIDFS_IOCTL_MAGIC, 0)`.
    const ASK: libc::c_ulong = 0xff00;
    let question = ASK | kind as libc::c_ulong;
    // SAFETY: these questions have no argument and change nothing; on what is no process they are refused.
    match unsafe { libc::syscall(libc::SYS_ioctl, process.as_raw_fd(), question, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel just made this descriptor and nobody else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

/// Leaves the cgroup namespace for one rooted at the groups that this process is in now.
pub fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: `unshare` takes no pointer; the caller's threads and memory are unaffected by this flag.
    match unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Leaves the network namespace for a new one, in which there is nothing but a loopback device that is down.
pub fn unshare_network_namespace() -> io::Result<()> {
    // SAFETY: `unshare` takes no pointer; the caller's threads and memory are unaffected by this flag.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives every signal its default action and unblocks all: what a program expects to start with.
pub fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is a valid action for every signal; the numbers that cannot be changed (KILL, STOP and
        // those libc keeps) are refused with an error that changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    set_mask(&[]);
}

/// Makes this process survive writes to closed pipes (they fail instead).
pub fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is a valid action for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Undoes [`ignore_broken_pipes`].
pub fn restore_broken_pipes() {
    // SAFETY: SIG_DFL is a valid action for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Blocks the signals and returns a descriptor that becomes readable when one of them arrives.
pub fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_mask(signals);
    // SAFETY: `set` is an initialised signal set; -1 asks for a new descriptor.
    match unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel just made this descriptor and nobody else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Makes exactly these signals blocked.
fn set_mask(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data, and `sigemptyset` initialises it next.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live local variable.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: `set` is initialised; an invalid number is refused with an error.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: `set` is initialised; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
    set
}

/// Unblocks all signals, as a new program expects.
pub fn unblock_signals() {
    set_mask(&[]);
}

/// The parent of this process, as it sees it: 0 when it is outside this pid namespace.
pub fn parent_pid() -> i32 {
    // SAFETY: `getppid` has no arguments and cannot fail.
    unsafe { libc::getppid() }
}

/// Starts a fresh, anonymous session keyring, so that keys of whoever started us are out of reach.
pub fn new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is read.
    let result = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes ownership of a descriptor that this process was started with. Ask once for each number.
pub fn take_descriptor(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD reads no memory; it fails when the number is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number is open (checked above) and was inherited, so no other owner exists in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Puts a copy of a descriptor at exactly `number`, open across exec.
pub fn place_descriptor(from: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    if from.as_raw_fd() == number {
        // `dup2` onto itself would keep the close-on-exec flag.
        // SAFETY: F_SETFD reads no memory and `number` is open, being `from`.
        return match unsafe { libc::fcntl(number, libc::F_SETFD, 0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        };
    }
    // SAFETY: `from` is open. Whatever was at `number` is closed: callers use it in a process that is new, or about to
    // exec, where no owner of that number will run again.
    match unsafe { libc::dup2(from.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Marks every descriptor from `first` on to be closed when a program is executed.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no descriptor is closed now; only flags change.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes every descriptor from `first` on, whoever owns them: for a new process that keeps nothing of its parent's and
/// never returns to the code that had them.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: descriptors are closed under their owners; callers end the process without running any of those again.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The capability bounding set as a bit mask.
pub fn bounding_set() -> io::Result<u64> {
    let mut set = 0;
    for capability in 0..64 {
        // SAFETY: PR_CAPBSET_READ reads no memory; unknown numbers give EINVAL.
        match unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability) } {
            1 => set |= 1 << capability,
            0 => {}
            _ => match io::Error::last_os_error() {
                // Past the last capability of this kernel.
                e if e.raw_os_error() == Some(libc::EINVAL) && capability > 0 => break,
                e => return Err(e),
            },
        }
    }
    Ok(set)
}

/// Removes every capability that this kernel knows from the bounding set.
pub fn empty_bounding_set() -> io::Result<()> {
    shrink_bounding_set(0)
}

/// Removes every capability that this kernel knows from the bounding set, but those in the mask.
pub fn shrink_bounding_set(kept: u64) -> io::Result<()> {
    for capability in (0..64).filter(|capability| kept & 1 << capability == 0) {
        // SAFETY: PR_CAPBSET_DROP reads no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability) } == -1 {
            return match io::Error::last_os_error() {
                // Past the last capability of this kernel.
                e if e.raw_os_error() == Some(libc::EINVAL) && capability > 0 => Ok(()),
                e => Err(e),
            };
        }
    }
    Ok(())
}

/// The Landlock version of the running kernel.
pub fn landlock_abi() -> io::Result<u32> {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel asks for a null attribute pointer and a size of zero.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    if version < 0 { Err(io::Error::last_os_error()) } else { Ok(version as u32) }
}

/// As PID 1 of a namespace: ends every other process in it, those that are being made at this moment included. Anybody
/// else is refused, since it would end all processes of their user.
pub fn end_everything_else() {
    if std::process::id() == 1 {
        // SAFETY: `kill` takes no pointer; -1 means every process that this one may signal, itself and PID 1 excluded.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}
