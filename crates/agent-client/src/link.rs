//! What connects the reader of a socket with the tasks that wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_agent::frame;
use sandstorm_agent::protocol::{
    COUNTS_INPUT, ENDS_ALL, Held, InputStream, PayloadWalls, StartFailure, Stream, TaskId, ToAgent, WINDOW,
    cost,
};
use sandstorm_provider::{Error, Receipt};
use sandstorm_types::ErrorKind;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use crate::AgentError;
use crate::input::Gate;
use crate::outbox::Outbox;
use crate::outlets::Outlets;
use crate::task::{TaskEvent, TaskHandle};

/// Events beside output that a task may send: its start, a failure, the end of each stream and its own.
const WORDS: u32 = 16;

/// Guests of which an agent may tell without anybody having taken them.
const MOST_GUESTS: usize = 256;

/// Uploads to one sandbox at once. Each is a process inside, and what it has not written yet lies in the agent's memory.
const UPLOADS: usize = 16;

/// What an agent told of guests, by their numbers.
pub(crate) type Guests = HashMap<u32, Result<PayloadWalls, StartFailure>>;

/// Shared by the two ends of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    slots: Mutex<HashMap<TaskId, Slot>>,
    /// Tasks of an earlier host that nobody has taken over yet.
    held: Mutex<Vec<(Held, TaskHandle)>>,
    /// How many of those the agent may tell of.
    pub(crate) most_held: u32,
    outbox: Outbox,
    /// Guests that wait for a program, and those that failed.
    pub(crate) guests: watch::Sender<Guests>,
    /// The outlets of guests that nobody has taken yet.
    outlets: Mutex<HashMap<u32, Outlets>>,
    /// Set once: by `Ready`, or by the reason why there will be none.
    pub(crate) state: watch::Sender<LinkState>,
    /// Questions about the input of tasks that ended before the agent's answer came.
    late: Mutex<HashMap<TaskId, VecDeque<Asked>>>,
    /// Turns of uploads.
    pub(crate) uploads: Semaphore,
    /// The protocol that the agent speaks, once it greeted.
    version: AtomicU16,
    /// Told whenever the last task is gone.
    emptied: Notify,
}

/// Who waits for an answer of the agent about a task's input.
#[derive(Debug)]
pub(crate) enum Asked {
    /// How much it has taken.
    Count(oneshot::Sender<u64>),
    /// Whether it has taken everything up to this place.
    Delivery { end: u64, receipt: Receipt },
}

impl Asked {
    fn answer(self, taken: u64) {
        match self {
            Self::Count(to) => drop(to.send(taken)),
            Self::Delivery { end, receipt } if taken >= end => receipt.give(Ok(Some(taken))),
            Self::Delivery { receipt, .. } => {
                let what = "the program takes no more input";
                receipt.give(Err(Error::new(ErrorKind::Conflict, what)));
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkState {
    Starting,
    /// The agent is up and has yet to tell of this many tasks.
    Telling(u32),
    Ready,
    Lost(AgentError),
}

fn frames(messages: &[ToAgent]) -> Result<Vec<u8>, AgentError> {
    let mut frames = Vec::new();
    for message in messages {
        frame::append(message, &mut frames).map_err(|_| AgentError::TooLong)?;
    }
    Ok(frames)
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
    /// Questions about its main input, in the order in which they are answered.
    asked: VecDeque<Asked>,
}

impl Slot {
    /// A task of which an earlier host has no credit back for this much input.
    pub(crate) fn new(events: mpsc::UnboundedSender<TaskEvent>, pending: [u32; 2]) -> Self {
        let gates = pending.map(|pending| Arc::new(Gate::new(pending)));
        Self { events, unacknowledged: [0; 3], words: 0, gates, asked: VecDeque::new() }
    }
}

impl Link {
    pub(crate) fn new(outbox: Outbox, most_held: u32) -> Self {
        let state = watch::Sender::new(LinkState::Starting);
        let guests = watch::Sender::new(Guests::new());
        let (slots, held, outlets, late) = Default::default();
        let uploads = Semaphore::new(UPLOADS);
        let version = AtomicU16::new(0);
        Self {
            slots,
            held,
            most_held,
            outbox,
            guests,
            outlets,
            state,
            late,
            uploads,
            version,
            emptied: Notify::new(),
        }
    }

    /// The agent greeted in this version of the protocol.
    pub(crate) fn greeted(&self, version: u16) {
        self.version.store(version, Ordering::Release);
    }

    /// Whether the agent, once it is there, tells how much input it has taken.
    pub(crate) async fn counts_input(&self) -> Result<bool, AgentError> {
        Ok(self.version().await? >= COUNTS_INPUT)
    }

    /// The version of the protocol that the agent speaks, once it is there.
    pub(crate) async fn version(&self) -> Result<u16, AgentError> {
        let mut state = self.state.subscribe();
        let met = state.wait_for(|state| *state != LinkState::Starting).await;
        drop(met.map_err(|_| AgentError::Gone)?);
        Ok(self.version.load(Ordering::Acquire))
    }

    /// Has every process in the sandbox ended. `false`: its agent is of an older server, and does not know how.
    pub(crate) fn end_all(&self) -> Result<bool, AgentError> {
        if self.version.load(Ordering::Acquire) < ENDS_ALL {
            return Ok(false);
        }
        self.say(&ToAgent::EndAll).map(|()| true)
    }

    /// Waits until nobody has a hand on a task.
    pub(crate) async fn is_idle(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.slots().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Asks how much of a task's main input the agent has taken. A task may have ended just before: what it took, it took.
    pub(crate) fn ask_taken(&self, id: TaskId, asked: Asked) -> Result<(), AgentError> {
        let mut slots = self.slots();
        match slots.get_mut(&id) {
            Some(slot) => slot.asked.push_back(asked),
            None => self.late().entry(id).or_default().push_back(asked),
        }
        drop(slots);
        self.say(&ToAgent::AskTaken { id, to: InputStream::Main })
            .inspect_err(|_| drop(self.late().remove(&id)))
    }

    /// The agent's answer.
    pub(crate) fn taken(&self, id: TaskId, bytes: u64) -> Result<(), AgentError> {
        let mut slots = self.slots();
        let asked = match slots.get_mut(&id) {
            Some(slot) => slot.asked.pop_front(),
            None => self.late_question(id),
        };
        drop(slots);
        asked.ok_or(AgentError::Protocol("an answer without a question"))?.answer(bytes);
        Ok(())
    }

    fn late_question(&self, id: TaskId) -> Option<Asked> {
        let mut late = self.late();
        let asked = late.get_mut(&id)?.pop_front();
        late.retain(|_, questions| !questions.is_empty());
        asked
    }

    /// To be locked after the slots, where both are.
    fn late(&self) -> MutexGuard<'_, HashMap<TaskId, VecDeque<Asked>>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits for room, until the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), LinkState::Lost(_)) || self.outbox.is_over()
    }

    pub(crate) async fn empty_outbox(&self) {
        self.outbox.empty().await;
    }

    /// The agent told of a guest.
    pub(crate) fn met(&self, guest: u32, told: Result<PayloadWalls, StartFailure>) -> Result<(), AgentError> {
        let mut fits = true;
        self.guests.send_if_modified(|guests| {
            fits = guests.len() < MOST_GUESTS || guests.contains_key(&guest);
            if fits {
                guests.insert(guest, told);
            }
            fits
        });
        if fits { Ok(()) } else { Err(AgentError::Protocol("guests without end")) }
    }

    /// The agent lends the outlets of a guest of which it is about to tell.
    pub(crate) fn lent(&self, guest: u32, outlets: Outlets) {
        self.outlets().insert(guest, outlets);
    }

    pub(crate) fn take_outlets(&self, guest: u32) -> Option<Outlets> {
        self.outlets().remove(&guest)
    }

    fn outlets(&self) -> MutexGuard<'_, HashMap<u32, Outlets>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a guest. `false`: it does not wait.
    pub(crate) fn take_guest(&self, guest: u32) -> bool {
        let mut waits = false;
        self.guests.send_if_modified(|guests| {
            waits = guests.remove(&guest).is_some_and(|told| told.is_ok());
            false
        });
        waits
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
        let mut slots = self.slots();
        let Some(slot) = slots.remove(&id) else { return };
        if slots.is_empty() {
            self.emptied.notify_waiters();
        }
        if !slot.asked.is_empty() {
            self.late().entry(id).or_default().extend(slot.asked);
        }
        drop(slots);
        slot.gates.iter().for_each(|gate| gate.close());
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
        self.say_all(std::slice::from_ref(message))
    }

    /// Sends several in one go.
    pub(crate) fn say_all(&self, messages: &[ToAgent]) -> Result<(), AgentError> {
        self.outbox.send(&frames(messages)?)
    }

    /// Sends input as soon as there is room for it, with what belongs to it.
    pub(crate) async fn say_input(&self, bytes: u32, messages: &[ToAgent]) -> Result<(), AgentError> {
        let room = self.outbox.room(bytes).await?;
        self.outbox.send_input(&frames(messages)?, room)
    }

    /// Sends input if there is room for it now. `false`: there is none, or nobody to take it.
    pub(crate) fn try_say_input(&self, bytes: u32, messages: &[ToAgent]) -> bool {
        let Some(room) = self.outbox.try_room(bytes) else { return false };
        frames(messages).and_then(|frames| self.outbox.send_input(&frames, room)).is_ok()
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
        let late = std::mem::take(&mut *self.late());
        drop(late);
        // A handle that lies here would keep this link alive for ever.
        drop(self.take_held());
        self.outlets().clear();
        self.outbox.close();
        self.state.send_if_modified(|state| {
            let first = !matches!(state, LinkState::Lost(_));
            if first {
                *state = LinkState::Lost(error);
            }
            first
        });
    }
}
