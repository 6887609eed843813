//! The root file system of a jail, built by PID 1 in its own mount namespace.
//!
//! Everything is assembled on a small tmpfs from detached mounts and entered by `pivot_root`. Afterwards the old root
//! is gone, the new one is read-only, and the only writable places are parts of one file system with a size and an
//! inode limit.

mod prepared;

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Gid, Uid};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use sandstorm_sys::mount::MountAttributes;

use crate::mounts::{
    attach, clone_tree, clone_tree_without_links, file_system, host_tree_attributes, tighten,
};
pub(crate) use prepared::Prepared;

use crate::spec::{RootSpec, Tree, WRITABLE};
use crate::step::{Failed, Step};
use crate::{devices, procfs};

/// Where the new root is put together, in a mount namespace that nobody else sees. What was there is covered only
/// for the few moments until the old root goes.
const ASSEMBLY_POINTS: [&str; 3] = ["/tmp", "/mnt", "/srv"];

/// Trees of the host, taken and tightened but not attached yet.
#[derive(Debug)]
pub(crate) struct Taken<'a>(Vec<(&'a Tree, OwnedFd)>);

impl<'a> Taken<'a> {
    /// In the order in which they are [received](Self::received).
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, mount)| mount.as_fd())
    }

    /// What [`take`] took in another process.
    pub(crate) fn received(spec: &'a RootSpec, mounts: Vec<OwnedFd>) -> Result<Self, Failed> {
        Self::paired(all_trees(spec).collect(), mounts)
    }

    /// What [`take_later`] took in another process.
    pub(crate) fn received_later(spec: &'a RootSpec, mounts: Vec<OwnedFd>) -> Result<Self, Failed> {
        Self::paired(all_trees(spec).filter(|tree| is_below_writable(&tree.target)).collect(), mounts)
    }

    fn paired(trees: Vec<&'a Tree>, mounts: Vec<OwnedFd>) -> Result<Self, Failed> {
        if trees.len() != mounts.len() {
            return Err(Failed { step: "trees".to_owned(), errno: Errno::BADMSG });
        }
        Ok(Self(trees.into_iter().zip(mounts).collect()))
    }
}

fn all_trees(spec: &RootSpec) -> impl Iterator<Item = &Tree> {
    spec.trees.iter().chain(&spec.exposed)
}

/// Takes the trees of the host that the jail shows. To be done with the launcher's rights, since some of them lie where
/// nobody else can look: by a launcher that is root itself, whose rights end at the border of a user namespace, and by
/// PID 1 while it still is the launcher's user where only that one may mount. `follow_links`: whoever chose the trees has
/// the launcher's rights.
pub(crate) fn take(spec: &RootSpec, follow_links: bool) -> Result<Taken<'_>, Failed> {
    take_those(spec, follow_links, |_| true)
}

/// Of them those below writable places, which no root that is prepared can have.
pub(crate) fn take_later(spec: &RootSpec, follow_links: bool) -> Result<Taken<'_>, Failed> {
    take_those(spec, follow_links, |tree| is_below_writable(&tree.target))
}

fn take_those(
    spec: &RootSpec,
    follow_links: bool,
    wanted: impl Fn(&Tree) -> bool,
) -> Result<Taken<'_>, Failed> {
    let mut trees = Vec::with_capacity(spec.trees.len());
    for tree in all_trees(spec).filter(|tree| wanted(tree)) {
        let name = || format!("mount {}", tree.source.display());
        let mount = match follow_links {
            true => clone_tree(CWD, &tree.source),
            false => clone_tree_without_links(&tree.source),
        }
        .step_with(name)?;
        tighten(&mount, host_tree_attributes()).step_with(name)?;
        trees.push((tree, mount));
    }
    Ok(Taken(trees))
}

/// Builds the root and moves into it. The descriptor that comes back is of the writable file system: the host
/// measures its fill on it.
pub(crate) fn enter(spec: &RootSpec, trees: Taken<'_>, payload: (u32, u32)) -> Result<OwnedFd, Failed> {
    let Taken(trees) = trees;
    let nodes = devices::take_nodes()?;
    let proc = procfs::mount()?;
    let scratch = scratch(spec).step("writable file system")?;
    let root = bare_root()?;
    assemble_at(&root)?;

    // A tree below a writable place must wait until that place is there, or it would be covered.
    let (later, now): (Vec<_>, Vec<_>) = trees.iter().partition(|(tree, _)| is_below_writable(&tree.target));
    for (tree, mount) in now {
        place(tree, mount)?;
    }
    write_own(spec)?;
    make_directory(Path::new("proc")).step("proc")?;
    make_writable_places()?;
    devices::furnish(nodes)?;
    let ban = procfs::attach_masked(&proc)?;
    devices::attach_terminals()?;
    attach_scratch(&scratch, payload)?;
    for (tree, mount) in later {
        place(tree, mount)?;
    }
    pivot()?;
    seal()?;
    ban.impose()?;
    Ok(scratch)
}

/// The same with a root that the launcher has prepared: only what is each jail's own is added. `trees`: those below
/// writable places.
pub(crate) fn enter_prepared(
    spec: &RootSpec,
    root: &OwnedFd,
    trees: Taken<'_>,
    payload: (u32, u32),
) -> Result<OwnedFd, Failed> {
    let proc = procfs::mount()?;
    let scratch = scratch(spec).step("writable file system")?;
    assemble_at(root)?;
    let ban = procfs::attach_masked(&proc)?;
    devices::attach_terminals()?;
    attach_scratch(&scratch, payload)?;
    for (tree, mount) in &trees.0 {
        place(tree, mount)?;
    }
    pivot()?;
    ban.impose()?;
    Ok(scratch)
}

/// Puts a new root where the rest of it is attached, and goes there.
pub(crate) fn assemble_at(root: &OwnedFd) -> Result<(), Failed> {
    let point = ASSEMBLY_POINTS.iter().map(Path::new).find(|p| p.is_dir());
    attach(root, point.ok_or(Errno::NOENT).step("assembly point")?).step("root file system")?;
    rustix::process::fchdir(root).step("root file system")
}

/// Fills a new root without writable places, which is the current directory, with trees, links and files.
pub(crate) fn furnish(spec: &RootSpec, trees: Taken<'_>) -> Result<(), Failed> {
    for (tree, mount) in &trees.0 {
        place(tree, mount)?;
    }
    write_own(spec)
}

/// Links and files of the root itself.
fn write_own(spec: &RootSpec) -> Result<(), Failed> {
    for (path, target) in &spec.links {
        make_parents(path)
            .and_then(|()| symlink(target, relative(path)))
            .step_with(|| format!("link {}", path.display()))?;
    }
    for (path, content) in &spec.files {
        write_file(path, content).step_with(|| format!("file {}", path.display()))?;
    }
    Ok(())
}

fn bare_root() -> Result<OwnedFd, Failed> {
    file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", "4m"), ("nr_inodes", "4096")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .step("root file system")
}

/// Nothing is written to the root any more. Not recursive: writable places below stay writable.
pub(crate) fn seal() -> Result<(), Failed> {
    let whole = rustix::fs::open("/", DIRECTORY, rustix::fs::Mode::empty()).step("root file system")?;
    sandstorm_sys::mount::set_attributes(whole.as_fd(), c"", MountAttributes::READ_ONLY, false)
        .step("read-only root")
}

fn is_below_writable(target: &Path) -> bool {
    WRITABLE.iter().any(|(path, _, _)| target.starts_with(path))
}

fn place(tree: &Tree, mount: &OwnedFd) -> Result<(), Failed> {
    make_target(&tree.target, mount).step_with(|| format!("place for {}", tree.target.display()))?;
    attach(mount, relative(&tree.target)).step_with(|| format!("attach {}", tree.target.display()))
}

const DIRECTORY: rustix::fs::OFlags =
    rustix::fs::OFlags::PATH.union(rustix::fs::OFlags::DIRECTORY).union(rustix::fs::OFlags::CLOEXEC);

fn scratch(spec: &RootSpec) -> Result<OwnedFd, Errno> {
    let (size, inodes) = (spec.scratch_bytes.to_string(), spec.scratch_inodes.to_string());
    file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", &size), ("nr_inodes", &inodes)],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

/// One file system, shown at four places: its limit is the limit of all of them together.
fn attach_scratch(scratch: &OwnedFd, (uid, gid): (u32, u32)) -> Result<(), Failed> {
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    for (path, mode, no_exec) in WRITABLE {
        let step = || format!("writable {path}");
        let name = Path::new(path).file_name().unwrap_or_default();
        rustix::fs::mkdirat(scratch, name, rustix::fs::Mode::from_raw_mode(0o700)).step_with(step)?;
        rustix::fs::chownat(scratch, name, owner.0, owner.1, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .step_with(step)?;
        rustix::fs::chmodat(
            scratch,
            name,
            rustix::fs::Mode::from_raw_mode(mode),
            rustix::fs::AtFlags::empty(),
        )
        .step_with(step)?;
        let part = clone_tree(scratch.as_fd(), Path::new(name)).step_with(step)?;
        // It has the rest from the file system's own mount.
        if no_exec {
            tighten(&part, MountAttributes::NO_EXEC).step_with(step)?;
        }
        attach(&part, relative(Path::new(path))).step_with(step)?;
    }
    Ok(())
}

/// Where the writable file system is going to show.
fn make_writable_places() -> Result<(), Failed> {
    WRITABLE.iter().try_for_each(|(path, _, _)| {
        make_directory(relative(Path::new(path))).step_with(|| format!("writable {path}"))
    })
}

/// Swaps the roots and lets go of the old one. `chroot` alone would leave a way back through any open directory.
pub(crate) fn pivot() -> Result<(), Failed> {
    rustix::process::pivot_root(".", ".").step("pivot root")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("detach old root")?;
    rustix::process::chdir("/").step("enter root")
}

/// A place of the right kind for a mount: a directory, or an empty file for a single file. The mount itself is asked:
/// its path on the host may be covered by now, or be another's.
fn make_target(target: &Path, mount: &OwnedFd) -> std::io::Result<()> {
    make_parents(target)?;
    if FileType::from_raw_mode(rustix::fs::fstat(mount)?.st_mode) == FileType::Directory {
        make_directory(relative(target))
    } else {
        fs::write(relative(target), b"")
    }
}

fn write_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    make_parents(path)?;
    fs::write(relative(path), content)?;
    fs::set_permissions(relative(path), fs::Permissions::from_mode(0o644))
}

fn make_parents(path: &Path) -> std::io::Result<()> {
    relative(path).parent().map_or(Ok(()), make_directory)
}

/// Directories of the root are open to all, whatever umask the caller had.
pub(crate) fn make_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// The same path below the current directory, which is the new root until the pivot.
pub(crate) fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
