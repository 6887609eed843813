//! What the operator says about a cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sandstorm_types::{ByteSize, IpNetwork, Isolation, MilliCpus, NetworkPolicy};
use thiserror::Error;

/// Longest mark: it is the value of a label.
const MAX_OWNER: usize = 32;

/// A cluster, and what sandboxes are there.
#[derive(Debug, Clone)]
pub struct Config {
    /// Unique among our providers.
    pub name: String,
    /// The mark of this installation; another one with the same mark in the same namespace would take our pods for its own.
    pub owner: Owner,
    pub access: Access,
    /// Where the pods are. It exists already.
    pub namespace: String,
    /// Where the cluster stands, for people and for the choice of a place.
    pub region: Option<String>,
    /// The image of sandboxes that name none. Every image needs `/bin/sh`, `cat`, `chmod`, `mv` and `sleep`.
    pub image: String,
    /// Whether a sandbox may name another image.
    pub other_images: bool,
    /// `IfNotPresent`, `Always` or `Never`.
    pub pull: Pull,
    /// The class of the container runtime, such as one of gVisor or Kata.
    pub runtime_class: Option<String>,
    /// How strong a boundary that class makes.
    pub isolation: Isolation,
    /// Whether pods have a user namespace of their own (`hostUsers: false`).
    pub user_namespaces: bool,
    /// Labels of the nodes that may hold sandboxes.
    pub node_labels: BTreeMap<String, String>,
    pub scratch: Scratch,
    pub enforced: Enforced,
    /// Whether programs get the strict filter of system calls. A pod keeps the filter that it was made with.
    pub strict_filter: bool,
    /// Addresses that no sandbox reaches, whatever its policy says.
    pub denied: Vec<IpNetwork>,
    /// Whether limits count as enforced that hold only roughly: processes are limited by the kernel but it is not told when
    /// that ended a program, the number of files is limited only by the memory that they take, and programs may also have the
    /// memory that an unfilled [`Scratch::Memory`] leaves.
    pub loose_limits: bool,
    /// A pool of agent-sandbox from which fitting sandboxes come.
    pub warm_pool: Option<WarmPool>,
    /// How long a pod may take to be ready.
    pub ready_within: Duration,
    /// How long a pod may wait for a node with room: an autoscaler may make one.
    pub room_within: Duration,
    /// When the cluster ends a pod by itself, whatever becomes of us.
    pub longest_life: Duration,
    pub max_memory: Option<ByteSize>,
    pub max_cpus: Option<MilliCpus>,
}

impl Config {
    pub fn new(name: impl Into<String>, owner: Owner, image: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            owner,
            access: Access::Inferred,
            namespace: "sandstorm".to_owned(),
            region: None,
            image: image.into(),
            other_images: false,
            pull: Pull::IfNotPresent,
            runtime_class: None,
            isolation: Isolation::Container,
            user_namespaces: false,
            node_labels: BTreeMap::new(),
            scratch: Scratch::Memory,
            enforced: Enforced::No,
            strict_filter: false,
            denied: Vec::new(),
            loose_limits: false,
            warm_pool: None,
            ready_within: Duration::from_secs(60),
            room_within: Duration::from_secs(15),
            longest_life: Duration::from_secs(24 * 60 * 60),
            max_memory: None,
            max_cpus: None,
        }
    }
}

/// How the cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// As the command-line tools find it; inside a pod, as that pod's service account.
    Inferred,
    /// By a file, in its current context unless another one is named.
    File { path: PathBuf, context: Option<String> },
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    IfNotPresent,
    Always,
    Never,
}

impl Pull {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
            Self::Never => "Never",
        }
    }
}

/// Where a sandbox writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scratch {
    /// In memory, as a local sandbox does: a full disk refuses more at once. The pod gets that memory beside its programs'.
    Memory,
    /// On the node's disk: a pod that writes too much is ended by the cluster some time later.
    Disk,
}

/// Whether the cluster's network keeps to network policies. Having a policy does not tell: a network that knows none accepts
/// all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// It does not, or nobody knows: sandboxes without a network are not offered.
    No,
    /// The operator says so.
    Declared,
    /// Each sandbox that may not reach this address, which every other pod can, tries it before anything runs in it. One that
    /// reaches it is not handed out. No list allows an address that is not public.
    Tried(SocketAddr),
}

/// A warm pool of agent-sandbox, and what its sandboxes are: only a sandbox that wants just that comes from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmPool {
    /// The name of the `SandboxWarmPool`.
    pub name: String,
    pub cpus: MilliCpus,
    pub memory: ByteSize,
    pub disk: ByteSize,
    pub network: NetworkPolicy,
}

/// The mark of one installation on what it has in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(String);

/// Why a text is no mark.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an owner's mark is 1 to 32 of the characters a-z, 0-9 and `-`, with a letter or digit at both ends")]
pub struct OwnerError;

impl Owner {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Owner {
    type Err = OwnerError;

    fn from_str(text: &str) -> Result<Self, OwnerError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [text.bytes().next(), text.bytes().last()];
        let fine = text.len() <= MAX_OWNER
            && ends.into_iter().all(|end| end.is_some_and(plain))
            && text.bytes().all(|byte| plain(byte) || byte == b'-');
        fine.then(|| Self(text.to_owned())).ok_or(OwnerError)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_fit_into_labels() {
        for good in ["a", "me-2", &"m".repeat(32)] {
            assert!(good.parse::<Owner>().is_ok(), "{good:?}");
        }
        for bad in ["", "A", "a b", "ü", "a/b", "-a", "a-", &"m".repeat(33)] {
            assert_eq!(bad.parse::<Owner>(), Err(OwnerError), "{bad:?}");
        }
    }
}
