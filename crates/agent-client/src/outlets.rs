//! The ends of a guest's pipes, which its agent may lend to the host.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;

/// The ends from which the output and the errors of a guest are read.
#[derive(Debug)]
pub struct Outlets([OwnedFd; 2]);

impl Outlets {
    /// `None`: they are something else.
    pub fn checked(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let outlets: [OwnedFd; 2] = descriptors.try_into().ok()?;
        let is_pipe = |fd: &OwnedFd| {
            rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
        };
        outlets.iter().all(is_pipe).then_some(Self(outlets))
    }

    /// The output's and the errors'.
    pub fn ends(&self) -> &[OwnedFd; 2] {
        &self.0
    }
}
