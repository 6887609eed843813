//! Vocabulary of Sandstorm: specs, limits, ids, states, events, results, capabilities. No I/O, no async.
//!
//! Every crate speaks in these types, so that raw input becomes a rich type once, at the edge, and the
//! same words mean the same thing in the engine, the router and the gateway. What is parsed here is
//! parsed strictly: an accepted value is a usable value.

mod address;
mod blob;
mod byte_size;
mod capabilities;
mod cpus;
mod denied;
pub mod duration;
mod enforcement;
mod env;
mod error_kind;
mod event;
mod guest_path;
mod host_name;
mod ids;
mod ip_network;
mod isolation;
mod labels;
mod language_name;
mod limit_name;
mod limit_value;
mod limits;
mod limits_patch;
mod nat64;
mod network;
mod objective;
mod requirement;
mod result;
mod routing;
mod run_spec;
mod sandbox_spec;
mod state;
mod text_form;
mod text_splitter;
mod timestamp;
mod usd;
mod walls;

pub use address::{is_public, public_networks, special_networks};
pub use blob::Blob;
pub use byte_size::{ByteSize, ByteSizeError};
pub use capabilities::{Capabilities, Unmet};
pub use cpus::{MilliCpus, MilliCpusError};
pub use denied::{Denied, DeniedList, DeniedProtocol};
pub use enforcement::Enforcement;
pub use env::{EnvError, EnvMap, EnvName};
pub use error_kind::{ErrorKind, Retry};
pub use event::{Chunk, ChunkData, End, Event, EventBody, Problem, Stream};
pub use guest_path::{GuestPath, GuestPathError};
pub use host_name::{HostName, HostNameError, HostPattern};
pub use ids::{ContextId, ExecId, IdError, RunId, SandboxId, SnapshotId, TenantId};
pub use ip_network::{IpNetwork, IpNetworkError};
pub use isolation::Isolation;
pub use labels::{Labels, LabelsError};
pub use language_name::{LanguageName, LanguageNameError};
pub use limit_name::{LimitName, LimitSet, UnknownLimit};
pub use limit_value::{LimitError, LimitValue};
pub use limits::Limits;
pub use limits_patch::LimitsPatch;
pub use nat64::{Nat64Prefix, Nat64PrefixError};
pub use network::{
    AllowList, HeaderRule, NetworkFilter, NetworkFilterError, NetworkPolicy, NetworkPolicyError, Rule, Target,
};
pub use objective::{Objective, Weights, WeightsError};
pub use requirement::{Requirement, RequirementError};
pub use result::{
    Attempt, Metrics, PerStream, ProgramError, RichResult, Route, RunResult, Status, cli_exit_code,
    exit_code_after,
};
pub use routing::{Require, Routing, RoutingError};
pub use run_spec::{RunSpec, RunSpecError};
pub use sandbox_spec::{Lifetime, OnEnd, SandboxSpec, Space, Template, User};
pub use state::{Conflict, Phase, State, Step, Transition};
pub use text_splitter::TextSplitter;
pub use timestamp::{Timestamp, TimestampError};
pub use usd::{Usd, UsdError};
pub use walls::{
    CapsWall, CgroupVersion, CgroupWall, LandlockWall, LimitsWall, MissingLimit, MissingWall, NetMode,
    NetWall, ProcWall, SeccompWall, Walls,
};
