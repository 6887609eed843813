//! E2B's API over `control`, so that its official SDKs work unchanged.
//!
//! There are two planes. The control plane makes, lists and ends sandboxes and is called with a key. The data plane is
//! what E2B runs inside a sandbox: `envd` (commands and files, port 49983) and the code interpreter (port 49999). It is
//! reached by a host of its own, `{port}-{id}.{domain}`, or by the headers `E2b-Sandbox-Id` and `E2b-Sandbox-Port` on
//! any host, and is opened by the sandbox's own token. Other ports lead to what the sandbox's programs listen on.
//!
//! [`Dialect::routes`] are the control plane, [`Dialect::open`] what needs no key, and [`Dialect::data_plane`] is for
//! the requests for which [`Dialect::claims`] holds, whatever their path is.

mod address;
mod body;
mod browsers;
mod door;
mod envd;
mod files;
mod filesystem;
mod interpreter;
mod leftovers;
mod paths;
mod process;
mod query;
mod refusal;
mod router;
mod rpc;
mod sandboxes;
mod settings;
mod signature;
mod state;

pub use refusal::refusal;
pub use settings::E2bSettings;
pub use state::{Dialect, Forward, PortRequest};
