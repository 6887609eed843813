//! What is on its way to an agent.
//!
//! Whoever has something to say writes it to the socket itself: most often there is room, and nobody has to be woken. Only
//! what does not fit waits for the task that watches the socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::AgentError;
use crate::socket::Socket;

/// Bytes that may wait to be sent to one sandbox. Input has windows; this bounds everything else, however many ask.
const MOST: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Outbox {
    content: Mutex<Content>,
    /// Something waits for room.
    waits: Notify,
}

#[derive(Debug)]
struct Content {
    /// `None`: the connection is over.
    socket: Option<Arc<Socket>>,
    waiting: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        let content = Content { socket: Some(socket), waiting: Vec::new() };
        Self { content: Mutex::new(content), waits: Notify::new() }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends frames, behind all that was sent before.
    pub(crate) fn send(&self, frames: &[u8]) -> Result<(), AgentError> {
        let mut content = self.content();
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
                if content.waiting.is_empty() {
                    content.waiting = Vec::new();
                    break;
                }
            }
        }
    }

    /// Nothing can be sent any more, and the socket is not held here.
    pub(crate) fn close(&self) {
        *self.content() = Content { socket: None, waiting: Vec::new() };
    }
}
