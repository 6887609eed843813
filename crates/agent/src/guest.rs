//! Guest interpreters: warm ones that the launcher put into the sandbox and that wait there for a program.
//!
//! A guest is behind every wall already when it greets; it made its own three pipes as the payload's user and sends the
//! other ends. It is in the sandbox, so nothing that it says is believed: what it sends is bounded, its descriptors have
//! to be pipes, and the end of it is told by the launcher alone.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use sandstorm_sys::process::Reaped;

use crate::protocol::{FromAgent, PayloadWalls, StartFailure};

mod job;
mod word;

pub use job::{Giver, job};
pub(crate) use job::{Handing, Heard};
pub use word::Word;
pub(crate) use word::last_word;

/// Longest first word of a guest.
const GREETING: usize = 512;

/// Longest name of a step that is passed on.
const STEP: usize = 100;

/// The guests that nobody uses yet.
#[derive(Debug, Default)]
pub(crate) struct Guests(BTreeMap<u32, Present>);

#[derive(Debug)]
struct Present {
    side: OwnedFd,
    warm: Option<Warm>,
    /// How it ended. It may have had a program from the host, of which the host is about to tell.
    ended: Option<Reaped>,
}

/// What a guest greeted with.
#[derive(Debug)]
struct Warm {
    pid: i32,
    walls: PayloadWalls,
    pipes: Pipes,
}

/// The agent's ends of a guest's standard streams.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) input: OwnedFd,
    pub(crate) output: OwnedFd,
    pub(crate) error: OwnedFd,
}

/// A guest that a task takes.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) number: u32,
    /// Its pid in here. It leads its own session and process group.
    pub(crate) pid: i32,
    pub(crate) walls: PayloadWalls,
    pub(crate) pipes: Pipes,
    pub(crate) side: OwnedFd,
    /// It is over already.
    pub(crate) ended: Option<Reaped>,
}

impl Guests {
    /// A guest came through the door.
    pub(crate) fn welcome(&mut self, number: u32, side: OwnedFd) -> Option<FromAgent> {
        match rustix::io::ioctl_fionbio(&side, true) {
            Ok(()) => {
                self.0.insert(number, Present { side, warm: None, ended: None });
                // Often it has greeted already.
                self.look(number)
            }
            Err(errno) => Some(failed(number, "side socket", errno)),
        }
    }

    /// What to poll: those that have yet to greet. What others say is for whoever gave them a program, which may be the host;
    /// their end is told by the launcher.
    pub(crate) fn interests(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.0
            .iter()
            .filter(|(_, guest)| guest.warm.is_none())
            .map(|(number, guest)| (*number, guest.side.as_fd()))
    }

    /// The ends from which the output and the errors of one that waits are read.
    pub(crate) fn outlets(&self, number: u32) -> Option<[BorrowedFd<'_>; 2]> {
        let pipes = &self.0.get(&number)?.warm.as_ref()?.pipes;
        Some([pipes.output.as_fd(), pipes.error.as_fd()])
    }

    /// Hears the greeting of a guest. What comes back is for the host.
    pub(crate) fn look(&mut self, number: u32) -> Option<FromAgent> {
        let guest = self.0.get_mut(&number).filter(|guest| guest.warm.is_none())?;
        match greeting(guest.side.as_fd()) {
            Ok(Some(warm)) => {
                let walls = warm.walls;
                guest.warm = Some(warm);
                Some(FromAgent::GuestReady { guest: number, walls })
            }
            Ok(None) => None,
            Err(failure) => {
                self.0.remove(&number);
                Some(FromAgent::GuestFailed { guest: number, failure })
            }
        }
    }

    /// The launcher says that a guest is gone. Nothing to say if it was somebody's.
    pub(crate) fn ended(&mut self, number: u32, end: Reaped) -> Option<FromAgent> {
        // Its last words are better than ours.
        if let Some(failed @ FromAgent::GuestFailed { .. }) = self.look(number) {
            return Some(failed);
        }
        let guest = self.0.get_mut(&number)?;
        guest.ended = Some(end);
        if guest.warm.is_none() {
            self.0.remove(&number);
        }
        Some(failed(number, "end", Errno::CHILD))
    }

    /// Takes a guest that waits, or one that `runs` and may have ended since.
    pub(crate) fn take(&mut self, number: u32, runs: bool) -> Option<Taken> {
        let fits = |guest: &Present| guest.warm.is_some() && (runs || guest.ended.is_none());
        if !self.0.get(&number).is_some_and(fits) {
            return None;
        }
        let Present { side, warm, ended, .. } = self.0.remove(&number)?;
        let Warm { pid, walls, pipes } = warm?;
        Some(Taken { number, pid, walls, pipes, side, ended })
    }

    /// Ends one that waits: it sees its side socket close.
    pub(crate) fn dismiss(&mut self, number: u32) {
        self.0.remove(&number);
    }

    pub(crate) fn dismiss_all(&mut self) {
        self.0.clear();
    }
}

/// What is said of a program whose guest is gone with it.
pub(crate) fn lost() -> StartFailure {
    failure("guest", Errno::PIPE.raw_os_error())
}

fn failed(guest: u32, step: &str, errno: Errno) -> FromAgent {
    FromAgent::GuestFailed { guest, failure: failure(step, errno.raw_os_error()) }
}

fn failure(step: &str, errno: i32) -> StartFailure {
    StartFailure { step: step.chars().take(STEP).collect(), errno }
}

/// Reads a guest's first words. `None`: it has not spoken yet.
fn greeting(side: BorrowedFd<'_>) -> Result<Option<Warm>, StartFailure> {
    let broken = |errno: Errno| failure("greeting", errno.raw_os_error());
    let mut bytes = [0; GREETING];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match rustix::net::recvmsg(side, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
    {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(e) => return Err(broken(e)),
    };
    let mut descriptors = Vec::with_capacity(3);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    let said = &bytes[..received.bytes];
    match said.split_first_chunk::<4>() {
        Some((b"WARM", rest)) => {
            let (pid, walls) = measured(rest).ok_or_else(|| broken(Errno::PROTO))?;
            let pipes: [OwnedFd; 3] = descriptors.try_into().map_err(|_| broken(Errno::PROTO))?;
            for pipe in &pipes {
                let stat = rustix::fs::fstat(pipe).map_err(broken)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
                    return Err(broken(Errno::PROTO));
                }
                rustix::io::ioctl_fionbio(pipe, true).map_err(broken)?;
            }
            let [input, output, error] = pipes;
            Ok(Some(Warm { pid, walls, pipes: Pipes { input, output, error } }))
        }
        Some((b"FAIL", rest)) => {
            let (errno, step) = rest.split_first_chunk::<4>().ok_or_else(|| broken(Errno::PROTO))?;
            Err(failure(&String::from_utf8_lossy(step), i32::from_le_bytes(*errno)))
        }
        _ => Err(broken(if said.is_empty() { Errno::PIPE } else { Errno::PROTO })),
    }
}

/// What a guest measured of itself: pid, uid, gid, capabilities, no_new_privs, seccomp mode.
fn measured(bytes: &[u8]) -> Option<(i32, PayloadWalls)> {
    let (pid, rest) = bytes.split_first_chunk()?;
    let (uid, rest) = rest.split_first_chunk()?;
    let (gid, rest) = rest.split_first_chunk()?;
    let (capabilities, rest) = rest.split_first_chunk()?;
    let ([no_new_privs], rest) = rest.split_first_chunk()?;
    let (seccomp_mode, rest) = rest.split_first_chunk()?;
    // 0 and 1 would be this process's own group and everything.
    let pid = i32::try_from(u32::from_le_bytes(*pid)).ok().filter(|pid| *pid > 1)?;
    let walls = PayloadWalls {
        uid: u32::from_le_bytes(*uid),
        gid: u32::from_le_bytes(*gid),
        capabilities: u64::from_le_bytes(*capabilities),
        no_new_privs: *no_new_privs == 1,
        seccomp_mode: u32::from_le_bytes(*seccomp_mode),
    };
    rest.is_empty().then_some((pid, walls))
}

#[cfg(test)]
mod tests;
