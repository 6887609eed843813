//! What is on its way to an agent.
//!
//! Whoever has something to say writes it to the socket itself: most often there is room, and nobody has to be woken. Only
//! what does not fit waits for the task that watches the socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::AgentError;
use crate::socket::Socket;

/// Bytes that may wait to be sent to one sandbox. More is a sandbox that does not read.
const MOST: usize = 8 << 20;
/// Bytes of input among them. Each task has a window of its own, so it is the number of tasks that this bounds: who finds no
/// room waits for it, and leaves the rest to what must always get through.
const MOST_INPUT: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Outbox {
    content: Mutex<Content>,
    /// Something waits for room.
    waits: Notify,
    /// Room for input.
    room: Semaphore,
}

#[derive(Debug)]
struct Content {
    /// `None`: the connection is over.
    socket: Option<Arc<Socket>>,
    waiting: Vec<u8>,
    /// Room that input which waits has taken.
    taken: usize,
}

impl Outbox {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        let content = Content { socket: Some(socket), waiting: Vec::new(), taken: 0 };
        Self { content: Mutex::new(content), waits: Notify::new(), room: Semaphore::new(MOST_INPUT) }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends frames, behind all that was sent before.
    pub(crate) fn send(&self, frames: &[u8]) -> Result<(), AgentError> {
        self.put(&mut self.content(), frames)
    }

    /// Waits until there is room for so many bytes of input.
    pub(crate) async fn room(&self, bytes: u32) -> Result<SemaphorePermit<'_>, AgentError> {
        self.room.acquire_many(bytes).await.map_err(|_| AgentError::Gone)
    }

    /// Room for so many bytes of input, if it is there at once.
    pub(crate) fn try_room(&self, bytes: u32) -> Option<SemaphorePermit<'_>> {
        self.room.try_acquire_many(bytes).ok()
    }

    /// Sends frames with input that there is room for.
    pub(crate) fn send_input(&self, frames: &[u8], room: SemaphorePermit<'_>) -> Result<(), AgentError> {
        let mut content = self.content();
        self.put(&mut content, frames)?;
        if !content.waiting.is_empty() {
            content.taken += room.num_permits();
            room.forget();
        }
        Ok(())
    }

    fn put(&self, content: &mut Content, frames: &[u8]) -> Result<(), AgentError> {
        let socket = content.socket.as_ref().ok_or(AgentError::Gone)?;
        let sent = match content.waiting.is_empty() {
            true => socket.try_write(frames).map_err(|_| AgentError::Gone)?,
            false => 0,
        };
        if sent == frames.len() {
            return Ok(());
        }
        if content.waiting.len() > MOST {
            return Err(AgentError::Protocol("it does not read what it is sent"));
        }
        content.waiting.extend_from_slice(&frames[sent..]);
        self.waits.notify_one();
        Ok(())
    }

    /// Whether nobody is there to send to.
    pub(crate) fn is_over(&self) -> bool {
        self.content().socket.as_ref().is_none_or(|socket| socket.is_hung_up())
    }

    /// Sends what waits, as there is room for it, until the connection is over.
    pub(crate) async fn empty(&self) {
        loop {
            self.waits.notified().await;
            let Some(socket) = self.content().socket.clone() else { return };
            loop {
                if socket.writable().await.is_err() {
                    return;
                }
                let mut content = self.content();
                // A broken one is told by whoever reads from it.
                let Ok(sent) = socket.try_write(&content.waiting) else { return };
                content.waiting.drain(..sent);
                // What is sent frees its room. Other messages lie among the input, so a little may be freed early.
                let freed = content.taken.saturating_sub(content.waiting.len());
                content.taken -= freed;
                self.room.add_permits(freed);
                if content.waiting.is_empty() {
                    content.waiting = Vec::new();
                    break;
                }
            }
        }
    }

    /// Nothing can be sent any more, and the socket is not held here.
    pub(crate) fn close(&self) {
        *self.content() = Content { socket: None, waiting: Vec::new(), taken: 0 };
        self.room.close();
    }
}
