//! How a task comes to run: what is heard of it before its program runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::child::Status;
use crate::frame::Decoder;
use crate::guest::{Handing, Heard};
use crate::protocol::PayloadWalls;

#[derive(Debug)]
pub(super) enum Beginning {
    /// A child says on this pipe what its walls are or which step failed. The pipe closes when the program is executed.
    Child(OwnedFd, Decoder),
    /// A guest was given a job; its walls were measured before.
    Guest(Handing, PayloadWalls),
    Over,
}

impl Beginning {
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Whether the side socket is still the job's. A guest reads whatever is there until it has said that it begins.
    pub(super) fn is_handing_over(&self) -> bool {
        matches!(self, Self::Guest(..))
    }

    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self {
            Self::Child(status, _) => Some((status.as_fd(), PollFlags::IN)),
            Self::Guest(handing, _) if handing.is_sending() => {
                Some((handing.side().as_fd(), PollFlags::IN | PollFlags::OUT))
            }
            Self::Guest(handing, _) => Some((handing.side().as_fd(), PollFlags::IN)),
            Self::Over => None,
        }
    }

    /// Listens. With the last word of a guest its socket comes back.
    pub(super) fn advance(&mut self) -> (Vec<Status>, Option<OwnedFd>) {
        match self {
            Self::Child(status, decoder) => {
                let mut buffer = [0; 1024];
                let over = match rustix::io::read(&*status, &mut buffer) {
                    Ok(n) if n > 0 => {
                        decoder.push(&buffer[..n]);
                        false
                    }
                    Err(Errno::AGAIN | Errno::INTR) => false,
                    Ok(_) | Err(_) => true,
                };
                let heard = std::iter::from_fn(|| decoder.take::<Status>().ok().flatten()).collect();
                if over {
                    *self = Self::Over;
                }
                (heard, None)
            }
            Self::Guest(handing, walls) => {
                let heard = match handing.advance() {
                    Heard::Nothing => return (Vec::new(), None),
                    Heard::Begun => Status::Walls(*walls),
                    Heard::Silenced => {
                        let walls = *walls;
                        *self = Self::Over;
                        return (vec![Status::Walls(walls)], None);
                    }
                    Heard::Failed(failure) => Status::Failure(failure),
                };
                let side = match std::mem::replace(self, Self::Over) {
                    Self::Guest(handing, _) if matches!(heard, Status::Walls(_)) => Some(handing.into_side()),
                    _ => None,
                };
                (vec![heard], side)
            }
            Self::Over => (Vec::new(), None),
        }
    }
}
