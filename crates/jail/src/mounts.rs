//! Detached mounts: made or cloned out of sight, dressed, then attached by descriptor. No step follows a path that a
//! sandbox could have prepared.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

/// A file system of its own that shows the directory at `place`, read-only and without what is mounted below it.
///
/// Whoever sees a directory through it has other inodes than everybody else: watches and locks that are put on them are
/// nobody else's. What files hold is shared as before, the page cache included. `empty`: an empty directory, since the
/// kernel wants two layers. Both have to be attached in this process's mount namespace, unless the kernel is newer than 6.14.
pub(crate) fn own_view(
    place: BorrowedFd<'_>,
    empty: BorrowedFd<'_>,
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let lower = format!("/proc/self/fd/{}:/proc/self/fd/{}", place.as_raw_fd(), empty.as_raw_fd());
    file_system("overlay", &[("lowerdir", &lower)], attributes | MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// Where something is on the host. Without `follow_links` no part of the path may be a link: somebody with fewer rights than
/// this process may have put one there.
pub(crate) fn open_place(path: &Path, follow_links: bool) -> Result<OwnedFd, Errno> {
    use rustix::fs::{Mode, OFlags, ResolveFlags};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if follow_links {
        return rustix::fs::open(path, flags, Mode::empty());
    }
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)
}

/// A detached copy of what is at `path`, with everything mounted below it.
pub(crate) fn clone_tree(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(dir, path, flags)
}

/// The same of what was opened.
pub(crate) fn clone_place(place: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(place, "", flags)
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

/// Attaches a detached tree at a path relative to another one.
pub(crate) fn attach_to(root: &OwnedFd, mount: &OwnedFd, target: &Path) -> Result<(), Errno> {
    rustix::mount::move_mount(mount, "", root, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// What every tree of the host gets. Private, because one that is cloned in the host's own mount namespace would go on
/// hearing of what is mounted there.
pub(crate) fn host_tree_attributes() -> MountAttributes {
    MountAttributes::READ_ONLY | MountAttributes::NO_SUID | MountAttributes::NO_DEV | MountAttributes::PRIVATE
}

/// Where a line of `mountinfo` has its mount: the fifth word, in which bytes that would end it are written in octal.
pub(crate) fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let word = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, others)) = rest.split_first() {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match others.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                path.push(byte);
                rest = &others[3..];
            }
            None => {
                path.push(*first);
                rest = others;
            }
        }
    }
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_with_their_spaces() {
        let line = b"36 35 98:0 /mnt1 /mnt/a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line).unwrap(), Path::new("/mnt/a b\\c"));
        assert_eq!(mount_point(b""), None);
    }
}
