//! The ways into a jail that the launcher keeps: namespaces and the rest of what a newcomer has to pass.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use sandstorm_sys::process::NamespaceKind;

use super::capture::{Child, Entrance};
use super::introduction::Limit;
use super::networks::Namespace;
use crate::cgroup::Leaf;
use crate::error::JailError;

/// What a guest interpreter goes through to be in a jail as if its agent had started it.
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) entrance: Entrance,
    mounts: OwnedFd,
    ipc: OwnedFd,
    uts: OwnedFd,
    pids: OwnedFd,
    /// From PID 1: made after the launcher could look, and the rules that PID 1 is under itself.
    inside: Option<Inside>,
    pub(super) limits: Vec<Limit>,
}

/// What only PID 1 could hand out.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) cgroup: OwnedFd,
    pub(super) landlock: Option<OwnedFd>,
}

impl Rooms {
    /// Those of a child that was not released yet: it is a copy of this process, whose namespaces may be looked at.
    pub(super) fn of(
        child: Child<'_>,
        network: Option<&Rc<Namespace>>,
        limits: Vec<Limit>,
    ) -> io::Result<Self> {
        Ok(Self {
            entrance: Entrance::of(child, network)?,
            mounts: child.namespace(NamespaceKind::Mount)?,
            ipc: child.namespace(NamespaceKind::Ipc)?,
            uts: child.namespace(NamespaceKind::Uts)?,
            pids: child.namespace(NamespaceKind::Pid)?,
            inside: None,
            limits,
        })
    }

    pub(super) fn furnish(&mut self, inside: Inside) {
        self.inside = Some(inside);
    }

    /// Everything by the names that a zygote knows it under. The entrances to the groups are the caller's to hold.
    pub(super) fn named<'a>(
        &'a self,
        leaf: Option<&'a Leaf>,
        entrances: &'a [OwnedFd],
    ) -> Result<Vec<(&'static str, BorrowedFd<'a>)>, JailError> {
        let inside = self.inside.as_ref().ok_or_else(|| JailError::Closed("it has no way in".to_owned()))?;
        let mut named = vec![
            ("pid", self.pids.as_fd()),
            ("user", self.entrance.user()),
            ("mnt", self.mounts.as_fd()),
            ("ipc", self.ipc.as_fd()),
            ("uts", self.uts.as_fd()),
            ("net", self.entrance.network()),
            ("cgroup", inside.cgroup.as_fd()),
        ];
        named.extend(leaf.and_then(Leaf::birthplace).map(|dir| ("unified", dir)));
        named.extend(inside.landlock.iter().map(|rules| ("landlock", rules.as_fd())));
        named.extend(entrances.iter().map(|tasks| ("tasks", tasks.as_fd())));
        Ok(named)
    }
}
