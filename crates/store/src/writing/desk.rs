//! Who has the desk writes.

use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::Writing;
use super::queue::{Hand, Queue};

/// How long a caller writes what others ask for; the thread does what comes then.
const STAY: Duration = Duration::from_millis(1);

/// The right to write. Given back when it is dropped, whatever happened meanwhile.
#[derive(Debug)]
pub(super) struct Desk<'q> {
    queue: &'q Queue,
    writing: Option<Box<Writing>>,
}

impl<'q> Desk<'q> {
    pub(super) fn new(queue: &'q Queue, mut writing: Box<Writing>, hand: Hand) -> Self {
        writing.hand = hand;
        Self { queue, writing: Some(writing) }
    }

    /// Writes what waits, here and now: nothing of this can be dropped half-way.
    pub(super) fn write_here(mut self) {
        let sat_down = Instant::now();
        let mut began = sat_down;
        while began - sat_down < STAY
            && let Some(writing) = &mut self.writing
            && let Some(job) = self.queue.next_if(Hand::Caller, |_| true)
        {
            if writing.batch(job, self.queue).now_or_never().is_none() {
                // Whoever is in that batch is told that the store failed, and the transaction is undone with the desk.
                tracing::error!("a database that must not wait did");
                return;
            }
            let now = Instant::now();
            self.queue.note_pace(began, now);
            began = now;
        }
    }

    pub(super) async fn write_all(&mut self) {
        while let Some(writing) = &mut self.writing
            && let Some(job) = self.queue.next_if(Hand::Thread, |_| true)
        {
            writing.batch(job, self.queue).await;
        }
    }
}

impl Drop for Desk<'_> {
    fn drop(&mut self) {
        if let Some(mut writing) = self.writing.take() {
            writing.abandon();
            self.queue.give_back(writing);
        }
    }
}
