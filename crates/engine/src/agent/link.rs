//! What connects the reader of a socket with the tasks that wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_agent::frame;
use sandstorm_agent::protocol::{InputStream, Stream, TaskId, ToAgent, WINDOW};
use tokio::sync::{mpsc, watch};

use crate::agent::AgentError;
use crate::agent::input::Gate;
use crate::agent::task::TaskEvent;

/// Events that may wait for a task's reader. Past it the reader of the socket waits too.
pub(crate) const QUEUE: usize = 1024;

/// Shared by the two ends of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    slots: Mutex<HashMap<TaskId, Slot>>,
    outbound: mpsc::UnboundedSender<Vec<u8>>,
    /// Set once: by `Ready`, or by the reason why there will be none.
    pub(crate) state: watch::Sender<LinkState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkState {
    Starting,
    Ready,
    Lost(AgentError),
}

/// One running task, as the socket's reader sees it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) events: mpsc::Sender<TaskEvent>,
    /// Bytes that the agent sent and nobody has acknowledged yet.
    pub(crate) unacknowledged: HashMap<Stream, u32>,
    pub(crate) gates: HashMap<InputStream, Arc<Gate>>,
}

impl Link {
    pub(crate) fn new(outbound: mpsc::UnboundedSender<Vec<u8>>) -> Self {
        Self { slots: Mutex::default(), outbound, state: watch::Sender::new(LinkState::Starting) }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<TaskId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: TaskId, slot: Slot) {
        self.slots().insert(id, slot);
    }

    /// Forgets a task. Whoever still waits to write to it hears that it is gone.
    pub(crate) fn remove(&self, id: TaskId) {
        if let Some(slot) = self.slots().remove(&id) {
            slot.gates.values().for_each(|gate| gate.close());
        }
    }

    pub(crate) fn events_of(&self, id: TaskId) -> Option<mpsc::Sender<TaskEvent>> {
        self.slots().get(&id).map(|slot| slot.events.clone())
    }

    /// Sends a message. One that does not fit into a frame is refused here, where somebody waits for it.
    pub(crate) fn say(&self, message: &ToAgent) -> Result<(), AgentError> {
        let frame = frame::encode(message).map_err(|_| AgentError::TooLong)?;
        self.outbound.send(frame).map_err(|_| AgentError::Gone)
    }

    /// Counts bytes that arrived. An agent that sends more than its window is not ours any more.
    pub(crate) fn arrived(&self, id: TaskId, stream: Stream, bytes: usize) -> Result<(), AgentError> {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&id) else { return Ok(()) };
        let waiting = slot.unacknowledged.entry(stream).or_default();
        let total = u32::try_from(bytes).ok().and_then(|bytes| waiting.checked_add(bytes));
        match total {
            Some(total) if total <= WINDOW => {
                *waiting = total;
                Ok(())
            }
            _ => Err(AgentError::Protocol("more output than was asked for")),
        }
    }

    /// Gives credit back for bytes that were consumed.
    pub(crate) fn consumed(&self, id: TaskId, stream: Stream, bytes: u32) {
        if let Some(slot) = self.slots().get_mut(&id) {
            let waiting = slot.unacknowledged.entry(stream).or_default();
            *waiting = waiting.saturating_sub(bytes);
        }
        let _ = self.say(&ToAgent::Credit { id, stream, bytes });
    }

    pub(crate) fn gate(&self, id: TaskId, to: InputStream) -> Option<Arc<Gate>> {
        self.slots().get(&id).and_then(|slot| slot.gates.get(&to)).cloned()
    }

    /// The connection is over: every task hears it.
    pub(crate) fn lose(&self, error: AgentError) {
        let slots: Vec<Slot> = self.slots().drain().map(|(_, slot)| slot).collect();
        for slot in slots {
            for gate in slot.gates.values() {
                gate.close();
            }
        }
        self.state.send_replace(LinkState::Lost(error));
    }
}
