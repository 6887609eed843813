//! The session API under `/workspace/se`, over control.
//!
//! A session is a sandbox that is found by a name its user chose. It is made by the first request that needs it, keeps its
//! files in `/workspace`, and starts a new process for each execution; only a session that asked to be persistent keeps an
//! interpreter. What is written here is the wire format of that API: routes, fields, answers and errors. Every rule about
//! what is allowed lives in `control`.
//!
//! The gateway puts an `Extension<Caller>` on each request before it comes here; a tenant sees its own sessions only.

mod answer;
mod document;
mod fields;
mod file_types;
mod paths;
mod program;
mod refusal;
mod request;
mod router;
mod routes;
mod session;
mod session_id;
mod settings;
mod throwaway;

pub use router::router;
pub use settings::SessionSettings;
