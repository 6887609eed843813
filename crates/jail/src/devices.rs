//! `/dev`: the few devices that no program can do without, a terminal multiplexer of its own, and nothing else.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, major, makedev, minor};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use sandstorm_sys::mount::MountAttributes;

use crate::mounts::{attach, clone_tree, file_system, tighten};
use crate::root::make_directory;
use crate::step::{Failed, Step};

/// Name, major and minor number. The numbers are checked: a name alone could be anything.
const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

const TERMINALS: &str = "dev/pts";

/// The null device below a new root.
pub(crate) const NULL: &str = "dev/null";

/// Detached mounts of the host's devices.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<(&'static str, OwnedFd)>);

/// Clones the device nodes while the host's `/dev` is still visible.
pub(crate) fn take_nodes() -> Result<Nodes, Failed> {
    NODES.into_iter().map(|node| Ok((node.0, take(node)?))).collect::<Result<_, _>>().map(Nodes)
}

/// A whole `/dev` of one jail's own but for the terminals, not attached yet. Only root of the host may make device nodes that
/// work; everybody else shows the host's.
pub(crate) fn own() -> Result<OwnedFd, Failed> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let devices = file_system("tmpfs", &[("mode", "0755"), ("size", "64k"), ("nr_inodes", "32")], attributes)
        .step("device directory")?;
    make_in(&devices)?;
    sandstorm_sys::mount::set_attributes(devices.as_fd(), c"", MountAttributes::READ_ONLY, false)
        .step("device directory")?;
    Ok(devices)
}

/// Makes what a `/dev` has, in an empty directory: nodes, links, places for terminals and shared memory.
pub(crate) fn make_in(devices: &OwnedFd) -> Result<(), Failed> {
    for (name, major, minor) in NODES {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(devices, name, FileType::CharacterDevice, mode, makedev(major, minor))
            .and_then(|()| rustix::fs::chmodat(devices, name, mode, AtFlags::empty()))
            .step_with(|| format!("device {name}"))?;
    }
    for name in ["pts", "shm"] {
        rustix::fs::mkdirat(devices, name, Mode::from_raw_mode(0o755)).step("device directory")?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(target, devices, name).step_with(|| format!("device link {name}"))?;
    }
    Ok(())
}

/// Puts one in its place below the current directory, which is the new root.
pub(crate) fn attach_own(devices: &OwnedFd) -> Result<(), Failed> {
    let place = Path::new("dev");
    make_directory(place).step("device directory")?;
    attach(devices, place).step("device directory")
}

/// The null device alone.
pub(crate) fn take_null() -> Result<OwnedFd, Failed> {
    take(NODES[0])
}

fn take((name, want_major, want_minor): (&'static str, u32, u32)) -> Result<OwnedFd, Failed> {
    let step = || format!("device {name}");
    let mount = clone_tree(CWD, &Path::new("/dev").join(name)).step_with(step)?;
    let stat = rustix::fs::fstat(&mount).step_with(step)?;
    let character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if !character || (major(stat.st_rdev), minor(stat.st_rdev)) != (want_major, want_minor) {
        return Err(Failed { step: step(), errno: Errno::NODEV });
    }
    // Private, because it may be cloned in the host's own mount namespace.
    tighten(&mount, MountAttributes::NO_SUID | MountAttributes::NO_EXEC | MountAttributes::PRIVATE)
        .step_with(step)?;
    Ok(mount)
}

/// Fills `dev` below the current directory, which is the new root, with all but the terminals.
pub(crate) fn furnish(nodes: Nodes) -> Result<(), Failed> {
    make_directory(Path::new(TERMINALS)).step("device directory")?;
    for (name, mount) in nodes.0 {
        let target = Path::new("dev").join(name);
        std::fs::write(&target, b"").step_with(|| format!("device {name}"))?;
        attach(&mount, &target).step_with(|| format!("device {name}"))?;
    }
    for (name, target) in LINKS {
        symlink(target, Path::new("dev").join(name)).step_with(|| format!("device link {name}"))?;
    }
    Ok(())
}

/// Terminals of the jail's own, in their place below the current directory.
pub(crate) fn attach_terminals() -> Result<(), Failed> {
    let terminals = file_system(
        "devpts",
        &[("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("max", "64")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .step("terminals")?;
    attach(&terminals, Path::new(TERMINALS)).step("terminals")
}
