//! The root of a zygote: the host's trees as a jail shows them, the null device, and our program. Read-only throughout.

use std::path::{Path, PathBuf};

use rustix::mount::{MountAttrFlags, MountPropagationFlags};

use super::{HOME, PROGRAM};
use crate::launcher::KnownScript;
use crate::mounts::{attach, file_system};
use crate::step::{Failed, Step};
use crate::{devices, root, template};

/// Where the program is.
pub(super) fn program() -> PathBuf {
    Path::new(HOME).join("python.py")
}

/// Where a script is that has to be begun ahead.
pub(super) fn known(index: usize) -> PathBuf {
    Path::new(HOME).join(format!("known-{index}.py"))
}

/// Builds it in a mount namespace of this process's own and moves into it.
pub(super) fn enter(scripts: &[KnownScript]) -> Result<(), Failed> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let mut spec = template::host(0, 0, template::Additions::default());
    spec.files.push((program(), PROGRAM.as_bytes().to_vec()));
    spec.files.extend(scripts.iter().enumerate().map(|(i, script)| (known(i), script.text.to_vec())));
    let null = devices::take_null()?;
    let trees = root::take(&spec, true, root::Empty::Mounted)?;
    let base = file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", "4m"), ("nr_inodes", "1024")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .step("root file system")?;
    root::assemble_at(&base)?;
    root::furnish(&spec, trees)?;
    root::make_directory(Path::new("dev")).step("device directory")?;
    std::fs::write("dev/null", b"").step("null device")?;
    attach(&null, Path::new("dev/null")).step("null device")?;
    root::pivot()?;
    root::seal()
}
