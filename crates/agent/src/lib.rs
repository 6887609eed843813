//! The agent: PID 1 of a sandbox, and the protocol that it speaks with the host.
//!
//! Host and guest share [`protocol`] and [`frame`]; the host also uses [`archive`] to take files back. The rest is the
//! guest's. The agent starts every program and does every file operation in a child that first becomes the payload's
//! user behind every wall ([`child`]), so nothing on the host ever opens a path inside a sandbox.

pub mod archive;
mod child;
mod connect;
mod door;
mod files;
pub mod frame;
mod guest;
pub mod protocol;
mod rank;
mod serve;
mod task;
mod terminal;
mod watch;

pub use door::knock;
pub use guest::{Giver, Word, job};
pub use rank::{AGENT_RANK, PAYLOAD_RANK, open_score};
pub use serve::{prepare, serve};

/// The descriptor at which PID 1 finds its control socket.
pub const CONTROL_DESCRIPTOR: i32 = 3;

/// The descriptor at which PID 1 finds its door: a socket through which the launcher hands it a new connection to a host,
/// or a guest interpreter.
/// While somebody holds the other end, PID 1 waits for the next host when it loses one.
pub const DOOR_DESCRIPTOR: i32 = 4;

/// The descriptor at which PID 1 finds its own score for when memory runs out: see [`open_score`].
pub const SCORE_DESCRIPTOR: i32 = 5;
