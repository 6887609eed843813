//! Making processes: `clone3` for a jail's PID 1, `fork` for what the agent starts.
//!
//! Both refuse to work in a process with more than one thread: a lock that another thread holds would stay locked in
//! the child for ever, and the child's heap could be halfway through a change.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

// The libc crate has these in a type that is too narrow for them.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Side {
    /// The caller, with the new process's pid (in the caller's pid namespace) and a descriptor that stays valid when the pid
    /// is reused.
    Parent { pid: i32, pidfd: OwnedFd },
    /// The new process.
    Child,
}

/// Namespaces for a new process; a thin set over the `CLONE_NEW…` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// Everything that a jail's PID 1 is born into. The cgroup namespace is not among them: it must be made after the
    /// v1 groups were joined, or it would be rooted at the wrong place.
    pub const JAIL: Self = Self(
        (libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS) as u64,
    );
    /// The same without a network namespace: the parent is in the one that the jail is to have.
    pub const JAIL_HERE: Self = Self(Self::JAIL.0 & !(libc::CLONE_NEWNET as u64));
    /// A mount namespace of its own, for the mold of all PID 1s.
    pub const MOLD: Self = Self(libc::CLONE_NEWNS as u64);
    /// What a zygote is born into: it is root of the host with few rights, has to enter the namespaces of jails, and can
    /// only do that from the host's own user and pid namespaces.
    pub const ZYGOTE: Self =
        Self((libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64);
    /// None: a plain child.
    pub const NONE: Self = Self(0);
}

/// Makes a child in new namespaces and, if a directory of the unified cgroup tree is given, inside that group from its
/// first instruction. Handlers of caught signals are reset in the child.
pub fn clone(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    clone_with(namespaces.0, libc::SIGCHLD as u64, cgroup)
}

/// The same, but the new process is a child of this process's own parent, which alone hears of its end and collects it.
pub fn clone_for_parent(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    // Whose child it is decides about the signal of its end, too.
    clone_with(namespaces.0 | libc::CLONE_PARENT as u64, 0, cgroup)
}

fn clone_with(flags: u64, exit_signal: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    refuse_threads()?;
    let mut pidfd: libc::c_int = -1;
    // SAFETY: `clone_args` is plain data for which all zeroes means "nothing asked for".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND;
    args.exit_signal = exit_signal;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: no stack is given, so the child continues here on a copy of this one; there is a single thread
    // (checked above), so its memory is a consistent copy; `args` outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: CLONE_PIDFD made the kernel store a fresh descriptor there, which nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent { pid: pid as i32, pidfd })
        }
    }
}

/// Makes a plain child through libc, so that its bookkeeping (thread id, handlers) is right in it.
pub fn fork() -> io::Result<Forked> {
    refuse_threads()?;
    // SAFETY: there is a single thread (checked above), so the child's memory is a consistent copy.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent { pid }),
    }
}

/// Which side of a plain [`fork`] this is.
#[derive(Debug)]
pub enum Forked {
    Parent { pid: i32 },
    Child,
}

/// Ends this process at once: no destructors, no exit handlers that belong to the parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any integer and does not return.
    unsafe { libc::_exit(code) }
}

/// The link count of `/proc/self/task` is two plus the number of threads: one call, no parsing.
fn refuse_threads() -> io::Result<()> {
    match fs::metadata("/proc/self/task")?.nlink() {
        3 => Ok(()),
        links => {
            Err(io::Error::other(format!("a process with {} threads may not fork", links.saturating_sub(2))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The harness of this test runs it in a second thread: exactly what must be refused.
    #[test]
    fn a_process_with_threads_may_not_fork() {
        let running = std::thread::spawn(|| (clone(Namespaces::NONE, None).is_err(), fork().is_err()));
        assert_eq!(running.join().expect("the thread ends"), (true, true));
    }
}
