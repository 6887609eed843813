//! The root file system of a jail, built by PID 1 in its own mount namespace.
//!
//! Everything is assembled on a small tmpfs from detached mounts and entered by `pivot_root`. Afterwards the old root
//! is gone, the new one is read-only, and the only writable places are parts of one file system with a size and an
//! inode limit.

pub(crate) mod nested;
mod prepared;
mod trees;

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use sandstorm_sys::mount::MountAttributes;

pub(crate) use nested::{Mounts, Whole};
pub(crate) use prepared::{Prepared, View};
pub(crate) use trees::{Empty, Taken, take, take_later};

use crate::mounts::{attach, clone_tree, file_system, tighten};
use crate::spec::{ROOT_HOME, RootSpec, WRITABLE};
use crate::step::{Failed, Step};
use crate::{devices, procfs};

/// Where the new root is put together, in a mount namespace that nobody else sees. What was there is covered only
/// for the few moments until the old root goes.
const ASSEMBLY_POINTS: [&str; 3] = ["/tmp", "/mnt", "/srv"];

/// How device nodes are called in the report that are the host's own: only root may make others.
pub(crate) const SHARED_DEVICES: &str = "/dev";

/// What there is of a root that was entered.
#[derive(Debug)]
pub(crate) struct Entered {
    /// A descriptor of the writable file system: the host measures its fill on it.
    pub(crate) scratch: OwnedFd,
    /// What has inodes that others have as well.
    pub(crate) shared: Vec<String>,
}

/// Builds the root and moves into it. `scratch`: the writable file system. `devices`: a whole `/dev` that the launcher made
/// for this jail.
pub(crate) fn enter(
    spec: &RootSpec,
    scratch: OwnedFd,
    trees: Taken<'_>,
    devices: Option<&OwnedFd>,
    payload: (u32, u32),
) -> Result<Entered, Failed> {
    let nodes = if devices.is_some() { None } else { Some(devices::take_nodes()?) };
    let proc = procfs::mount()?;
    let root = bare_root()?;
    assemble_over(&scratch, &root)?;

    // A tree below a writable place must wait until that place is there, or it would be covered.
    let (later, now): (Vec<_>, Vec<_>) =
        trees.0.iter().partition(|part| is_below_writable(&part.tree.target));
    let mut shared = place_all(now)?;
    write_own(spec)?;
    make_directory(Path::new("proc")).step("proc")?;
    if let Some(devices) = devices {
        devices::attach_own(devices)?;
    }
    make_writable_places()?;
    if let Some(nodes) = nodes {
        devices::furnish(nodes)?;
        shared.push(SHARED_DEVICES.to_owned());
    }
    let ban = procfs::attach_masked(&proc)?;
    devices::attach_terminals()?;
    attach_scratch(&scratch, payload, shows_below_root_home(&later))?;
    shared.extend(place_all(later)?);
    pivot()?;
    seal()?;
    ban.impose()?;
    Ok(Entered { scratch, shared })
}

/// The same with a root that the launcher has prepared: only what is each jail's own is added. `trees`: those below
/// writable places.
pub(crate) fn enter_prepared(
    scratch: OwnedFd,
    root: &OwnedFd,
    trees: Taken<'_>,
    payload: (u32, u32),
) -> Result<Entered, Failed> {
    let proc = procfs::mount()?;
    assemble_over(&scratch, root)?;
    let ban = procfs::attach_masked(&proc)?;
    devices::attach_terminals()?;
    let later: Vec<_> = trees.0.iter().collect();
    attach_scratch(&scratch, payload, shows_below_root_home(&later))?;
    let shared = place_all(later)?;
    pivot()?;
    ban.impose()?;
    Ok(Entered { scratch, shared })
}

/// Puts trees where they belong, and names those whose inodes others have as well.
fn place_all<'a>(parts: impl IntoIterator<Item = &'a trees::Part<'a>>) -> Result<Vec<String>, Failed> {
    let mut shared = Vec::new();
    for part in parts {
        if !trees::place(part)? {
            shared.push(part.tree.target.display().to_string());
        }
    }
    Ok(shared)
}

/// Puts a new root where the rest of it is attached, and goes there.
pub(crate) fn assemble_at(root: &OwnedFd) -> Result<(), Failed> {
    attach(root, assembly_point()?).step("root file system")?;
    rustix::process::fchdir(root).step("root file system")
}

/// The same with the writable file system under the new root, where nobody sees it and from where it goes with the old
/// root. Its parts can be cloned from there: before Linux 6.15 that takes a mount that is attached in the mount namespace
/// of who clones it. `scripts/kernels.sh` boots such kernels.
fn assemble_over(scratch: &OwnedFd, root: &OwnedFd) -> Result<(), Failed> {
    attach(scratch, assembly_point()?).step("writable file system")?;
    assemble_at(root)
}

fn assembly_point() -> Result<&'static Path, Failed> {
    ASSEMBLY_POINTS
        .iter()
        .map(Path::new)
        .find(|point| point.is_dir())
        .ok_or(Errno::NOENT)
        .step("assembly point")
}

/// An empty directory in a mount namespace that this process is going to leave.
fn mount_empty() -> Result<OwnedFd, Failed> {
    let empty = file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", "4k"), ("nr_inodes", "2")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .step("empty directory")?;
    attach(&empty, assembly_point()?).step("empty directory")?;
    Ok(empty)
}

/// Fills a new root without writable places, which is the current directory, with trees, links and files.
pub(crate) fn furnish(spec: &RootSpec, trees: Taken<'_>) -> Result<(), Failed> {
    place_all(trees.0.iter())?;
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
        &[("mode", "0755"), ("size", "16m"), ("nr_inodes", "4096")],
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
    WRITABLE.iter().any(|(path, _, _)| target.starts_with(path)) || target.starts_with(ROOT_HOME)
}

/// Whether the host has toolchains below its own root's home, to which the payload has to get.
fn shows_below_root_home(later: &[&trees::Part<'_>]) -> bool {
    later.iter().any(|part| part.tree.target.starts_with(ROOT_HOME))
}

const DIRECTORY: rustix::fs::OFlags =
    rustix::fs::OFlags::PATH.union(rustix::fs::OFlags::DIRECTORY).union(rustix::fs::OFlags::CLOEXEC);

/// A writable file system in memory, attached nowhere. One that was to be on disk is the launcher's to make.
pub(crate) fn scratch(spec: &RootSpec) -> Result<OwnedFd, Failed> {
    if spec.scratch_on_disk {
        return Err(Errno::BADMSG).step("writable file system");
    }
    let (size, inodes) = (spec.scratch_bytes.to_string(), spec.scratch_inodes.to_string());
    file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", &size), ("nr_inodes", &inodes)],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .step("writable file system")
}

/// One file system, shown at five places: its limit is the limit of all of them together. It is
/// [attached](assemble_over) where it can be cloned.
fn attach_scratch(scratch: &OwnedFd, payload: (u32, u32), open_root_home: bool) -> Result<(), Failed> {
    for (path, mode, no_exec) in WRITABLE {
        attach_part(scratch, path, payload, mode, no_exec)?;
    }
    // Where there is a single id, it is the only one that a folder can be given to.
    let root = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    attach_part(scratch, ROOT_HOME, root, if open_root_home { 0o711 } else { 0o700 }, false)
}

fn attach_part(
    scratch: &OwnedFd,
    path: &str,
    (uid, gid): (u32, u32),
    mode: u32,
    no_exec: bool,
) -> Result<(), Failed> {
    let step = || format!("writable {path}");
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    let name = Path::new(path).file_name().unwrap_or_default();
    rustix::fs::mkdirat(scratch, name, rustix::fs::Mode::from_raw_mode(0o700)).step_with(step)?;
    rustix::fs::chownat(scratch, name, owner.0, owner.1, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .step_with(step)?;
    rustix::fs::chmodat(scratch, name, rustix::fs::Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())
        .step_with(step)?;
    let part = clone_tree(scratch.as_fd(), Path::new(name)).step_with(step)?;
    // It has the rest from the file system's own mount.
    if no_exec {
        tighten(&part, MountAttributes::NO_EXEC).step_with(step)?;
    }
    attach(&part, relative(Path::new(path))).step_with(step)
}

/// Where the writable file system is going to show.
fn make_writable_places() -> Result<(), Failed> {
    WRITABLE.iter().map(|(path, _, _)| *path).chain([ROOT_HOME]).try_for_each(|path| {
        make_directory(relative(Path::new(path))).step_with(|| format!("writable {path}"))
    })
}

/// Swaps the roots and lets go of the old one. `chroot` alone would leave a way back through any open directory.
pub(crate) fn pivot() -> Result<(), Failed> {
    rustix::process::pivot_root(".", ".").step("pivot root")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("detach old root")?;
    rustix::process::chdir("/").step("enter root")
}

fn write_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    make_parents(path)?;
    fs::write(relative(path), content)?;
    let is_program = path.parent().is_some_and(|folder| folder.ends_with("bin"));
    let mode = if is_program { 0o755 } else { 0o644 };
    fs::set_permissions(relative(path), fs::Permissions::from_mode(mode))
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
