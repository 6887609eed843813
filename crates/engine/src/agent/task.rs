//! One task from the host's side.

use std::sync::Arc;

use bytes::Bytes;
use sandstorm_agent::protocol::{Ending, PayloadWalls, StartFailure, Stream, TaskId, TaskUsage, WINDOW};
use tokio::sync::mpsc;

use crate::agent::TaskInput;
use crate::agent::link::Link;

/// What happens to a task, in order.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    Started(PayloadWalls),
    Failed(StartFailure),
    Output { stream: Stream, bytes: Bytes },
    Closed,
    Exited { ending: Ending, usage: TaskUsage },
}

/// A task that was started. Dropping it forgets the task; it does not end it.
#[derive(Debug)]
pub(crate) struct TaskHandle {
    pub(crate) id: TaskId,
    pub(crate) input: TaskInput,
    pub(crate) link: Arc<Link>,
    pub(crate) events: mpsc::Receiver<TaskEvent>,
    /// Consumed and not acknowledged yet, for each stream: acknowledged in pieces of some size.
    pub(crate) owed: [(Stream, u32); 3],
}

impl TaskHandle {
    /// The next event. `None`: the sandbox is gone before the task ended. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<TaskEvent> {
        let event = self.events.recv().await?;
        if let TaskEvent::Output { stream, bytes } = &event {
            self.acknowledge(*stream, bytes.len());
        }
        Some(event)
    }

    fn acknowledge(&mut self, stream: Stream, bytes: usize) {
        for (of, owed) in &mut self.owed {
            if *of == stream {
                *owed = owed.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
                if *owed >= WINDOW / 4 {
                    self.link.consumed(self.id, stream, *owed);
                    *owed = 0;
                }
            }
        }
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.link.remove(self.id);
    }
}
