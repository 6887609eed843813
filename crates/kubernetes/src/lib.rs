//! Sandboxes as pods of a Kubernetes cluster.
//!
//! Every sandbox is one pod, made by us or handed out by a warm pool of agent-sandbox. Inside runs the same agent as in a local
//! jail; it is copied in when the pod is up, and spoken with over one `exec` of the cluster's API. So programs, streams, files
//! and watches behave as they do at home, whatever image the pod has.
//!
//! What a pod is, its labels and annotations say; what this process remembers is a cache of that. The cluster, the pod and the
//! agent in it are all somebody else's: what they say is bounded and checked.

mod bounded;
mod claim;
mod cluster;
mod config;
mod counters;
mod create;
mod destroy;
mod error;
mod exec;
mod follower;
mod informer;
mod join;
mod living;
mod marks;
mod network;
mod options;
mod places;
mod pod;
mod provider;
mod verdict;
mod view;
mod walls;

pub use config::{Access, Config, Enforced, Owner, OwnerError, Pull, Scratch, WarmPool};
pub use options::OptionError;
pub use provider::KubernetesProvider;
