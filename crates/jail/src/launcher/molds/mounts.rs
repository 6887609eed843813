//! What the mold of a launcher that may mount sees of the host's file system.
//!
//! Every PID 1 begins with a copy of all these mounts and throws it away. Nothing of it is needed but a place to put a new
//! root, `/proc` and `/dev`; and nothing that somebody wants to unmount on the host is to be kept busy by a mold.

use std::fs;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::mounts::mount_point;
use crate::step::{Failed, Step};

/// What hides parts of these stays as well.
const KEPT: [&str; 2] = ["/proc", "/dev"];

/// Detaches all other mounts, in a mount namespace that is this process's own.
pub(super) fn let_go() -> Result<(), Failed> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let mounts = fs::read("/proc/self/mountinfo").step("mounts")?;
    // From the last to the first: what is below or above another goes before it.
    for place in mounts.split(|byte| *byte == b'\n').rev().filter_map(mount_point) {
        if place != Path::new("/") && !KEPT.iter().any(|kept| place.starts_with(kept)) {
            // One that stays only costs time.
            let _ = rustix::mount::unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    Ok(())
}
