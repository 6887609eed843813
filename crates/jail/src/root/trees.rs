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

use rustix::fs::{FileType, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags};

use super::{is_below_writable, make_directory, make_parents, relative};
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
/// the launcher's rights.
pub(crate) fn take<'a>(
    spec: &'a RootSpec,
    follow_links: bool,
    empty: Empty<'_>,
) -> Result<Taken<'a>, Failed> {
    take_those(spec, follow_links, empty, |_| true)
}

/// Of them those below writable places, which no root that is prepared can have.
pub(crate) fn take_later<'a>(
    spec: &'a RootSpec,
    follow_links: bool,
    empty: Empty<'_>,
) -> Result<Taken<'a>, Failed> {
    take_those(spec, follow_links, empty, |tree| is_below_writable(&tree.target))
}

fn take_those<'a>(
    spec: &'a RootSpec,
    follow_links: bool,
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
        let (mount, own) = show(tree, &place, follow_links, empty).step_with(|| name(tree))?;
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

/// A detached mount of it, and whether its inodes are the jail's own.
pub(super) fn show(
    tree: &Tree,
    place: &OwnedFd,
    follow_links: bool,
    empty: Option<BorrowedFd<'_>>,
) -> Result<(OwnedFd, bool), Errno> {
    let view = empty.ok_or(Errno::NOENT).and_then(|empty| view(tree, place, follow_links, empty));
    let (mount, own) = match view {
        Ok(view) => (view, true),
        Err(_) => (clone_place(place)?, false),
    };
    tighten(&mount, host_tree_attributes())?;
    Ok((mount, own))
}

fn view(tree: &Tree, place: &OwnedFd, follow_links: bool, empty: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    if kind(place)? == FileType::Directory {
        return own_view(place.as_fd(), empty, as_there(place)?);
    }
    // A smaller one is copied where it is going to be.
    if rustix::fs::fstat(place)?.st_size as u64 <= MOST_COPIED {
        return Err(Errno::NOTDIR);
    }
    let (Some(folder), Some(file)) = (tree.source.parent(), tree.source.file_name()) else {
        return Err(Errno::NOTDIR);
    };
    let folder = open_place(folder, follow_links)?;
    let whole = own_view(folder.as_fd(), empty, as_there(place)?)?;
    rustix::mount::open_tree(&whole, file, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
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
