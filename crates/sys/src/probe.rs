//! One system call, whatever its number and arguments, made by a process that exists for nothing else.
//!
//! A call chosen at random may do anything to the process that makes it, so it is never made in the caller's: a child
//! makes it, reports and ends. Tests and the prober of the escape suite ask the kernel through this what a filter
//! really refuses.

use std::arch::asm;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::filter::{self, Instruction};

/// How the call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Native,
    /// The 32-bit gate of x86-64; only the number is passed. Elsewhere the same as `Native`.
    Int80,
}

/// What became of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// What the kernel answered; errors are negative.
    Returned(i64),
    /// The call ended the process with this status.
    Exited(i32),
    /// A signal ended the process.
    Killed(i32),
    /// The call did not come back in time.
    Blocked,
}

/// Makes the call in a child and waits for it. With a filter, the child first becomes user 65534, so that a hole in
/// the filter under test can do no harm, and then puts itself behind it. Its standard input is an empty pipe, since
/// descriptor 0 is what a call with arguments of zero works on.
pub fn attempt(
    filter: Option<&[Instruction]>,
    entry: Entry,
    number: u64,
    arguments: [u64; 6],
    patience: Duration,
) -> io::Result<Outcome> {
    let (report, report_in) = pipe()?;
    let (input, _input_in) = pipe()?;
    // SAFETY: the child makes system calls and nothing else, so it needs no lock or heap of this process, which may
    // have more threads.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => child(filter, entry, number, arguments, &input, &report_in),
        _ => {}
    }
    drop(report_in);
    let outcome = watch(pid, &report, patience);
    // SAFETY: the pid is ours until it is waited for, below.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    match outcome? {
        Some(outcome) => Ok(outcome),
        None if waited != pid => Err(io::Error::last_os_error()),
        None if libc::WIFSIGNALED(status) => Ok(Outcome::Killed(libc::WTERMSIG(status))),
        None => Ok(Outcome::Exited(libc::WEXITSTATUS(status))),
    }
}

/// `None` when the child ended without a report.
fn watch(pid: i32, report: &OwnedFd, patience: Duration) -> io::Result<Option<Outcome>> {
    // The end of the pipe would not do: children of other threads may hold its other end.
    // SAFETY: the call takes two integers; the child is not waited for yet, so the pid is its.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if pidfd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor and nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd as i32) };
    let deadline = Instant::now() + patience;
    loop {
        let mut waits = [report.as_raw_fd(), pidfd.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the array has two entries and outlives the call.
        let ready = unsafe { libc::poll(waits.as_mut_ptr(), 2, timeout) };
        if ready == 0 {
            return Ok(Some(Outcome::Blocked));
        }
        if ready == -1 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        let mut answer = [0u8; 8];
        // SAFETY: the buffer has eight bytes. The pipe does not block, and a write this small arrives whole.
        let length = unsafe { libc::read(report.as_raw_fd(), answer.as_mut_ptr().cast(), 8) };
        return Ok((length == 8).then(|| Outcome::Returned(i64::from_ne_bytes(answer))));
    }
}

/// Ends with a status that no zero-argument call gives, when the preparation fails.
const UNPREPARED: u64 = 99;

fn child(
    filter: Option<&[Instruction]>,
    entry: Entry,
    number: u64,
    arguments: [u64; 6],
    input: &OwnedFd,
    report: &OwnedFd,
) -> ! {
    let report = report.as_raw_fd() as u64;
    if prepare(filter, input).is_err() {
        end(UNPREPARED);
    }
    let answer = match entry {
        Entry::Native => native(number, arguments),
        Entry::Int80 => int80(number),
    };
    native(libc::SYS_write as u64, [report, (&raw const answer) as u64, 8, 0, 0, 0]);
    end(0)
}

fn prepare(filter: Option<&[Instruction]>, input: &OwnedFd) -> io::Result<()> {
    // SAFETY: both are descriptors of this process.
    check(unsafe { libc::dup2(input.as_raw_fd(), 0) }.into())?;
    let Some(filter) = filter else { return Ok(()) };
    const NOBODY: u64 = 65534;
    // SAFETY: the call reads no memory.
    if unsafe { libc::geteuid() } == 0 {
        // Raw calls: libc's own would ask the other threads to follow, and there are none in this process.
        check(native(libc::SYS_setgroups as u64, [0; 6]))?;
        check(native(libc::SYS_setresgid as u64, [NOBODY, NOBODY, NOBODY, 0, 0, 0]))?;
        check(native(libc::SYS_setresuid as u64, [NOBODY, NOBODY, NOBODY, 0, 0, 0]))?;
    }
    check(native(libc::SYS_prctl as u64, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0]))?;
    filter::install(filter)
}

fn check(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::from(io::ErrorKind::Other)) } else { Ok(()) }
}

fn end(status: u64) -> ! {
    loop {
        // `exit` and not `exit_group`: it is still there in the kernel's strict mode, which the call may have chosen.
        native(libc::SYS_exit as u64, [status, 0, 0, 0, 0, 0]);
    }
}

/// Only for the child: the call may do anything to its process, which no other code of ours runs in.
#[cfg(target_arch = "x86_64")]
fn native(number: u64, arguments: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: see above; the registers are those of the kernel's convention, and the two that it overwrites are
    // named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

#[cfg(target_arch = "aarch64")]
fn native(number: u64, arguments: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: only for the child, whose process runs no other code of ours; the registers are those of the kernel's
    // convention.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => answer,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
        );
    }
    answer
}

#[cfg(target_arch = "x86_64")]
fn int80(number: u64) -> i64 {
    let answer: i64;
    // SAFETY: as `native`; older kernels clear r8 to r11 on this way.
    unsafe {
        asm!(
            "int 0x80",
            inlateout("rax") number => answer,
            lateout("r8") _,
            lateout("r9") _,
            lateout("r10") _,
            lateout("r11") _,
        );
    }
    answer
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(number: u64) -> i64 {
    native(number, [0; 6])
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made them and nobody else owns them.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    Ok((own(ends[0]), own(ends[1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn ask(number: i64, arguments: [u64; 6]) -> Outcome {
        attempt(None, Entry::Native, number as u64, arguments, PATIENCE).unwrap()
    }

    #[test]
    fn reports_what_the_kernel_answers() {
        assert!(matches!(ask(libc::SYS_getpid, [0; 6]), Outcome::Returned(pid) if pid > 1));
        assert_eq!(ask(5000, [0; 6]), Outcome::Returned(-38));
        assert_eq!(ask(libc::SYS_exit_group, [7, 0, 0, 0, 0, 0]), Outcome::Exited(7));
        // A terminal question to standard input, which is a pipe.
        assert_eq!(ask(libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0]), Outcome::Returned(-25));
    }

    #[test]
    fn reports_a_call_that_waits() {
        let forever = [0; 6];
        let patience = Duration::from_millis(50);
        let outcome = attempt(None, Entry::Native, libc::SYS_ppoll as u64, forever, patience).unwrap();
        assert_eq!(outcome, Outcome::Blocked);
    }

    #[test]
    fn a_filter_is_in_force() {
        // Kills for one number, allows the rest.
        let step =
            |code, jump_true, jump_false, operand| Instruction { code, jump_true, jump_false, operand };
        let filter = [
            step(0x20, 0, 0, 0),
            step(0x15, 0, 1, libc::SYS_getppid as u32),
            step(0x06, 0, 0, 0x8000_0000),
            step(0x06, 0, 0, 0x7FFF_0000),
        ];
        let ask =
            |number: i64| attempt(Some(&filter), Entry::Native, number as u64, [0; 6], PATIENCE).unwrap();
        assert_eq!(ask(libc::SYS_getppid), Outcome::Killed(libc::SIGSYS));
        assert!(matches!(ask(libc::SYS_getuid), Outcome::Returned(uid) if uid != 0));
    }
}
