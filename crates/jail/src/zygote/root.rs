//! The root of a zygote: the host's trees as a jail shows them, the null device, and our program. Read-only throughout.

use std::path::{Path, PathBuf};

use rustix::mount::{MountAttrFlags, MountPropagationFlags};

use super::{HOME, PROGRAM};
use crate::launcher::KnownScript;
use crate::mounts::{attach, file_system};
use crate::spec::RootSpec;
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

/// What is in it, and which of its trees have no view.
fn describe(scripts: &[KnownScript], mounts: Option<root::Mounts>) -> (RootSpec, root::Whole) {
    let mut spec = template::host(0, 0, template::Additions::default());
    spec.files.push((program(), PROGRAM.as_bytes().to_vec()));
    spec.files.extend(scripts.iter().enumerate().map(|(i, script)| (known(i), script.text.to_vec())));
    let Some(mut mounts) = mounts else { return (spec, root::Whole::all()) };
    let (below, whole) = mounts.below(&spec);
    root::nested::add(&mut spec, below);
    (spec, whole)
}

/// Builds it in a mount namespace of this process's own and moves into it.
pub(super) fn enter(scripts: &[KnownScript]) -> Result<(), Failed> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let null = devices::take_null()?;
    let (spec, whole) = describe(scripts, root::Mounts::new().ok());
    let trees = root::take(&spec, true, &whole, root::Empty::Mounted)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Tree;

    #[test]
    fn what_is_mounted_below_its_trees_is_shown_there() {
        let (spec, whole) = describe(&[], Some(root::Mounts::of(&["/", "/usr/bin"])));
        let usr = Tree { source: "/usr".into(), target: "/usr".into() };
        assert!(spec.trees.contains(&usr) && !whole.has(&usr));
        assert!(spec.trees.contains(&Tree { source: "/usr/bin".into(), target: "/usr/bin".into() }));
        assert!(describe(&[], None).1.has(&usr));
    }
}
