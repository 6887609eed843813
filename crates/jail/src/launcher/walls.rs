//! Which walls of a new jail stand, and whether that is enough.

use super::Workshop;
use crate::cgroup::{Leaf, Version};
use crate::error::JailError;
use crate::identity::Identity;
use crate::landlock;
use crate::report::{Measured, Report};
use crate::root::SHARED_DEVICES;
use crate::seccomp::Program;
use crate::spec::{JailSpec, Strictness};

pub(super) fn report(
    workshop: &Workshop,
    spec: &JailSpec,
    identity: &Identity,
    leaf: Option<&Leaf>,
    measured: Measured,
    filter: &Program,
) -> Report {
    let missing_limits = match leaf {
        Some(leaf) => leaf.missing().iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect(),
        None => [
            ("memory", "no control group can be made by this user; only the private memory of each process is limited"),
            (
                "processes",
                "no control group can be made by this user; the limit holds, but nothing counts it",
            ),
            ("cpus", "no control group can be made by this user"),
        ]
        .into_iter()
        .chain(
            spec.limits
                .cpu_time
                .map(|_| ("cpu_time", "no control group can be made; each process by itself")),
        )
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect(),
    };
    Report {
        separated: workshop
            .namespaces
            .iter()
            .zip(&measured.namespaces)
            .map(|(ours, theirs)| ours != theirs)
            .collect(),
        own_ids: identity.is_own(),
        landlock_abi: if measured.landlock { landlock::kernel_abi() } else { 0 },
        filter_profile: filter.profile().name().to_owned(),
        filter_hash: filter.hash().to_owned(),
        cgroup: if leaf.is_some() { workshop.hierarchies.version() } else { Version::None },
        controllers: leaf.map(Leaf::controllers).unwrap_or_default(),
        missing_limits,
        measured,
    }
}

/// Walls that no policy does without, and those that a strict one asks for.
pub(super) fn check(spec: &JailSpec, report: &Report) -> Result<(), JailError> {
    let wall = |wall, reason: &str| Err(JailError::Wall { wall, reason: reason.to_owned() });
    if !report.separated.iter().all(|separated| *separated) {
        return wall("namespaces", "a namespace is shared with the host");
    }
    let measured = &report.measured;
    if !measured.own_root
        || measured.bounding_set != 0
        || !measured.no_new_privs
        || measured.seccomp_mode != 2
    {
        return wall("privileges", "PID 1 measured more rights than it should have");
    }
    if spec.strictness == Strictness::Strict {
        // Device nodes hold nothing that could be locked in earnest, and only root can have others.
        if let Some(tree) = measured.shared.iter().find(|tree| *tree != SHARED_DEVICES) {
            return wall(
                "own_inodes",
                &format!(
                    "{tree} is shown as it is, so that sandboxes see each other's locks on it: this kernel mounts no \
                     overlay over it"
                ),
            );
        }
        if !report.own_ids {
            return wall(
                "uid_wall",
                "only one user id can be mapped; run as root or give the user a range in /etc/subuid",
            );
        }
        if !measured.no_groups {
            return wall("groups", "supplementary groups of the caller cannot be given up");
        }
        if !measured.landlock {
            return wall("landlock", "this kernel has no Landlock");
        }
    }
    Ok(())
}
