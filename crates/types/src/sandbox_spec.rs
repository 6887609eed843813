//! What a caller wants a sandbox to be.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Enforcement, EnvMap, Isolation, Labels, LanguageName, Limits, NetworkPolicy, Requirement, SnapshotId,
    duration,
};

/// A wanted sandbox. [`Default`] is the host's toolchains with no network and default limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSpec {
    /// What it starts from.
    pub template: Template,
    pub limits: Limits,
    /// What happens when a limit or wall cannot be had.
    pub enforcement: Enforcement,
    /// The weakest boundary that is acceptable.
    pub isolation: Isolation,
    /// Variables of every exec.
    pub env: EnvMap,
    pub network: NetworkPolicy,
    pub labels: Labels,
    pub lifetime: Lifetime,
    /// Whom execs run as unless they say otherwise.
    pub user: User,
    /// Whether all of the file system can be written, not only the workspace, home and temporary folders.
    pub writable_root: bool,
    /// Where its writable space lies.
    pub space: Space,
    /// Packages to have at hand, per language.
    pub requirements: BTreeMap<LanguageName, Vec<Requirement>>,
}

/// What a sandbox starts from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// The host's own toolchains, read-only.
    #[default]
    Host,
    /// An OCI image, by reference.
    Image(String),
    /// A saved sandbox.
    Snapshot(SnapshotId),
}

/// How long a sandbox lives without being asked to live longer, and what then becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lifetime {
    #[serde(with = "duration::seconds")]
    pub after: Duration,
    pub then: OnEnd,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self { after: Duration::from_secs(300), then: OnEnd::Pause }
    }
}

/// What becomes of a sandbox at the end of its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnEnd {
    #[default]
    Pause,
    /// It is paused with its files only: every program in it ends.
    PauseFiles,
    Delete,
}

/// Whom a program runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// Uid 1000 with home `/home/user`.
    #[default]
    User,
    /// Uid 0 of the sandbox, without capabilities over the host.
    Root,
}

/// Where the writable space of a sandbox lies: its workspace, home and temporary folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// In memory, beside what its programs have.
    #[default]
    Memory,
    /// On the host's disk. What is cached of it in memory counts as its programs' own, which the kernel lets go of first.
    Disk,
}

impl Space {
    pub fn is_memory(&self) -> bool {
        *self == Self::Memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteSize;

    #[test]
    fn nothing_asked_means_defaults() {
        assert_eq!(serde_json::from_str::<SandboxSpec>("{}").unwrap(), SandboxSpec::default());
    }

    #[test]
    fn reads_a_full_spec_and_refuses_unknown_fields() {
        let json = r#"{"template": {"image": "debian:12"}, "limits": {"memory": "64M"}, "user": "root",
            "enforcement": "best_effort", "network": {"allow": ["example.com"]}, "labels": {"a": "b"},
            "lifetime": {"after": "10m", "then": "delete"}, "requirements": {"python": ["numpy"]},
            "isolation": "micro_vm", "writable_root": true, "space": "disk", "env": {"A": "1"}}"#;
        let spec: SandboxSpec = serde_json::from_str(json).unwrap();
        assert_eq!(spec.limits.memory, ByteSize::mib(64));
        assert_eq!(spec.lifetime, Lifetime { after: Duration::from_secs(600), then: OnEnd::Delete });
        assert_eq!((spec.isolation, spec.space), (Isolation::MicroVm, Space::Disk));
        let back = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<SandboxSpec>(&back).unwrap(), spec);
        let binary = postcard::to_stdvec(&spec).unwrap();
        assert_eq!(postcard::from_bytes::<SandboxSpec>(&binary).unwrap(), spec);
        assert!(serde_json::from_str::<SandboxSpec>(r#"{"privileged": true}"#).is_err());
    }

    #[test]
    fn a_bad_limit_is_named() {
        let error =
            serde_json::from_str::<SandboxSpec>(r#"{"limits": {"memory": 0}}"#).unwrap_err().to_string();
        assert!(error.contains("limit `memory` cannot be 0"), "{error}");
    }
}
