//! Writable space on disk of jails that are gone.
//!
//! The process that closes the last descriptor of such a file system unmounts it: it writes what is left to write and gives
//! the blocks of the image back, which takes as long as the disk takes. The launcher must not wait. A child takes the
//! descriptor, waits until the launcher has closed its own copy, and ends.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use sandstorm_sys::fork::{Forked, exit_now};
use sandstorm_sys::process::{close_from, place_descriptor, take_descriptor};

use super::watch::{Token, Watched, Watcher};
use crate::descriptors::out_of_the_way;
use crate::image;
use crate::step::{Failed, Step};

/// How many at once: all of them write to the same disk.
const AT_ONCE: usize = 8;

/// When to try again where no child could be made.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the child has the file system, and the pipe that ends when the launcher has let go of it.
const MOUNT: i32 = 3;
const PIPE: i32 = 4;

#[derive(Debug, Default)]
pub(super) struct Unmounts {
    waiting: VecDeque<OwnedFd>,
    busy: Vec<(i32, Watched)>,
    again: Option<Instant>,
}

impl Unmounts {
    /// Takes a file system that no jail has any more.
    pub(super) fn add(&mut self, mount: OwnedFd) {
        self.waiting.push_back(mount);
    }

    /// Begins with as many as may be worked on.
    pub(super) fn begin(&mut self, watcher: &Watcher) {
        if self.again.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.again = None;
        while self.busy.len() < AT_ONCE
            && let Some(mount) = self.waiting.pop_front()
        {
            match hand_over(mount, watcher) {
                HandedOver::To(pid, pidfd) => self.busy.push((pid, pidfd)),
                HandedOver::ToAStray => {}
                HandedOver::No(mount) => {
                    // To close it here would be to wait for it.
                    self.waiting.push_front(mount);
                    self.again = Some(Instant::now() + AGAIN);
                    return;
                }
            }
        }
    }

    /// Collects the helpers that ended.
    pub(super) fn collect(&mut self) {
        self.busy
            .retain(|(_, pidfd)| matches!(sandstorm_sys::process::reap_descriptor(pidfd.as_fd()), Ok(None)));
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.busy.iter().map(|(pid, _)| *pid)
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.again
    }
}

/// A child that unmounts, told apart from one that could not be made.
enum HandedOver {
    To(i32, Watched),
    /// It works and ends by itself; only nothing tells when.
    ToAStray,
    No(OwnedFd),
}

/// Makes the child, and closes this process's descriptor of the mount before the pipe, whose end the child awaits: else the
/// launcher might be the last that has it.
fn hand_over(mount: OwnedFd, watcher: &Watcher) -> HandedOver {
    let Ok((theirs, ours)) = pipe_with(PipeFlags::CLOEXEC) else { return HandedOver::No(mount) };
    match sandstorm_sys::fork::fork() {
        Err(_) => HandedOver::No(mount),
        Ok(Forked::Child) => exit_now(if let_go(&mount, &theirs).is_ok() { 0 } else { 1 }),
        Ok(Forked::Parent { pid }) => {
            drop(mount);
            drop(ours);
            // The launcher alone collects it, so the number is its own until then.
            let watched = pidfd_of(pid).ok().and_then(|pidfd| watcher.readable(pidfd, Token::Unmount).ok());
            watched.map_or(HandedOver::ToAStray, |watched| HandedOver::To(pid, watched))
        }
    }
}

/// The life of the child. It keeps no other descriptor of the launcher open, and the kernel closes this one when it ends.
fn let_go(mount: &OwnedFd, pipe: &OwnedFd) -> Result<(), Failed> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("not dumpable")?;
    // Neither may be where the other belongs.
    let copies = (out_of_the_way(mount)?, out_of_the_way(pipe)?);
    place_descriptor(copies.0.as_fd(), MOUNT).step("descriptors")?;
    place_descriptor(copies.1.as_fd(), PIPE).step("descriptors")?;
    drop(copies);
    close_from(PIPE as u32 + 1).step("descriptors")?;
    let mount = take_descriptor(MOUNT).step("descriptors")?;
    let pipe = take_descriptor(PIPE).step("descriptors")?;
    image::forget(&mount);
    // Nothing is ever written to it.
    let _ = rustix::io::read(&pipe, &mut [0; 1]);
    Ok(())
}

fn pidfd_of(pid: i32) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::empty())
}
