//! The host's end of the agent's socket.
//!
//! Once user code has run, whatever arrives here is hostile. The reader bounds every frame, every stream by its window
//! and with it every queue; a peer that breaks a rule loses the connection, and with it the sandbox.

mod client;
mod input;
mod link;
mod outbox;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use client::AgentClient;
pub(crate) use input::TaskInput;
pub(crate) use task::{TaskEvent, TaskHandle};

use sandstorm_agent::protocol::StartFailure;

/// Why the agent cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("the sandbox is gone")]
    Gone,
    #[error("the agent broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("a message to the agent is too long")]
    TooLong,
    #[error("the guest interpreter failed at the step {:?}", .0.step)]
    Guest(StartFailure),
}
