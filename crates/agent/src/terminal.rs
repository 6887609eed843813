//! Pseudo-terminals, from the sandbox's own devpts.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Uid;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::protocol::TerminalSize;

/// Both ends of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The agent's end: what is typed goes in, what is shown comes out.
    pub(crate) controller: OwnedFd,
    /// The program's end.
    pub(crate) peer: OwnedFd,
}

/// Opens a terminal that belongs to `owner`, so that the program may open `/dev/tty` and `/dev/pts/N` again.
pub(crate) fn open(owner: u32, size: TerminalSize) -> Result<Terminal, Errno> {
    let root = rustix::process::geteuid();
    let owner = Uid::from_raw(owner);
    // devpts gives a terminal to the effective user that opens it; the agent may not change owners afterwards.
    set_effective(owner)?;
    let opened = open_pair();
    set_effective(root)?;
    let terminal = opened?;
    resize(&terminal.controller, size)?;
    Ok(terminal)
}

fn open_pair() -> Result<Terminal, Errno> {
    let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&controller)?;
    let name = rustix::pty::ptsname(&controller, Vec::new())?;
    let peer = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Terminal { controller, peer })
}

fn set_effective(uid: Uid) -> Result<(), Errno> {
    if rustix::process::geteuid() == uid {
        return Ok(());
    }
    let keep = rustix::process::getuid();
    rustix::thread::set_thread_res_uid(keep, uid, keep)
}

pub(crate) fn resize(controller: &OwnedFd, size: TerminalSize) -> Result<(), Errno> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(controller, size)
}

/// Makes the terminal the controlling one of this session, so that Ctrl-C reaches its foreground group.
pub(crate) fn make_controlling(peer: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::process::ioctl_tiocsctty(peer)
}
