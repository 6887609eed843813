//! `/proc`: a fresh instance of the jail's own pid namespace, with the host-wide parts masked or read-only.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use sandstorm_sys::mount::MountAttributes;

use crate::devices::NULL;
use crate::mounts::{attach, clone_tree, file_system, tighten, tighten_at};
use crate::step::{Failed, Step};

/// Files that tell about the host or act on it: covered by the null device.
const MASKED_FILES: [&str; 28] = [
    "buddyinfo",
    "cmdline",
    "config.gz",
    "consoles",
    "diskstats",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "locks",
    "modules",
    "pagetypeinfo",
    "partitions",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
    "zoneinfo",
];

/// Directories of the same kind: covered by an empty one.
const MASKED_DIRECTORIES: [&str; 5] = ["acpi", "asound", "driver", "pressure", "scsi"];

/// Visible but not writable, whoever owns them.
const READ_ONLY: [&str; 4] = ["bus", "fs", "irq", "sys"];

const SEALED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// A new instance. The kernel refuses it when the surrounding environment masks its own `/proc`; then there is no
/// jail, since the host's must never be shown instead.
pub(crate) fn mount() -> Result<OwnedFd, Failed> {
    file_system("proc", &[("hidepid", "ptraceable")], SEALED).step("proc")
}

/// Attaches it below the current directory, which is the new root and has a place for it and its devices, and covers what
/// is not for guests.
pub(crate) fn attach_masked(proc: &OwnedFd) -> Result<NamespaceBan, Failed> {
    let place = Path::new("proc");
    // The place itself is an empty directory of the root: a mask that needs no file system of its own.
    let empty = clone_tree(CWD, place).step("empty directory")?;
    let sealed = MountAttributes::NO_SUID | MountAttributes::NO_DEV | MountAttributes::NO_EXEC;
    tighten(&empty, sealed | MountAttributes::READ_ONLY).step("empty directory")?;
    attach(proc, place).step("proc")?;
    let ban = NamespaceBan::prepare(proc)?;
    let proc = place;
    for name in MASKED_FILES {
        cover(Path::new(NULL), &proc.join(name)).step_with(|| format!("mask {name}"))?;
    }
    mask_directories(&empty)?;
    for name in READ_ONLY {
        let (path, step) = (proc.join(name), || format!("read-only {name}"));
        if cover(&path, &path).step_with(step)? {
            tighten_at(&path, MountAttributes::READ_ONLY).step_with(step)?;
        }
    }
    Ok(ban)
}

/// Shows one thing where another is, with everything that the mount of the first forbids. `false`: this kernel has no such
/// other thing, which needs no cover then. In one call, which is a third of what a detached copy takes; there is nobody
/// yet who could have put a link anywhere.
fn cover(what: &Path, place: &Path) -> Result<bool, Errno> {
    if_there(rustix::mount::mount_bind(what, place))
}

fn if_there(done: Result<(), Errno>) -> Result<bool, Errno> {
    match done {
        Err(Errno::NOENT) => Ok(false),
        done => done.map(|()| true),
    }
}

fn mask_directories(empty: &OwnedFd) -> Result<(), Failed> {
    let mut mask: Option<PathBuf> = None;
    for name in MASKED_DIRECTORIES {
        let place = Path::new("proc").join(name);
        let covered = match &mask {
            Some(mask) => cover(mask, &place),
            None => if_there(attach(empty, &place)),
        };
        if covered.step_with(|| format!("mask {name}"))? && mask.is_none() {
            mask = Some(place);
        }
    }
    Ok(())
}

/// After this no namespace can be made below this user namespace any more: each of them is a door to code that is
/// otherwise out of an ordinary user's reach.
///
/// The files are opened before `/proc/sys` becomes read-only and written last, because a detached mount counts as a
/// mount namespace, and the root is built from those.
pub(crate) struct NamespaceBan(Vec<(&'static str, File)>);

impl NamespaceBan {
    fn prepare(proc: &OwnedFd) -> Result<Self, Failed> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let limits = rustix::fs::openat(proc, "sys/user", flags, Mode::empty()).step("no more namespaces")?;
        let open = |kind| {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&limits, format!("max_{kind}_namespaces"), flags, Mode::empty())
                .step_with(|| format!("no more {kind} namespaces"))?;
            Ok((kind, File::from(opened)))
        };
        ["user", "pid", "net", "mnt", "ipc", "uts", "cgroup", "time"]
            .into_iter()
            .map(open)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn impose(self) -> Result<(), Failed> {
        self.0.into_iter().try_for_each(|(kind, mut file)| {
            file.write_all(b"0").step_with(|| format!("no more {kind} namespaces"))
        })
    }
}
