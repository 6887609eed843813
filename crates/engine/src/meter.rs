//! The counters of a jail, as this process can read them by itself.

use std::os::fd::{AsFd, OwnedFd};

use sandstorm_jail::cgroup::{Counters, Extent, Meter};

/// Where the counters of one jail are, with a descriptor of its scratch file system. To hold it keeps that file system, and
/// nothing else of the jail.
#[derive(Debug)]
pub(crate) struct JailMeter {
    groups: Meter,
    scratch: OwnedFd,
}

impl JailMeter {
    /// Takes what the launcher gave with a jail: the last of the descriptors is the scratch file system's.
    pub(crate) fn take(groups: Option<Meter>, descriptors: &mut Vec<OwnedFd>) -> Option<Self> {
        let groups = groups?;
        Some(Self { groups, scratch: descriptors.pop()? })
    }

    /// `None`: the launcher has to be asked.
    pub(crate) fn read(&self, extent: Extent) -> Option<Counters> {
        self.groups.read(self.scratch.as_fd(), extent)
    }
}
