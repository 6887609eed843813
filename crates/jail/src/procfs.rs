//! `/proc`: a fresh instance of the jail's own pid namespace, with the host-wide parts masked or read-only.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use sandstorm_sys::mount::MountAttributes;

use crate::devices::copy_of;
use crate::mounts::{attach, clone_tree, file_system, tighten};
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

/// Attaches it below the current directory, which is the new root and has a place for it, and covers what is not for
/// guests.
pub(crate) fn attach_masked(proc: &OwnedFd, null: &OwnedFd) -> Result<NamespaceBan, Failed> {
    attach(proc, Path::new("proc")).step("proc")?;
    let ban = NamespaceBan::prepare()?;
    mask_files(null)?;
    mask_directories()?;
    let proc = Path::new("proc");
    for name in READ_ONLY {
        let step = || format!("read-only {name}");
        let same = match clone_tree(CWD, &proc.join(name)) {
            Err(Errno::NOENT) => continue,
            other => other.step(step())?,
        };
        tighten(&same, MountAttributes::READ_ONLY).step(step())?;
        attach(&same, &proc.join(name)).step(step())?;
    }
    Ok(ban)
}

/// What this kernel does not have needs no cover.
fn mask_files(null: &OwnedFd) -> Result<(), Failed> {
    let mut spare = None;
    for name in MASKED_FILES {
        let step = || format!("mask {name}");
        let mask = match spare.take() {
            Some(mask) => mask,
            None => copy_of(null).step(step())?,
        };
        match attach(&mask, &Path::new("proc").join(name)) {
            Err(Errno::NOENT) => spare = Some(mask),
            other => other.step(step())?,
        }
    }
    Ok(())
}

fn mask_directories() -> Result<(), Failed> {
    let proc = Path::new("proc");
    let present: Vec<_> = MASKED_DIRECTORIES.iter().filter(|name| proc.join(name).is_dir()).collect();
    let Some((last, others)) = present.split_last() else { return Ok(()) };
    let step = |name| format!("mask {name}");
    let options = [("mode", "0555"), ("size", "4k"), ("nr_inodes", "2")];
    let attributes = SEALED | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let empty = file_system("tmpfs", &options, attributes).step(step(last))?;
    for name in others {
        attach(&copy_of(&empty).step(step(name))?, &proc.join(name)).step(step(name))?;
    }
    // To let go of one that is nowhere attached costs more than to attach it.
    attach(&empty, &proc.join(last)).step(step(last))
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
            let opened =
                OpenOptions::new().write(true).open(path).step(format!("no more {kind} namespaces"))?;
            Ok((kind, opened))
        };
        ["user", "pid", "net", "mnt", "ipc", "uts", "cgroup", "time"]
            .into_iter()
            .map(open)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn impose(self) -> Result<(), Failed> {
        self.0
            .into_iter()
            .try_for_each(|(kind, mut file)| file.write_all(b"0").step(format!("no more {kind} namespaces")))
    }
}
