//! What connects the reader of a socket with the tasks that wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_agent::frame;
use sandstorm_agent::protocol::{Held, InputStream, Stream, TaskId, ToAgent, WINDOW, cost};
use tokio::sync::{mpsc, watch};

use crate::agent::AgentError;
use crate::agent::input::Gate;
use crate::agent::task::{TaskEvent, TaskHandle};

/// Events beside output that a task may send: its start, a failure, the end of each stream and its own.
const WORDS: u32 = 16;

/// Tasks that an agent may say an earlier host left it.
pub(crate) const MOST_HELD: u32 = 4096;

/// Bytes that may wait to be sent to one sandbox.
const UNSENT: usize = 8 << 20;

/// Shared by the two ends of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    slots: Mutex<HashMap<TaskId, Slot>>,
    /// Tasks of an earlier host that nobody has taken over yet.
    held: Mutex<Vec<(Held, TaskHandle)>>,
    outbound: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that wait to be sent. Input has windows; this bounds everything else, however many ask.
    unsent: Arc<AtomicUsize>,
    /// Set once: by `Ready`, or by the reason why there will be none.
    pub(crate) state: watch::Sender<LinkState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkState {
    Starting,
    /// The agent is up and has yet to tell of this many tasks.
    Telling(u32),
    Ready,
    Lost(AgentError),
}

/// One running task, as the socket's reader sees it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// What the windows of its streams let through, and a few words: bounded without a bound of its own, so that no task
    /// ever holds up another.
    events: mpsc::UnboundedSender<TaskEvent>,
    /// Cost of what the agent sent and nobody has acknowledged yet.
    unacknowledged: [u32; 3],
    words: u32,
    gates: [Arc<Gate>; 2],
}

impl Slot {
    /// A task of which an earlier host has no credit back for this much input.
    pub(crate) fn new(events: mpsc::UnboundedSender<TaskEvent>, pending: [u32; 2]) -> Self {
        let gates = pending.map(|pending| Arc::new(Gate::new(pending)));
        Self { events, unacknowledged: [0; 3], words: 0, gates }
    }
}

impl Link {
    pub(crate) fn new(outbound: mpsc::UnboundedSender<Vec<u8>>, unsent: Arc<AtomicUsize>) -> Self {
        let state = watch::Sender::new(LinkState::Starting);
        Self { slots: Mutex::default(), held: Mutex::default(), outbound, unsent, state }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<TaskId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task. `false`: there is one of that number.
    pub(crate) fn insert(&self, id: TaskId, slot: Slot) -> bool {
        self.slots().insert(id, slot).is_none()
    }

    /// Forgets a task. Whoever still waits to write to it hears that it is gone.
    pub(crate) fn remove(&self, id: TaskId) {
        if let Some(slot) = self.slots().remove(&id) {
            slot.gates.iter().for_each(|gate| gate.close());
        }
    }

    /// Passes an event on. A task that nobody listens to any more is not an error: its handle was dropped. One that says
    /// more than it was asked for is: such an agent is not ours any more.
    pub(crate) fn deliver(&self, id: TaskId, event: TaskEvent) -> Result<(), AgentError> {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&id) else { return Ok(()) };
        match &event {
            TaskEvent::Output { stream, bytes } => {
                let waiting = &mut slot.unacknowledged[*stream as usize];
                *waiting = waiting.saturating_add(cost(bytes.len()));
                if *waiting > WINDOW {
                    return Err(AgentError::Protocol("more output than was asked for"));
                }
            }
            _ => {
                slot.words += 1;
                if slot.words > WORDS {
                    return Err(AgentError::Protocol("a task without end of words"));
                }
            }
        }
        let _ = slot.events.send(event);
        Ok(())
    }

    /// Sends a message. One that does not fit into a frame is refused here, where somebody waits for it.
    pub(crate) fn say(&self, message: &ToAgent) -> Result<(), AgentError> {
        let frame = frame::encode(message).map_err(|_| AgentError::TooLong)?;
        if self.unsent.fetch_add(frame.len(), Ordering::Relaxed) > UNSENT {
            self.unsent.fetch_sub(frame.len(), Ordering::Relaxed);
            return Err(AgentError::Protocol("it does not read what it is sent"));
        }
        self.outbound.send(frame).map_err(|_| AgentError::Gone)
    }

    /// Gives credit back for output that was dealt with.
    pub(crate) fn consumed(&self, id: TaskId, stream: Stream, cost: u32) {
        if let Some(slot) = self.slots().get_mut(&id) {
            let waiting = &mut slot.unacknowledged[stream as usize];
            *waiting = waiting.saturating_sub(cost);
        }
        let _ = self.say(&ToAgent::Credit { id, stream, bytes: cost });
    }

    pub(crate) fn gate(&self, id: TaskId, to: InputStream) -> Option<Arc<Gate>> {
        self.slots().get(&id).map(|slot| Arc::clone(&slot.gates[to as usize]))
    }

    /// The agent told of a task that an earlier host left.
    pub(crate) fn hold(&self, held: Held, handle: TaskHandle) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push((held, handle));
    }

    pub(crate) fn take_held(&self) -> Vec<(Held, TaskHandle)> {
        std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The connection is over: every task hears it.
    pub(crate) fn lose(&self, error: AgentError) {
        let slots: Vec<Slot> = self.slots().drain().map(|(_, slot)| slot).collect();
        for slot in slots {
            slot.gates.iter().for_each(|gate| gate.close());
        }
        // A handle that lies here would keep this link alive for ever.
        drop(self.take_held());
        self.state.send_replace(LinkState::Lost(error));
    }
}
