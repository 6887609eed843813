//! Trees of the host on their way into a jail.
//!
//! An inode that two sandboxes have in common is a channel between them: each sees what the other opens (inotify) and which
//! locks it holds (`flock`, `fcntl`), and so does the host. So a jail gets inodes of its own wherever that can be had:
//! directories are shown through a read-only overlay that is mounted for this one jail, and single files are copied into its
//! root. What has to be shown as it is, is named in the jail's report.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags};

use super::{Whole, is_below_writable, make_directory, make_parents, relative};
use crate::mounts::{attach, clone_place, host_tree_attributes, open_place, own_view, tighten};
use crate::spec::{RootSpec, Tree};
use crate::step::{Failed, Step};

/// A single file up to this is copied; a larger one is shown through a view of its directory.
const MOST_COPIED: u64 = 1 << 20;

/// Trees of the host, taken and tightened but not attached yet.
#[derive(Debug)]
pub(crate) struct Taken<'a>(pub(super) Vec<Part<'a>>);

#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) tree: &'a Tree,
    pub(super) mount: OwnedFd,
    /// Its inodes are the jail's own.
    own: bool,
}

/// Where an empty directory comes from, for the views.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Empty<'a> {
    /// One that is attached in this process's mount namespace.
    At(BorrowedFd<'a>),
    /// It is mounted over a place that this process does not need any more, in a mount namespace that it leaves.
    Mounted,
    Missing,
}

impl<'a> Taken<'a> {
    /// In the order in which they are [received](Self::received).
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|part| part.mount.as_fd())
    }

    /// Which of them have inodes of their own, in the same order.
    pub(crate) fn own(&self) -> Vec<bool> {
        self.0.iter().map(|part| part.own).collect()
    }

    /// What [`take`] took in another process.
    pub(crate) fn received(spec: &'a RootSpec, own: &[bool], mounts: Vec<OwnedFd>) -> Result<Self, Failed> {
        Self::paired(all_trees(spec).collect(), own, mounts)
    }

    /// What [`take_later`] took in another process.
    pub(crate) fn received_later(
        spec: &'a RootSpec,
        own: &[bool],
        mounts: Vec<OwnedFd>,
    ) -> Result<Self, Failed> {
        Self::paired(all_trees(spec).filter(|tree| is_below_writable(&tree.target)).collect(), own, mounts)
    }

    fn paired(trees: Vec<&'a Tree>, own: &[bool], mounts: Vec<OwnedFd>) -> Result<Self, Failed> {
        if trees.len() != mounts.len() || trees.len() != own.len() {
            return Err(Failed { step: "trees".to_owned(), errno: Errno::BADMSG });
        }
        let parts = trees.into_iter().zip(mounts).zip(own);
        Ok(Self(parts.map(|((tree, mount), own)| Part { tree, mount, own: *own }).collect()))
    }
}

fn all_trees(spec: &RootSpec) -> impl Iterator<Item = &Tree> {
    spec.trees.iter().chain(&spec.exposed)
}

/// Takes the trees of the host that the jail shows. To be done with the launcher's rights, since some of them lie where
/// nobody else can look: by a launcher that is root itself, whose rights end at the border of a user namespace, and by
/// PID 1 while it still is the launcher's user where only that one may mount. `follow_links`: whoever chose the trees has
/// the launcher's rights. `whole`: trees that have no view.
pub(crate) fn take<'a>(
    spec: &'a RootSpec,
    follow_links: bool,
    whole: &Whole,
    empty: Empty<'_>,
) -> Result<Taken<'a>, Failed> {
    take_those(spec, follow_links, whole, empty, |_| true)
}

/// Of them those below writable places, which no root that is prepared can have.
pub(crate) fn take_later<'a>(
    spec: &'a RootSpec,
    follow_links: bool,
    whole: &Whole,
    empty: Empty<'_>,
) -> Result<Taken<'a>, Failed> {
    take_those(spec, follow_links, whole, empty, |tree| is_below_writable(&tree.target))
}

fn take_those<'a>(
    spec: &'a RootSpec,
    follow_links: bool,
    whole: &Whole,
    empty: Empty<'_>,
    wanted: impl Fn(&Tree) -> bool,
) -> Result<Taken<'a>, Failed> {
    let places = open_places(spec, follow_links, wanted)?;
    // Only now: the empty directory may cover some of them.
    let mounted = match empty {
        Empty::Mounted => super::mount_empty().ok(),
        Empty::At(_) | Empty::Missing => None,
    };
    let empty = match &empty {
        Empty::At(empty) => Some(*empty),
        Empty::Mounted | Empty::Missing => mounted.as_ref().map(AsFd::as_fd),
    };
    let parts = places.into_iter().map(|(tree, place)| {
        let empty = empty.filter(|_| !whole.has(tree));
        let (mount, own) = show(&place, empty).step_with(|| name(tree))?;
        Ok(Part { tree, mount, own })
    });
    parts.collect::<Result<_, _>>().map(Taken)
}

/// Where they are. Held open, each stays what it is.
pub(super) fn open_places(
    spec: &RootSpec,
    follow_links: bool,
    wanted: impl Fn(&Tree) -> bool,
) -> Result<Vec<(&Tree, OwnedFd)>, Failed> {
    let wanted = all_trees(spec).filter(|tree| wanted(tree));
    wanted.map(|tree| Ok((tree, open_place(&tree.source, follow_links).step_with(|| name(tree))?))).collect()
}

fn name(tree: &Tree) -> String {
    format!("mount {}", tree.source.display())
}

/// A detached mount of it, and whether its inodes are the jail's own. Without an empty directory it has no view.
pub(super) fn show(place: &OwnedFd, empty: Option<BorrowedFd<'_>>) -> Result<(OwnedFd, bool), Errno> {
    let view = empty.ok_or(Errno::NOENT).and_then(|empty| view(place, empty));
    let (mount, own) = match view {
        Ok(view) => (view, true),
        Err(_) => (clone_place(place)?, false),
    };
    tighten(&mount, host_tree_attributes())?;
    Ok((mount, own))
}

fn view(place: &OwnedFd, empty: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    if is_judged_elsewhere(rustix::fs::fstatfs(place)?.f_type as u64) {
        return Err(Errno::REMOTE);
    }
    if kind(place)? == FileType::Directory {
        return own_view(place.as_fd(), empty, as_there(place)?);
    }
    // A smaller one is copied where it is going to be.
    if rustix::fs::fstat(place)?.st_size as u64 <= MOST_COPIED {
        return Err(Errno::NOTDIR);
    }
    let real = fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(errno)?;
    let (Some(folder), Some(file)) = (real.parent(), real.file_name()) else {
        return Err(Errno::NOTDIR);
    };
    let folder = open_place(folder, false)?;
    // A file that is mounted itself is not in its folder: that has what the mount covers.
    if mount_of(&folder)? != mount_of(place)? {
        return Err(Errno::XDEV);
    }
    let whole = own_view(folder.as_fd(), empty, as_there(place)?)?;
    rustix::mount::open_tree(&whole, file, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// Whether somebody else than the kernel decides who may read what is on a file system: a server, or a program. A view reads
/// with the rights of the process that made it, which is not the one that has to be judged.
fn is_judged_elsewhere(kind: u64) -> bool {
    const FUSE: u64 = 0x6573_5546;
    const NFS: u64 = 0x6969;
    const SMB: [u64; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];
    const V9FS: u64 = 0x0102_1997;
    const AFS: u64 = 0x5346_414f;
    let kind = kind & u64::from(u32::MAX);
    [FUSE, NFS, V9FS, AFS].contains(&kind) || SMB.contains(&kind)
}

/// The number of the mount that something is on.
fn mount_of(place: &OwnedFd) -> Result<u64, Errno> {
    let found = rustix::fs::statx(place, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    // `STATX_MNT_ID`: older kernels than 5.8 do not tell.
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 { Err(Errno::OPNOTSUPP) } else { Ok(found.stx_mnt_id) }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// What the mount that something is on forbids, so that a view forbids it, too.
fn as_there(place: &OwnedFd) -> Result<MountAttrFlags, Errno> {
    let there = rustix::fs::fstatvfs(place)?.f_flag;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if there.contains(StatVfsMountFlags::NOEXEC) {
        attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
    }
    Ok(attributes)
}

fn kind(place: impl AsFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode))
}

/// Puts a tree where it belongs below the current directory. `false`: its inodes are not the jail's own.
pub(super) fn place(Part { tree, mount, own }: &Part<'_>) -> Result<bool, Failed> {
    let target = relative(&tree.target);
    let step = || format!("place for {}", tree.target.display());
    let kind = kind(mount).step_with(step)?;
    let mut unseen = false;
    make_parents(&tree.target).step_with(step)?;
    if kind == FileType::Directory {
        make_directory(target).step_with(step)?;
    } else if fs::symlink_metadata(target).is_err() {
        // What is there already is below another tree, which shows it.
        if !own && kind == FileType::RegularFile {
            match copy(mount, target).step_with(step)? {
                Copied::Whole => return Ok(true),
                // To nobody inside either, so that nobody there can watch or lock it.
                Copied::Closed => unseen = true,
                Copied::TooLarge => {}
            }
        }
        fs::write(target, b"").step_with(step)?;
    }
    attach(mount, target).step_with(|| format!("attach {}", tree.target.display()))?;
    Ok(*own || unseen)
}

/// What came of copying a file.
pub(super) enum Copied {
    Whole,
    TooLarge,
    /// It is closed to this process.
    Closed,
}

/// Copies a small file.
pub(super) fn copy(file: &OwnedFd, target: &Path) -> std::io::Result<Copied> {
    let opened = match fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(Copied::Closed),
        Err(e) => return Err(e),
    };
    let mode = opened.metadata()?.permissions().mode() & 0o777;
    let mut content = Vec::new();
    opened.take(MOST_COPIED + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_COPIED {
        return Ok(Copied::TooLarge);
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?.write_all(&content)?;
    fs::set_permissions(target, fs::Permissions::from_mode(mode))?;
    Ok(Copied::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_judge_has_no_view() {
        for kind in [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997] {
            assert!(is_judged_elsewhere(kind), "{kind:x}");
        }
        // As a 32-bit number that is negative arrives.
        assert!(is_judged_elsewhere(0xffff_ffff_ff53_4d42));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert!(!is_judged_elsewhere(local), "{local:x}");
        }
    }
}
