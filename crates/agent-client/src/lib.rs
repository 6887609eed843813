//! The host's side of an agent: its program, the connection to it, and what can be done over that connection.
//!
//! Once user code has run, whatever arrives here is hostile. The reader bounds every frame, every stream by its window
//! and with it every queue; a peer that breaks a rule loses the connection, and with it the sandbox.

mod client;
mod connect;
mod feeding;
pub mod files;
mod input;
mod link;
mod outbox;
mod outlets;
pub mod program;
pub mod socket;
mod task;
#[cfg(test)]
mod tests;

pub use client::AgentClient;
pub use connect::connect;
pub use feeding::{Feeding, of_found, of_request};
pub use input::TaskInput;
pub use outlets::Outlets;
pub use task::{TaskEvent, TaskHandle};

use sandstorm_agent::protocol::StartFailure;
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;

/// The agent: a static program that becomes PID 1 of every local sandbox, or a process of a pod.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandstorm-agent"));

/// Why the agent cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    #[error("the sandbox is gone")]
    Gone,
    #[error("the agent broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("programs that were killed did not end in time")]
    Unending,
    #[error("a message to the agent is too long")]
    TooLong,
    #[error("the guest interpreter failed at the step {:?}", .0.step)]
    Guest(StartFailure),
}

/// The failure of an operation whose agent cannot be used.
pub fn lost(error: AgentError) -> Error {
    if error == AgentError::TooLong {
        return Error::new(ErrorKind::InvalidRequest, "arguments, variables and files are too long together");
    }
    let what = "the sandbox cannot be reached: what ran in it is lost, and another one has to be made";
    Error::new(ErrorKind::Provider, what).with_source(error)
}
