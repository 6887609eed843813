//! The wall report: what really stood between a program and its host.
//!
//! Every field is measured by whoever built the sandbox, not assumed from what was asked for. What is
//! missing is listed with the reason and, where there is one, the way to get it.

use serde::{Deserialize, Serialize};

use crate::{Isolation, LimitName};

/// The walls of one sandbox. [`Default`] claims nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Walls {
    pub tier: Isolation,
    pub userns: bool,
    /// Whether the program's uid is one that nothing else on the host runs as.
    pub uid_wall: bool,
    pub pidns: bool,
    pub netns: bool,
    pub ipcns: bool,
    pub mountns: bool,
    pub utsns: bool,
    pub cgroupns: bool,
    /// Whether the host's root was left by `pivot_root` and detached.
    pub pivot: bool,
    pub caps: CapsWall,
    /// Whether `no_new_privs` is set.
    pub nnp: bool,
    pub seccomp: Option<SeccompWall>,
    pub landlock: Option<LandlockWall>,
    pub cgroup: CgroupWall,
    pub proc: ProcWall,
    pub limits: LimitsWall,
    pub net: NetWall,
    pub missing: Vec<MissingWall>,
}

/// Capability sets of the program, as bit masks of the kernel's numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CapsWall {
    pub effective: u64,
    pub permitted: u64,
    pub bounding: u64,
}

/// The system-call filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeccompWall {
    pub profile: String,
    pub hash: String,
}

/// The file-system rules of the kernel's Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockWall {
    pub abi: u32,
}

/// The control groups that hold the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CgroupWall {
    pub version: CgroupVersion,
    pub controllers: Vec<String>,
}

/// Which cgroup hierarchy is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    V1,
    V2,
    /// Controllers in version 1 beside a version 2 mount that has none.
    Hybrid,
    #[default]
    None,
}

/// What a program sees of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcWall {
    /// The host's, or nothing is known.
    #[default]
    Host,
    /// That of its own pid namespace, with every process in it.
    Own,
    /// Its own, with processes of other users hidden, the agent among them.
    Hidden,
    /// None at all.
    Absent,
}

/// Which limits hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitsWall {
    pub enforced: Vec<LimitName>,
    pub missing: Vec<MissingLimit>,
}

/// A limit that could not be enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLimit {
    pub name: LimitName,
    pub reason: String,
}

/// What the network allows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetWall {
    pub mode: NetMode,
    /// Hash of the policy's canonical text.
    pub policy_hash: String,
}

/// The network policy's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetMode {
    None,
    Allow,
    Open,
    /// The host's own network, or nothing is known.
    #[default]
    Host,
}

/// A wall that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingWall {
    /// The field of [`Walls`] that it is about; `walls` where none of them was measured.
    pub name: String,
    pub reason: String,
    /// What the operator can do about it.
    pub fix: Option<String>,
}

impl Walls {
    pub fn miss(&mut self, name: &str, reason: impl Into<String>, fix: Option<&str>) {
        self.missing.push(MissingWall {
            name: name.to_owned(),
            reason: reason.into(),
            fix: fix.map(str::to_owned),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_claims_nothing() {
        let json = serde_json::to_value(Walls::default()).unwrap();
        for (key, value) in json.as_object().unwrap() {
            assert_ne!(value, &serde_json::Value::Bool(true), "{key}");
        }
        assert_eq!(json["net"]["mode"], "host");
        assert_eq!(json["cgroup"]["version"], "none");
        assert_eq!(json["tier"], "process");
    }

    #[test]
    fn every_promised_field_is_there() {
        let json = serde_json::to_value(Walls::default()).unwrap();
        for key in [
            "tier", "userns", "uid_wall", "pidns", "netns", "ipcns", "mountns", "utsns", "cgroupns", "pivot",
            "caps", "nnp", "seccomp", "landlock", "cgroup", "proc", "limits", "net", "missing",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn binary_and_json_carry_all_of_it() {
        let mut walls = Walls { nnp: true, landlock: Some(LandlockWall { abi: 6 }), ..Walls::default() };
        walls.seccomp = Some(SeccompWall { profile: "payload".into(), hash: "ab".into() });
        walls.limits.missing.push(MissingLimit { name: LimitName::Memory, reason: "no cgroup".into() });
        walls.miss("uid_wall", "one id only", Some("install uidmap"));
        let json = serde_json::to_string(&walls).unwrap();
        assert_eq!(serde_json::from_str::<Walls>(&json).unwrap(), walls);
        let binary = postcard::to_stdvec(&walls).unwrap();
        assert_eq!(postcard::from_bytes::<Walls>(&binary).unwrap(), walls);
    }
}
