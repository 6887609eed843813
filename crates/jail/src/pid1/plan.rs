//! What the launcher tells a newborn PID 1 to build. To be told is to be released: the id maps are written by then.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::root::Taken;
use crate::spec::JailSpec;
use crate::step::{Failed, Step};

/// Comes with descriptors: the agent's control socket, its door, the entrances of the groups, and those of [`Trees`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan<'a> {
    pub(crate) spec: Cow<'a, JailSpec>,
    /// Ids of PID 1 inside.
    pub(crate) init_id: u32,
    pub(crate) drop_groups: bool,
    /// How many groups have to be joined by writing to a descriptor.
    pub(crate) entrances: usize,
    pub(crate) trees: TreeSource,
    /// It was born in a network with nothing but loopback, which is up, and over which it has no rights.
    pub(crate) network_is_ready: bool,
}

/// Who takes the trees of the host.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum TreeSource {
    /// The launcher did.
    Taken,
    /// PID 1 has to.
    ToTake { follow_links: bool },
    /// The launcher has a whole root with all of them but those below writable places.
    Prepared,
}

/// Where the trees come from, with what was taken already.
#[derive(Debug)]
pub(crate) enum Trees<'a> {
    Taken(Taken<'a>),
    ToTake { follow_links: bool },
    Prepared { root: OwnedFd, later: Taken<'a> },
}

impl<'a> Trees<'a> {
    pub(crate) fn source(&self) -> TreeSource {
        match *self {
            Self::Taken(_) => TreeSource::Taken,
            Self::ToTake { follow_links } => TreeSource::ToTake { follow_links },
            Self::Prepared { .. } => TreeSource::Prepared,
        }
    }

    /// In the order in which [`Trees::received`] takes them.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Taken(trees) => trees.descriptors().collect(),
            Self::ToTake { .. } => Vec::new(),
            Self::Prepared { root, later } => [root.as_fd()].into_iter().chain(later.descriptors()).collect(),
        }
    }

    /// What the launcher took, by its descriptors.
    fn received(source: TreeSource, spec: &'a JailSpec, mut given: Given) -> Result<Self, Failed> {
        let trees = match source {
            TreeSource::Taken => Self::Taken(Taken::received(&spec.root, given.rest())?),
            TreeSource::ToTake { follow_links } => Self::ToTake { follow_links },
            TreeSource::Prepared => {
                let root = given.next()?;
                Self::Prepared { root, later: Taken::received_later(&spec.root, given.rest())? }
            }
        };
        Ok(trees)
    }
}

/// The descriptors of a plan by what they are.
#[derive(Debug)]
pub(super) struct Handed<'a> {
    pub(super) control: OwnedFd,
    pub(super) door: OwnedFd,
    pub(super) entrances: Vec<OwnedFd>,
    pub(super) trees: Trees<'a>,
}

impl Plan<'_> {
    pub(super) fn sort(&self, descriptors: Vec<OwnedFd>) -> Result<Handed<'_>, Failed> {
        let mut given = Given(descriptors.into_iter());
        let (control, door) = (given.next()?, given.next()?);
        let entrances = (0..self.entrances).map(|_| given.next()).collect::<Result<_, _>>()?;
        Ok(Handed { control, door, entrances, trees: Trees::received(self.trees, &self.spec, given)? })
    }
}

struct Given(std::vec::IntoIter<OwnedFd>);

impl Given {
    fn next(&mut self) -> Result<OwnedFd, Failed> {
        self.0.next().ok_or(Errno::BADMSG).step("plan")
    }

    fn rest(self) -> Vec<OwnedFd> {
        self.0.collect()
    }
}
