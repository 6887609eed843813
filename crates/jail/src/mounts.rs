//! Detached mounts: made or cloned out of sight, dressed, then attached by descriptor. No step follows a path that a
//! sandbox could have prepared.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};
use sandstorm_sys::mount::{MountAttributes, set_attributes};

/// A new file system of the given kind, not attached anywhere.
pub(crate) fn file_system(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A detached copy of what is at `path`, with everything mounted below it.
pub(crate) fn clone_tree(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(dir, path, flags)
}

/// The same of a path in which no part is a link: somebody with fewer rights than this process may have put one there.
pub(crate) fn clone_tree_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    use rustix::fs::{Mode, OFlags, ResolveFlags};
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let place = rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(&place, "", flags)
}

/// Tightens a detached tree. Attributes are only ever added.
pub(crate) fn tighten(mount: &OwnedFd, attributes: MountAttributes) -> Result<(), Errno> {
    set_attributes(mount.as_fd(), c"", attributes, true)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

/// Tightens the mount that is seen at a path relative to the current directory.
pub(crate) fn tighten_at(place: &Path, attributes: MountAttributes) -> Result<(), Errno> {
    let path = CString::new(place.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    set_attributes(CWD, &path, attributes, true).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

/// Attaches a detached tree at a path relative to the current directory.
pub(crate) fn attach(mount: &OwnedFd, target: &Path) -> Result<(), Errno> {
    rustix::mount::move_mount(mount, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// What every tree of the host gets. Private, because one that is cloned in the host's own mount namespace would go on
/// hearing of what is mounted there.
pub(crate) fn host_tree_attributes() -> MountAttributes {
    MountAttributes::READ_ONLY | MountAttributes::NO_SUID | MountAttributes::NO_DEV | MountAttributes::PRIVATE
}
