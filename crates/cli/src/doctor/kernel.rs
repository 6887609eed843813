//! The kernel: namespaces, filters, and switches that weaken or forbid them.

use std::fs;
use std::path::Path;

use sandstorm_types::{ProcWall, Walls};

use super::check::Check;

pub(super) const GROUP: &str = "kernel";

/// A namespace, by its name under `/proc/self/ns`, its wall, and what it separates.
type Namespace = (&'static str, fn(&Walls) -> bool, &'static str);

const NAMESPACES: [Namespace; 7] = [
    ("user", |w| w.userns, "users and capabilities"),
    ("pid", |w| w.pidns, "processes"),
    ("mnt", |w| w.mountns, "files"),
    ("net", |w| w.netns, "the network"),
    ("ipc", |w| w.ipcns, "shared memory and queues"),
    ("uts", |w| w.utsns, "the host name"),
    ("cgroup", |w| w.cgroupns, "the view of control groups"),
];

/// A file of the kernel that forbids or weakens sandboxes when it holds a certain value.
struct Switch {
    path: &'static str,
    name: &'static str,
    bad: fn(&str) -> bool,
    /// Whether nothing works while it is wrong, for an ordinary user or for everybody.
    forbids: Forbids,
    good: &'static str,
    wrong: &'static str,
    fix: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Forbids {
    Everybody,
    Users,
    Nobody,
}

const SWITCHES: [Switch; 5] = [
    Switch {
        path: "/proc/sys/user/max_user_namespaces",
        name: "user.max_user_namespaces",
        bad: |value| value == "0",
        forbids: Forbids::Everybody,
        good: "user namespaces may be made",
        wrong: "no user namespace may be made",
        fix: "sysctl -w user.max_user_namespaces=15000",
    },
    Switch {
        path: "/proc/sys/kernel/unprivileged_userns_clone",
        name: "kernel.unprivileged_userns_clone",
        bad: |value| value == "0",
        forbids: Forbids::Users,
        good: "ordinary users may make user namespaces",
        wrong: "ordinary users may not make user namespaces",
        fix: "sysctl -w kernel.unprivileged_userns_clone=1",
    },
    Switch {
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        name: "kernel.apparmor_restrict_unprivileged_userns",
        bad: |value| value != "0",
        forbids: Forbids::Users,
        good: "AppArmor does not restrict user namespaces",
        wrong: "AppArmor takes the capabilities away in user namespaces of ordinary users",
        fix: "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that allows `userns`",
    },
    Switch {
        path: "/proc/sys/dev/tty/legacy_tiocsti",
        name: "dev.tty.legacy_tiocsti",
        bad: |value| value != "0",
        forbids: Forbids::Nobody,
        good: "no program can type into another's terminal",
        wrong: "programs can type into their terminal; of a sandbox's walls only its filter forbids it",
        fix: "sysctl -w dev.tty.legacy_tiocsti=0",
    },
    Switch {
        path: "/proc/sys/kernel/core_pattern",
        name: "kernel.core_pattern",
        bad: |value| value.starts_with('|'),
        forbids: Forbids::Nobody,
        good: "core dumps go to files; sandboxes make none",
        wrong: "core dumps go to a program that runs as root; sandboxes make none, but others may",
        fix: "sysctl -w kernel.core_pattern=core",
    },
];

pub(crate) fn checks(walls: Option<&Walls>) -> Vec<Check> {
    let mut all = vec![version(walls.is_some())];
    all.extend(NAMESPACES.iter().map(|namespace| check_namespace(namespace, walls)));
    let root = rustix::process::geteuid().is_root();
    all.extend(SWITCHES.iter().filter_map(|switch| {
        let value = fs::read_to_string(switch.path).ok()?;
        Some(read(switch, value.trim(), root))
    }));
    all.push(seccomp(walls));
    all.push(landlock(walls, sandstorm_jail::landlock::kernel_abi()));
    all.extend(walls.map(procfs));
    all
}

/// A kernel that makes a sandbox is new enough, whatever number it has: some distributions add calls to old ones.
fn version(works: bool) -> Check {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    if works || is_supported(&release) {
        return Check::ok(GROUP, "version", &*release);
    }
    let fix = format!("boot Linux {}.{} or newer", OLDEST.0, OLDEST.1);
    Check::broken(
        GROUP,
        "version",
        format!("{release} is older than what sandboxes are built with"),
        Some(fix),
    )
}

/// The oldest kernel that is supported. What newer ones have beyond it is detected; `scripts/kernels.sh` boots older and newer
/// ones.
const OLDEST: (u32, u32) = (5, 15);

fn is_supported(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST
}

fn check_namespace((name, wall, separates): &Namespace, walls: Option<&Walls>) -> Check {
    let label = format!("{name} namespace");
    if !Path::new("/proc/self/ns").join(name).exists() {
        let fix = "boot a kernel that is built with all namespaces".to_owned();
        return Check::broken(GROUP, label, format!("this kernel cannot separate {separates}"), Some(fix));
    }
    match walls.map(wall) {
        Some(true) => Check::ok(GROUP, label, format!("separates {separates}; tried")),
        Some(false) => {
            Check::broken(GROUP, label, format!("a sandbox shares {separates} with the host"), None)
        }
        None => Check::untried(GROUP, label, format!("the kernel has it, to separate {separates}")),
    }
}

fn read(switch: &Switch, value: &str, root: bool) -> Check {
    // A pattern can be long and is somebody else's text.
    let shown: String = value.chars().take(40).collect();
    if !(switch.bad)(value) {
        return Check::ok(GROUP, switch.name, format!("{shown}: {}", switch.good));
    }
    let meaning = format!("{shown}: {}", switch.wrong);
    let forbidden = match switch.forbids {
        Forbids::Everybody => true,
        Forbids::Users => !root,
        Forbids::Nobody => false,
    };
    if forbidden {
        Check::broken(GROUP, switch.name, meaning, Some(switch.fix.to_owned()))
    } else {
        Check::missing(GROUP, switch.name, meaning, switch.fix)
    }
}

fn seccomp(walls: Option<&Walls>) -> Check {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let known =
        ["kill_process", "errno"].iter().all(|action| actions.split_whitespace().any(|a| a == *action));
    match walls.map(|walls| walls.seccomp.is_some()) {
        Some(true) => Check::ok(GROUP, "seccomp", "system calls are filtered; tried"),
        None if known => Check::untried(GROUP, "seccomp", "the kernel can filter system calls"),
        _ => {
            let fix = Some("boot a kernel with CONFIG_SECCOMP_FILTER".to_owned());
            Check::broken(GROUP, "seccomp", "system calls cannot be filtered", fix)
        }
    }
}

fn landlock(walls: Option<&Walls>, abi: u32) -> Check {
    let stands = walls.is_none_or(|walls| walls.landlock.is_some());
    if abi == 0 || !stands {
        let meaning = "the second wall around files is not there: mounts alone keep the host's files away, and without \
                       CAP_SYS_RESOURCE nothing keeps a program from lowering its oom_score_adj to 0";
        let fix = "boot a kernel with CONFIG_SECURITY_LANDLOCK and `landlock` in its lsm= list";
        return Check::missing(GROUP, "landlock", meaning, fix);
    }
    if walls.is_none() {
        return Check::untried(GROUP, "landlock", format!("the kernel has version {abi}"));
    }
    if abi < 2 {
        // Version 1 has no right for it, and refuses what it has no right for.
        let meaning = format!(
            "version {abi}: files are guarded, and nothing can be renamed into another folder: programs get EXDEV"
        );
        return Check::missing(GROUP, "landlock", meaning, "boot Linux 5.19 or newer");
    }
    if abi < 6 {
        let meaning =
            format!("version {abi}: files are guarded; signals and abstract sockets only by namespaces");
        return Check::missing(GROUP, "landlock", meaning, "boot Linux 6.12 or newer");
    }
    Check::ok(
        GROUP,
        "landlock",
        format!("version {abi}: a second wall around files, signals and abstract sockets"),
    )
}

fn procfs(walls: &Walls) -> Check {
    match walls.proc {
        ProcWall::Hidden => {
            Check::ok(GROUP, "proc", "a sandbox sees its own processes only, and not the agent's")
        }
        ProcWall::Own => Check::ok(GROUP, "proc", "a sandbox sees its own processes only"),
        ProcWall::Absent => Check::ok(GROUP, "proc", "a sandbox sees no processes"),
        ProcWall::Host => Check::broken(GROUP, "proc", "a sandbox would see the host's processes", None),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::LandlockWall;

    use super::super::check::Outcome;
    use super::*;

    #[test]
    fn a_switch_forbids_only_whom_it_concerns() {
        let clone = &SWITCHES[1];
        assert_eq!(read(clone, "1", false).outcome, Outcome::Ok);
        assert_eq!(read(clone, "0", false).outcome, Outcome::Broken);
        assert_eq!(read(clone, "0", true).outcome, Outcome::Missing);
        assert_eq!(read(&SWITCHES[0], "0", true).outcome, Outcome::Broken);
    }

    #[test]
    fn every_switch_that_is_wrong_has_a_fix() {
        for (switch, wrong) in
            SWITCHES.iter().zip(["0", "0", "1", "1", "|/usr/lib/systemd/systemd-coredump %P"])
        {
            let check = read(switch, wrong, false);
            assert_ne!(check.outcome, Outcome::Ok, "{}", switch.name);
            assert!(check.fix.is_some(), "{}", switch.name);
        }
    }

    #[test]
    fn an_old_landlock_is_said_to_be_one() {
        let walls = Walls { landlock: Some(LandlockWall { abi: 6 }), ..Walls::default() };
        let none = landlock(None, 0);
        assert_eq!(none.outcome, Outcome::Missing);
        assert!(none.meaning.contains("oom_score_adj"));
        assert!(landlock(Some(&walls), 1).meaning.contains("EXDEV"));
        assert!(landlock(Some(&walls), 3).meaning.contains("version 3"));
        assert_eq!(landlock(Some(&walls), 6).outcome, Outcome::Ok);
        assert_eq!(landlock(Some(&Walls::default()), 6).outcome, Outcome::Missing);
    }

    #[test]
    fn what_no_sandbox_tried_is_not_said_to_work() {
        assert_eq!(landlock(None, 6).outcome, Outcome::Untried);
        assert_eq!(check_namespace(&NAMESPACES[1], None).outcome, Outcome::Untried);
        assert_ne!(seccomp(None).outcome, Outcome::Ok);
    }

    #[test]
    fn the_oldest_kernel_is_known() {
        for (release, supported) in [
            ("5.10.0-46-cloud-amd64", false),
            ("5.14.0-611.el9.x86_64", false),
            ("5.15.0-1", true),
            ("6.1.0-56-amd64", true),
            ("7.3-amd64", true),
            ("", false),
        ] {
            assert_eq!(is_supported(release), supported, "{release}");
        }
    }

    #[test]
    fn a_shared_namespace_is_broken() {
        let walls = Walls { pidns: true, ..Walls::default() };
        assert_eq!(check_namespace(&NAMESPACES[1], Some(&walls)).outcome, Outcome::Ok);
        assert_eq!(check_namespace(&NAMESPACES[3], Some(&walls)).outcome, Outcome::Broken);
    }
}
