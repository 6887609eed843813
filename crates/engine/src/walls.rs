//! The jail's report in the words of the one wall report that every provider gives.

use std::sync::LazyLock;

use sandstorm_jail::Report;
use sandstorm_jail::cgroup::{Controller, Version};
use sandstorm_types::{
    CapsWall, CgroupVersion, CgroupWall, Isolation, LandlockWall, LimitName, LimitsWall, MissingLimit,
    NetMode, NetWall, NetworkPolicy, ProcWall, SeccompWall, Walls,
};

pub(crate) fn of_jail(report: &Report, network: &NetworkPolicy, cpu_time_asked: bool) -> Walls {
    let measured = &report.measured;
    let mut walls = Walls {
        tier: Isolation::Container,
        userns: report.separates("user"),
        uid_wall: report.own_ids,
        pidns: report.separates("pid"),
        netns: report.separates("net"),
        ipcns: report.separates("ipc"),
        mountns: report.separates("mnt"),
        utsns: report.separates("uts"),
        cgroupns: report.separates("cgroup"),
        pivot: measured.own_root,
        // Each program measures its own sets before it starts, and one that finds anything in them is refused.
        caps: CapsWall { effective: 0, permitted: 0, bounding: measured.bounding_set },
        nnp: measured.no_new_privs,
        seccomp: (measured.seccomp_mode == 2).then(|| SeccompWall {
            profile: report.filter_profile.clone(),
            hash: report.filter_hash.clone(),
        }),
        landlock: (report.landlock_abi > 0).then_some(LandlockWall { abi: report.landlock_abi }),
        cgroup: CgroupWall { version: version(report.cgroup), controllers: controllers(&report.controllers) },
        // Mounted with this option, or there is no jail.
        proc: ProcWall::Hidden,
        limits: limits(report, cpu_time_asked),
        net: net(network),
        missing: Vec::new(),
    };
    if !report.own_ids {
        let fix = "install the package uidmap and give the user a range in /etc/subuid and /etc/subgid";
        walls.miss("uid_wall", "only the caller's own user id can be mapped", Some(fix));
    }
    if !measured.no_groups {
        let fix = "run as root, or install the package uidmap";
        walls.miss("groups", "the caller's supplementary groups cannot be given up", Some(fix));
    }
    if !measured.landlock {
        let reason = "this kernel has no Landlock: mounts alone guard files, and a program may lower its oom_score_adj";
        walls.miss("landlock", reason, Some("boot a kernel with lsm=landlock"));
    }
    if !measured.shared.is_empty() {
        let reason = format!(
            "{} shown with the host's own inodes: others see what is opened and locked there",
            measured.shared.join(", ")
        );
        walls.miss("own_inodes", reason, Some("run as root, on a kernel with overlayfs"));
    }
    if report.cgroup == Version::None {
        let fix = "run as root, or in a delegated control group";
        walls.miss("cgroup", "no control group can be made by this user", Some(fix));
    }
    walls
}

/// What a policy lets out.
pub(crate) fn net(network: &NetworkPolicy) -> NetWall {
    // What most have.
    static NONE: LazyLock<String> = LazyLock::new(|| policy_hash(&NetworkPolicy::None));
    let policy_hash = if *network == NetworkPolicy::None { NONE.clone() } else { policy_hash(network) };
    NetWall { mode: mode(network), policy_hash }
}

fn policy_hash(network: &NetworkPolicy) -> String {
    blake3::hash(network.canonical().as_bytes()).to_hex().to_string()
}

fn limits(report: &Report, cpu_time_asked: bool) -> LimitsWall {
    let missing: Vec<MissingLimit> = report
        .missing_limits
        .iter()
        .filter_map(|(name, reason)| Some(MissingLimit { name: name.parse().ok()?, reason: reason.clone() }))
        .collect();
    let enforced = LimitName::ALL
        .into_iter()
        .filter(|name| *name != LimitName::CpuTime || cpu_time_asked)
        .filter(|name| missing.iter().all(|m| m.name != *name))
        .collect();
    LimitsWall { enforced, missing }
}

fn version(version: Version) -> CgroupVersion {
    match version {
        Version::None => CgroupVersion::None,
        Version::V1 => CgroupVersion::V1,
        Version::V2 => CgroupVersion::V2,
        Version::Hybrid => CgroupVersion::Hybrid,
    }
}

fn controllers(controllers: &[Controller]) -> Vec<String> {
    controllers.iter().map(|c| c.name().to_owned()).collect()
}

fn mode(network: &NetworkPolicy) -> NetMode {
    match network {
        NetworkPolicy::None => NetMode::None,
        NetworkPolicy::Allow(_) => NetMode::Allow,
        NetworkPolicy::Filter(filter) if filter.denies_everything() => NetMode::Allow,
        NetworkPolicy::Open | NetworkPolicy::Filter(_) => NetMode::Open,
    }
}
