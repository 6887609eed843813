//! What the launcher tells a newborn PID 1 to build. To be told is to be released: the id maps are written by then.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::root::{Taken, View, Whole};
use crate::spec::JailSpec;
use crate::step::{Failed, Step};

/// Comes with descriptors: the agent's control socket, its door, the entrances of the groups, the writable file system if it
/// was made already, and those of [`Trees`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan<'a> {
    pub(crate) spec: Cow<'a, JailSpec>,
    /// Ids of PID 1 inside.
    pub(crate) init_id: u32,
    pub(crate) drop_groups: bool,
    /// How many groups have to be joined by writing to a descriptor.
    pub(crate) entrances: usize,
    /// The launcher made the writable file system.
    pub(crate) has_scratch: bool,
    pub(crate) trees: TreeSource,
    /// It was born in a network with nothing but loopback, which is up, and over which it has no rights.
    pub(crate) network_is_ready: bool,
}

/// Who takes the trees of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum TreeSource {
    /// The launcher did. `own`: for each, whether its inodes are the jail's own. `devices`: a whole `/dev` came first.
    Taken { own: Vec<bool>, devices: bool },
    /// PID 1 has to.
    ToTake { follow_links: bool, whole: Whole },
    /// The launcher has a whole root with all of them but those below writable places. `shared`: what of it has inodes that
    /// others have as well.
    Prepared { own: Vec<bool>, shared: Vec<String> },
}

/// Where the trees come from, with what was taken already.
#[derive(Debug)]
pub(crate) enum Trees<'a> {
    Taken { trees: Taken<'a>, devices: Option<OwnedFd> },
    ToTake { follow_links: bool, whole: Whole },
    Prepared { root: View, later: Taken<'a> },
}

impl<'a> Trees<'a> {
    pub(crate) fn source(&self) -> TreeSource {
        match self {
            Self::Taken { trees, devices } => {
                TreeSource::Taken { own: trees.own(), devices: devices.is_some() }
            }
            Self::ToTake { follow_links, whole } => {
                TreeSource::ToTake { follow_links: *follow_links, whole: whole.clone() }
            }
            Self::Prepared { root, later } => {
                TreeSource::Prepared { own: later.own(), shared: root.shared.clone() }
            }
        }
    }

    /// In the order in which [`Trees::received`] takes them.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Taken { trees, devices } => {
                devices.iter().map(AsFd::as_fd).chain(trees.descriptors()).collect()
            }
            Self::ToTake { .. } => Vec::new(),
            Self::Prepared { root, later } => {
                [root.mount.as_fd()].into_iter().chain(later.descriptors()).collect()
            }
        }
    }

    /// What the launcher took, by its descriptors.
    fn received(source: &TreeSource, spec: &'a JailSpec, mut given: Given) -> Result<Self, Failed> {
        let trees = match source {
            TreeSource::Taken { own, devices } => {
                let devices = if *devices { Some(given.next()?) } else { None };
                Self::Taken { trees: Taken::received(&spec.root, own, given.rest())?, devices }
            }
            TreeSource::ToTake { follow_links, whole } => {
                Self::ToTake { follow_links: *follow_links, whole: whole.clone() }
            }
            TreeSource::Prepared { own, shared } => {
                let root = View { mount: given.next()?, shared: shared.clone() };
                Self::Prepared { root, later: Taken::received_later(&spec.root, own, given.rest())? }
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
    pub(super) scratch: Option<OwnedFd>,
    pub(super) trees: Trees<'a>,
}

impl Plan<'_> {
    pub(super) fn sort(&self, descriptors: Vec<OwnedFd>) -> Result<Handed<'_>, Failed> {
        let mut given = Given(descriptors.into_iter());
        let (control, door) = (given.next()?, given.next()?);
        let entrances = (0..self.entrances).map(|_| given.next()).collect::<Result<_, _>>()?;
        let scratch = if self.has_scratch { Some(given.next()?) } else { None };
        let trees = Trees::received(&self.trees, &self.spec, given)?;
        Ok(Handed { control, door, entrances, scratch, trees })
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
