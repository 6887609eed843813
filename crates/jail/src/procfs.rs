//! `/proc`: a fresh instance of the jail's own pid namespace, with the host-wide parts masked or read-only.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use sandstorm_sys::mount::MountAttributes;

use crate::devices::NULL;
use crate::mounts::{attach, file_system, tighten};
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
    attach(proc, Path::new("proc")).step("proc")?;
    let ban = NamespaceBan::prepare()?;
    let proc = Path::new("proc");
    for name in MASKED_FILES {
        cover(Path::new(NULL), &proc.join(name)).step_with(|| format!("mask {name}"))?;
    }
    mask_directories()?;
    for name in READ_ONLY {
        let (path, step) = (proc.join(name), || format!("read-only {name}"));
        if cover(&path, &path).step_with(step)? {
            let same =
                rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step_with(step)?;
            tighten(&same, MountAttributes::READ_ONLY).step_with(step)?;
        }
    }
    Ok(ban)
}

/// Shows one thing where another is, with everything that the mount of the first forbids. `false`: this kernel has no such
/// other thing, which needs no cover then. In one call, which is a third of what a detached copy takes; there is nobody
/// yet who could have put a link anywhere.
fn cover(what: &Path, place: &Path) -> Result<bool, Errno> {
    match rustix::mount::mount_bind(what, place) {
        Err(Errno::NOENT) => Ok(false),
        done => done.map(|()| true),
    }
}

fn mask_directories() -> Result<(), Failed> {
    let proc = Path::new("proc");
    let present: Vec<_> = MASKED_DIRECTORIES.iter().filter(|name| proc.join(name).is_dir()).collect();
    let Some((first, others)) = present.split_first() else { return Ok(()) };
    let step = |name| format!("mask {name}");
    let options = [("mode", "0555"), ("size", "4k"), ("nr_inodes", "2")];
    let attributes = SEALED | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let empty = file_system("tmpfs", &options, attributes).step_with(|| step(first))?;
    attach(&empty, &proc.join(first)).step_with(|| step(first))?;
    for name in others {
        cover(&proc.join(first), &proc.join(name)).step_with(|| step(name))?;
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
    fn prepare() -> Result<Self, Failed> {
        let open = |kind| {
            let path = format!("proc/sys/user/max_{kind}_namespaces");
            let opened = OpenOptions::new()
                .write(true)
                .open(path)
                .step_with(|| format!("no more {kind} namespaces"))?;
            Ok((kind, opened))
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
