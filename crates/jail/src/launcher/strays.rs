//! Children of the launcher that nobody knows: a zygote that ended while it forked took the number of its fork with it.
//! A jail could not end before such a child is collected. Those that did what they were for are collected here, too.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::watch::{Token, Watched, Watcher};

#[derive(Debug, Default)]
pub(super) struct Strays(Vec<Watched>);

impl Strays {
    /// Ends every child that is not among the known ones.
    pub(super) fn find(&mut self, watcher: &Watcher, is_known: impl Fn(i32) -> bool) {
        let own = std::process::id();
        let Ok(children) = std::fs::read_to_string(format!("/proc/self/task/{own}/children")) else { return };
        let strays = children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        for pid in strays.filter(|pid| !is_known(*pid)).filter_map(Pid::from_raw) {
            // Nobody but this process collects it, so the number is its own.
            let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            if let Ok(watched) = watcher.readable(pidfd, Token::Stray) {
                self.0.push(watched);
            }
        }
    }

    /// Takes a child that is about to end, and that nobody has to hear of any more.
    pub(super) fn add(&mut self, watcher: &Watcher, child: OwnedFd) {
        if let Ok(watched) = watcher.readable(child, Token::Stray) {
            self.0.push(watched);
        }
    }

    /// Collects those that ended.
    pub(super) fn collect(&mut self) {
        self.0.retain(|stray| matches!(sandstorm_sys::process::reap_descriptor(stray.as_fd()), Ok(None)));
    }
}
