//! Control groups, user ids and disk: what limits are enforced with, and who programs run as.

use std::path::{Path, PathBuf};

use sandstorm_config::Loaded;
use sandstorm_jail::cgroup::{Controller, Hierarchies, Version};
use sandstorm_types::{ByteSize, Walls};

use super::check::Check;

const GROUPS: &str = "control groups";
const IDS: &str = "users";
const STATE: &str = "state";

/// Below this much free space caches are soon full.
const LITTLE_SPACE: ByteSize = ByteSize::mib(512);

pub(crate) fn checks(loaded: &Loaded, walls: Option<&Walls>) -> Vec<Check> {
    let hierarchies = Hierarchies::detect();
    let mut all = vec![version(&hierarchies)];
    if let Some(walls) = walls {
        all.extend(controllers(&hierarchies, walls));
        all.extend(limits(walls));
    }
    all.extend(hierarchies.unified.as_deref().and_then(dynamic_mods));
    all.extend(ids(loaded, walls));
    all.push(state(loaded));
    all
}

/// How to get groups of one's own.
fn delegate() -> &'static str {
    if rustix::process::geteuid().is_root() {
        return "the control groups are read-only here: start the container around us with writable ones";
    }
    "run as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes sandstorm serve; or name a group \
     that was delegated to you in cgroup_parent"
}

fn version(hierarchies: &Hierarchies) -> Check {
    match hierarchies.version() {
        Version::None => Check::missing(
            GROUPS,
            "version",
            "none is mounted: memory, processes and processor share cannot be limited",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ),
        Version::V1 => Check::ok(GROUPS, "version", "1"),
        Version::V2 => Check::ok(GROUPS, "version", "2"),
        Version::Hybrid => {
            Check::ok(GROUPS, "version", "hybrid: controllers in version 1 beside a version 2 tree")
        }
    }
}

/// Not whether the kernel has them, but whether a sandbox got them.
fn controllers(hierarchies: &Hierarchies, walls: &Walls) -> Vec<Check> {
    let got = |c: &Controller| walls.cgroup.controllers.iter().any(|name| name == c.name());
    let (got, rest): (Vec<_>, Vec<_>) = Controller::ALL.into_iter().partition(got);
    let (shut, absent): (Vec<_>, Vec<_>) = rest.into_iter().partition(|c| hierarchies.has(*c));
    let names = |these: &[Controller]| these.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
    let mut all = Vec::new();
    if !got.is_empty() {
        all.push(Check::ok(GROUPS, "controllers", format!("{}: a sandbox has its own; tried", names(&got))));
    }
    if !shut.is_empty() {
        let meaning = format!("{}: there, but this user may not make groups", names(&shut));
        all.push(Check::missing(GROUPS, "controllers", meaning, delegate()));
    }
    if !absent.is_empty() {
        let meaning = format!("{}: not on this machine", names(&absent));
        all.push(Check::missing(GROUPS, "controllers", meaning, "boot with them enabled (cgroup_enable=…)"));
    }
    all
}

fn limits(walls: &Walls) -> Option<Check> {
    let missing = &walls.limits.missing;
    let reason = &missing.first()?.reason;
    let names = missing.iter().map(|limit| limit.name.to_string()).collect::<Vec<_>>().join(", ");
    Some(Check::missing(GROUPS, "limits", format!("{names}: not enforced, since {reason}"), delegate()))
}

/// Without the option each process that moves into a group waits for a grace period of the whole machine. Kernels before 6.0
/// do not have it, and nothing can be done about it there.
fn dynamic_mods(unified: &Path) -> Option<Check> {
    let features = std::fs::read_to_string("/sys/kernel/cgroup/features").unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    dynamic_mods_in(&features, &mounts, unified)
}

/// The same of what the kernel says it can do, and of what is mounted.
fn dynamic_mods_in(features: &str, mounts: &str, unified: &Path) -> Option<Check> {
    if !features.lines().any(|feature| feature == "favordynmods") {
        return None;
    }
    let favoured = mounts.lines().any(|line| {
        line.split(' ').nth(4).is_some_and(|point| Path::new(point) == unified)
            && line.contains("favordynmods")
    });
    if favoured {
        return Some(Check::ok(GROUPS, "favordynmods", "processes enter groups without waiting"));
    }
    let fix = format!("mount -o remount,favordynmods {}", unified.display());
    let meaning = "off: entering a group can cost milliseconds; a matter of speed only";
    Some(Check::missing(GROUPS, "favordynmods", meaning, fix))
}

fn ids(loaded: &Loaded, walls: Option<&Walls>) -> Option<Check> {
    let name = "ids of sandboxes";
    if rustix::process::geteuid().is_root() {
        let ids = &loaded.config.ids;
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if !is_mapped(&map, ids.start) {
            let meaning =
                format!("id {} does not exist here: this is a container with a range of its own", ids.start);
            let fix = "set ids.start and ids.blocks to a range that /proc/self/uid_map has".to_owned();
            return Some(Check::broken(IDS, name, meaning, Some(fix)));
        }
        let meaning = format!("{} blocks of 65,536 from {}, one for each sandbox", ids.blocks, ids.start);
        return Some(Check::ok(IDS, name, meaning));
    }
    Some(match walls?.uid_wall {
        true => Check::ok(IDS, name, "two ids of your subordinate range for each sandbox"),
        false => Check::missing(
            IDS,
            name,
            "programs run under your own id, apart from your other processes by namespaces only",
            "apt-get install uidmap, then usermod --add-subuids 200000-265535 --add-subgids 200000-265535 <you>",
        ),
    })
}

/// Whether a user namespace's map, in the kernel's form, has this id inside.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let (Some(inside), _, Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return false;
        };
        (inside..inside + count).contains(&u64::from(id))
    })
}

fn state(loaded: &Loaded) -> Check {
    let name = "state directory";
    let dir = match loaded.state_dir() {
        Ok(dir) => dir.to_owned(),
        Err(e) => {
            return Check::missing(
                STATE,
                name,
                format!("none: {e}; nothing is cached"),
                "set SANDSTORM_STATE_DIR",
            );
        }
    };
    let fix = "make it writable, or name another with --state-dir";
    let Some(there) = nearest(&dir) else {
        return Check::missing(
            STATE,
            name,
            format!("{} cannot be made; nothing is cached", dir.display()),
            fix,
        );
    };
    if rustix::fs::access(&there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_err() {
        return Check::missing(
            STATE,
            name,
            format!("{} is not writable; nothing is cached", there.display()),
            fix,
        );
    }
    let Ok(space) = rustix::fs::statvfs(&there) else {
        return Check::missing(STATE, name, format!("{} cannot be looked at", there.display()), fix);
    };
    if space.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Check::missing(
            STATE,
            name,
            format!("{} is read-only; nothing is cached", there.display()),
            fix,
        );
    }
    let free = ByteSize::bytes(space.f_bavail.saturating_mul(space.f_frsize));
    let meaning = format!("{}: {} free", dir.display(), roughly(free));
    if free < LITTLE_SPACE {
        return Check::missing(
            STATE,
            name,
            meaning,
            "free some space, or name another folder with --state-dir",
        );
    }
    Check::ok(STATE, name, meaning)
}

/// The folder itself, or the one that it would be made in.
fn nearest(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|path| path.is_dir()).map(Path::to_owned)
}

fn roughly(size: ByteSize) -> String {
    let mib = size.as_u64() >> 20;
    if mib >= 10 * 1024 { format!("{} GiB", mib >> 10) } else { format!("{mib} MiB") }
}

#[cfg(test)]
mod tests {
    use super::super::check::Outcome;
    use super::*;

    #[test]
    fn a_controller_counts_only_when_a_sandbox_got_it() {
        let outcomes = |there: &Hierarchies, walls: &Walls| -> Vec<_> {
            controllers(there, walls).into_iter().map(|check| (check.outcome, check.meaning)).collect()
        };
        let mut walls = Walls::default();
        let absent = outcomes(&Hierarchies::default(), &walls);
        assert!(
            absent.len() == 1 && absent[0].1.starts_with("memory, pids, cpu, cpuacct, freezer: not on"),
            "{absent:?}"
        );
        let there = Hierarchies { on_unified: vec![Controller::Memory], ..Hierarchies::default() };
        assert!(outcomes(&there, &walls)[0].1.contains("may not make groups"));
        walls.cgroup.controllers.push("memory".to_owned());
        assert_eq!(
            outcomes(&there, &walls)[0],
            (Outcome::Ok, "memory: a sandbox has its own; tried".to_owned())
        );
    }

    #[test]
    fn nobody_is_told_to_set_an_option_that_the_kernel_does_not_have() {
        let outcome = |features: &str, options: &str| {
            let mounts =
                format!("29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,{options}\n");
            dynamic_mods_in(features, &mounts, Path::new("/sys/fs/cgroup")).map(|check| check.outcome)
        };
        assert_eq!(outcome("nsdelegate\nmemory_localevents\n", "nsdelegate"), None, "Linux 5.15");
        let features = "nsdelegate\nfavordynmods\nmemory_localevents\n";
        assert_eq!(outcome(features, "nsdelegate"), Some(Outcome::Missing));
        assert_eq!(outcome(features, "nsdelegate,favordynmods"), Some(Outcome::Ok));
    }

    #[test]
    fn ids_are_looked_up_in_the_map() {
        let container = "         0     100000      65536\n";
        assert!(is_mapped(container, 65_535) && !is_mapped(container, 65_536));
        assert!(is_mapped("0 0 4294967295\n", 2_013_265_920));
        assert!(!is_mapped("", 0));
    }

    #[test]
    fn the_nearest_folder_stands_for_one_that_is_not_made_yet() {
        assert_eq!(nearest(Path::new("/proc/self/fd/nothing/here")), Some(PathBuf::from("/proc/self/fd")));
    }
}
