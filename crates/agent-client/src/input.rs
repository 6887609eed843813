//! Bytes towards a task, never more than the agent has room for.

use std::sync::Arc;

use sandstorm_agent::protocol::{CHUNK, InputStream, TaskId, ToAgent, WINDOW};
use sandstorm_provider::Receipt;
use serde_bytes::ByteBuf;
use tokio::sync::{Semaphore, oneshot};

use crate::AgentError;
use crate::link::{Asked, Link};

/// Room in the agent's window for one input stream.
#[derive(Debug)]
pub(crate) struct Gate(Semaphore);

impl Gate {
    /// `pending`: bytes that were sent and not credited before this host came.
    pub(crate) fn new(pending: u32) -> Self {
        Self(Semaphore::new(WINDOW.saturating_sub(pending) as usize))
    }

    /// The agent passed bytes on. More credit than was ever used would be a lie; it is ignored.
    pub(crate) fn credit(&self, bytes: u32) {
        let used = (WINDOW as usize).saturating_sub(self.0.available_permits());
        self.0.add_permits((bytes as usize).min(used));
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }
}

/// Writes to one input stream of a task. Cloning gives another hand on the same stream.
#[derive(Debug, Clone)]
pub struct TaskInput {
    pub(crate) link: Arc<Link>,
    pub id: TaskId,
    pub to: InputStream,
}

impl TaskInput {
    /// Sends bytes, waiting while the task does not read. Dropping the future leaves a prefix sent.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), AgentError> {
        for piece in bytes.chunks(CHUNK) {
            let input = self.piece(piece).await?;
            self.link.say_input(piece.len() as u32, &[input]).await?;
        }
        Ok(())
    }

    /// Sends one message to the side channel: the program gets all of it or nothing.
    pub async fn send(&self, message: &[u8]) -> Result<(), AgentError> {
        // The end goes with the last piece, so that the agent is woken once for a short message.
        let (before, last) = message.split_at((message.len().saturating_sub(1) / CHUNK) * CHUNK);
        self.write(before).await?;
        let length = last.len() as u32;
        let last = self.piece(last).await?;
        self.link.say_input(length, &[last, ToAgent::Commit { id: self.id }]).await
    }

    /// Sends one message at once. `false`: it is too long for that, or there is no room for it now, or nobody to take it.
    pub fn try_send(&self, message: &[u8]) -> bool {
        let Some(gate) = self.link.gate(self.id, self.to).filter(|_| message.len() <= CHUNK) else {
            return false;
        };
        let Ok(room) = gate.0.try_acquire_many(message.len() as u32) else { return false };
        room.forget();
        let input = ToAgent::Input { id: self.id, to: self.to, bytes: ByteBuf::from(message) };
        let said = self.link.try_say_input(message.len() as u32, &[input, ToAgent::Commit { id: self.id }]);
        if !said {
            gate.credit(message.len() as u32);
        }
        said
    }

    /// A piece that there is room for now.
    async fn piece(&self, bytes: &[u8]) -> Result<ToAgent, AgentError> {
        let gate = self.link.gate(self.id, self.to).ok_or(AgentError::Gone)?;
        let room = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        gate.0.acquire_many(room).await.map_err(|_| AgentError::Gone)?.forget();
        Ok(ToAgent::Input { id: self.id, to: self.to, bytes: ByteBuf::from(bytes) })
    }

    /// Whether the agent tells how much input it has taken.
    pub(crate) async fn is_counted(&self) -> Result<bool, AgentError> {
        self.link.counts_input().await
    }

    /// How much of the main input the agent has taken, with all that was sent before this.
    pub(crate) async fn taken(&self) -> Result<u64, AgentError> {
        let (to, told) = oneshot::channel();
        self.link.ask_taken(self.id, Asked::Count(to))?;
        told.await.map_err(|_| AgentError::Gone)
    }

    /// Has the receipt given once the agent has taken its main input up to `end`, all of which was sent before this.
    pub(crate) fn confirm(&self, end: u64, receipt: Receipt) -> Result<(), AgentError> {
        self.link.ask_taken(self.id, Asked::Delivery { end, receipt })
    }

    pub fn close(&self) -> Result<(), AgentError> {
        self.say(ToAgent::CloseInput { id: self.id, to: self.to })
    }

    pub fn say(&self, message: ToAgent) -> Result<(), AgentError> {
        self.link.say(&message)
    }
}
