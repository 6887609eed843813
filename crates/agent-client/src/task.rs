//! One task from the host's side.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sandstorm_agent::protocol::{
    CHUNK, Ending, PayloadWalls, StartFailure, Stream, TaskId, TaskUsage, ToAgent, WINDOW, cost,
};
use tokio::sync::mpsc;

use crate::TaskInput;
use crate::link::Link;
use crate::program::Named;

/// What happens to a task, in order.
#[derive(Debug)]
pub enum TaskEvent {
    Started(PayloadWalls),
    Failed(StartFailure),
    Output { stream: Stream, bytes: Bytes },
    Closed,
    Exited { ending: Ending, usage: TaskUsage },
}

/// A task that was started. Dropping it ends the task, unless it lasts: nobody could hear of it any more, and one that
/// waits for a reader would wait for ever.
#[derive(Debug)]
pub struct TaskHandle {
    pub id: TaskId,
    pub input: TaskInput,
    /// What its program is called where this host started it.
    pub named: Named,
    link: Arc<Link>,
    events: mpsc::UnboundedReceiver<TaskEvent>,
    /// An event that came while pieces were joined.
    ahead: Option<TaskEvent>,
    /// Cost of the output that the caller has in hand.
    in_hand: Option<(Stream, u32)>,
    /// Dealt with and not acknowledged yet, for each stream: acknowledged in pieces of some size.
    owed: [u32; 3],
    lasting: bool,
    over: bool,
}

impl TaskHandle {
    pub(crate) fn new(input: TaskInput, events: mpsc::UnboundedReceiver<TaskEvent>, lasting: bool) -> Self {
        let (id, link) = (input.id, Arc::clone(&input.link));
        Self {
            id,
            input,
            named: Named::default(),
            link,
            events,
            ahead: None,
            in_hand: None,
            owed: [0; 3],
            lasting,
            over: false,
        }
    }

    /// The next event. `None`: the sandbox is gone before the task ended. Dropping the future loses nothing. Asking for
    /// it says that the one before was dealt with: only then the agent forgets it.
    pub async fn next(&mut self) -> Option<TaskEvent> {
        if let Some((stream, cost)) = self.in_hand.take() {
            self.acknowledge(stream, cost);
        }
        let event = match self.ahead.take() {
            Some(event) => event,
            None => self.events.recv().await?,
        };
        Some(match event {
            TaskEvent::Output { stream, bytes } => {
                let (bytes, cost) = self.join(stream, bytes);
                self.in_hand = Some((stream, cost));
                TaskEvent::Output { stream, bytes }
            }
            other => {
                self.over |= matches!(other, TaskEvent::Exited { .. });
                other
            }
        })
    }

    /// Joins what else of the stream is there already: many small pieces would become many small events.
    fn join(&mut self, stream: Stream, first: Bytes) -> (Bytes, u32) {
        let mut total = cost(first.len());
        let mut joined: Option<BytesMut> = None;
        let mut length = first.len();
        while length < CHUNK
            && let Ok(event) = self.events.try_recv()
        {
            match event {
                TaskEvent::Output { stream: of, bytes } if of == stream && length + bytes.len() <= CHUNK => {
                    total = total.saturating_add(cost(bytes.len()));
                    length += bytes.len();
                    joined.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&bytes);
                }
                other => {
                    self.ahead = Some(other);
                    break;
                }
            }
        }
        (joined.map_or(first, BytesMut::freeze), total)
    }

    fn acknowledge(&mut self, stream: Stream, cost: u32) {
        let owed = &mut self.owed[stream as usize];
        *owed = owed.saturating_add(cost);
        if *owed >= WINDOW / 4 {
            self.link.consumed(self.id, stream, std::mem::take(owed));
        }
    }

    /// Tells the agent that nothing of a task has to be kept. One that lives is ended first; of one that does not last and
    /// has told its end, the agent keeps nothing.
    pub fn forget(&self, lives: bool) {
        if self.over && !self.lasting && !lives {
            return;
        }
        if lives {
            let _ = self.input.say(ToAgent::Signal { id: self.id, signal: 9 });
        }
        let _ = self.input.say(ToAgent::Forget { id: self.id });
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        if !self.lasting && !self.over {
            self.forget(true);
        }
        self.link.remove(self.id);
    }
}
