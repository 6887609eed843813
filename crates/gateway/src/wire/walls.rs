//! What really stood between a program and its host.

use sandstorm_types::{CgroupVersion, Isolation, LimitName, NetMode, ProcWall, Walls};
use serde::Serialize;
use utoipa::ToSchema;

use super::shapes::LimitNameText;

/// The walls of one sandbox, as measured.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Walls)]
pub(crate) struct WallsBody {
    #[schema(value_type = Tier)]
    tier: Isolation,
    userns: bool,
    /// Whether the program's uid is one that nothing else on the host runs as.
    uid_wall: bool,
    pidns: bool,
    netns: bool,
    ipcns: bool,
    mountns: bool,
    utsns: bool,
    cgroupns: bool,
    pivot: bool,
    caps: Caps,
    nnp: bool,
    seccomp: Option<Seccomp>,
    landlock: Option<Landlock>,
    cgroup: Cgroup,
    #[schema(value_type = ProcName)]
    proc: ProcWall,
    limits: LimitsReport,
    net: Net,
    missing: Vec<MissingPart>,
}

#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum Tier {
    Process,
    Container,
    UserKernel,
    MicroVm,
}

#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum ProcName {
    Host,
    Own,
    Hidden,
    Absent,
}

#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum CgroupName {
    V1,
    V2,
    Hybrid,
    None,
}

#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum NetName {
    None,
    Allow,
    Open,
    Host,
}

/// Capability sets as bit masks.
#[derive(Debug, Serialize, ToSchema)]
struct Caps {
    effective: u64,
    permitted: u64,
    bounding: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct Seccomp {
    profile: String,
    hash: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Landlock {
    abi: u32,
}

#[derive(Debug, Serialize, ToSchema)]
struct Cgroup {
    #[schema(value_type = CgroupName)]
    version: CgroupVersion,
    controllers: Vec<String>,
}

/// Which limits hold.
#[derive(Debug, Serialize, ToSchema)]
struct LimitsReport {
    #[schema(value_type = Vec<LimitNameText>)]
    enforced: Vec<LimitName>,
    missing: Vec<MissingLimitPart>,
}

#[derive(Debug, Serialize, ToSchema)]
struct MissingLimitPart {
    #[schema(value_type = LimitNameText)]
    name: LimitName,
    reason: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Net {
    #[schema(value_type = NetName)]
    mode: NetMode,
    policy_hash: String,
}

/// A wall that is not there, why, and how to get it.
#[derive(Debug, Serialize, ToSchema)]
struct MissingPart {
    name: String,
    reason: String,
    fix: Option<String>,
}

impl From<Walls> for WallsBody {
    fn from(walls: Walls) -> Self {
        let missing_limit =
            |one: sandstorm_types::MissingLimit| MissingLimitPart { name: one.name, reason: one.reason };
        let missing_wall = |one: sandstorm_types::MissingWall| MissingPart {
            name: one.name,
            reason: one.reason,
            fix: one.fix,
        };
        let caps = walls.caps;
        Self {
            tier: walls.tier,
            userns: walls.userns,
            uid_wall: walls.uid_wall,
            pidns: walls.pidns,
            netns: walls.netns,
            ipcns: walls.ipcns,
            mountns: walls.mountns,
            utsns: walls.utsns,
            cgroupns: walls.cgroupns,
            pivot: walls.pivot,
            caps: Caps { effective: caps.effective, permitted: caps.permitted, bounding: caps.bounding },
            nnp: walls.nnp,
            seccomp: walls.seccomp.map(|wall| Seccomp { profile: wall.profile, hash: wall.hash }),
            landlock: walls.landlock.map(|wall| Landlock { abi: wall.abi }),
            cgroup: Cgroup { version: walls.cgroup.version, controllers: walls.cgroup.controllers },
            proc: walls.proc,
            limits: LimitsReport {
                enforced: walls.limits.enforced,
                missing: walls.limits.missing.into_iter().map(missing_limit).collect(),
            },
            net: Net { mode: walls.net.mode, policy_hash: walls.net.policy_hash },
            missing: walls.missing.into_iter().map(missing_wall).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_is_lost() {
        let mut walls = Walls::default();
        walls.miss("netns", "why", Some("how"));
        assert_eq!(
            serde_json::to_value(&walls).unwrap(),
            serde_json::to_value(WallsBody::from(walls)).unwrap()
        );
    }
}
