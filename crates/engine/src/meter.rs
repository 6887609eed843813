//! The counters of a jail, as this process can read them by itself.

use std::os::fd::{AsFd, OwnedFd};

use sandstorm_jail::cgroup::{Counters, Extent, Gauges, Meter};

/// Where the counters of one jail are, with a descriptor of its scratch file system. To hold it keeps that file system, and
/// nothing else of the jail.
#[derive(Debug)]
pub(crate) struct JailMeter {
    groups: Meter,
    /// The files, where they were opened ahead.
    opened: Option<Gauges>,
    scratch: OwnedFd,
}

impl JailMeter {
    /// Takes what the launcher gave with a jail: the last of the descriptors is the scratch file system's.
    pub(crate) fn take(groups: Option<Meter>, descriptors: &mut Vec<OwnedFd>) -> Option<Self> {
        let groups = groups?;
        Some(Self { groups, opened: None, scratch: descriptors.pop()? })
    }

    /// Opens what tells how a program ended, before there is one that anybody waits for.
    pub(crate) fn open(&mut self) {
        self.opened = Some(self.groups.open());
    }

    /// Lets go of it: of a jail that lives long nobody holds more than has to be.
    pub(crate) fn close(&mut self) {
        self.opened = None;
    }

    /// `None`: the launcher has to be asked.
    pub(crate) fn read(&self, extent: Extent) -> Option<Counters> {
        match &self.opened {
            Some(opened) => self.groups.read(opened, self.scratch.as_fd(), extent),
            None => self.groups.read(&Gauges::default(), self.scratch.as_fd(), extent),
        }
    }
}
