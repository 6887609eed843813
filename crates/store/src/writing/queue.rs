//! What waits to be written, and who writes it.
//!
//! There is one desk, and whoever has it writes. A caller who finds it free sits down and writes what waits, its own call
//! included: no other thread has to be woken. Whoever finds it taken leaves the call in the queue, which is looked at
//! before the desk is free again. What takes long, or may, is left to the thread that has nothing else to do. What nobody
//! waits for is written with what comes next, or when there is a lot of it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use super::Writing;
use super::desk::Desk;
use super::job::Job;
use super::pace::Pace;
use crate::{Result, StoreError};

/// As many as this do not wait for somebody who waits.
const MANY: usize = 64;

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hand {
    /// Somebody with other things to do: short calls only, and only a few.
    Caller,
    /// The thread for it.
    Thread,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Calls the thread. When it is rung while the thread works, it is heard afterwards.
    bell: Notify,
}

struct State {
    waiting: VecDeque<Box<dyn Job>>,
    /// Absent while somebody writes.
    free: Option<Box<Writing>>,
    /// A caller could not do what waits.
    needs_thread: bool,
    /// What waits could not be written, and nobody waits for it: it is left alone until somebody does.
    stuck: bool,
    pace: Pace,
    closed: bool,
    over: bool,
    tell_when_over: Vec<oneshot::Sender<()>>,
}

impl Queue {
    pub(super) fn new(writing: Writing) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            free: Some(Box::new(writing)),
            needs_thread: false,
            stuck: false,
            pace: Pace::default(),
            closed: false,
            over: false,
            tell_when_over: Vec::new(),
        };
        Self { state: Mutex::new(state), bell: Notify::new() }
    }

    /// Takes a call, which somebody writes. Gives the desk when that is the caller.
    pub(super) fn enter(&self, job: Box<dyn Job>) -> Result<Option<Desk<'_>>> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        state.waiting.push_back(job);
        state.stuck = false;
        let Some(writing) = &state.free else { return Ok(None) };
        if writing.is_quick() && state.lets(Hand::Caller) && state.pace.allows(Instant::now()) {
            return Ok(self.desk(&mut state, Hand::Caller));
        }
        drop(state);
        self.bell.notify_one();
        Ok(None)
    }

    /// Takes something that nobody waits for.
    pub(super) fn add(&self, job: Box<dyn Job>) -> Result<()> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        state.waiting.push_back(job);
        let enough = state.waiting.len() >= MANY && !state.stuck;
        drop(state);
        if enough {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// The call that waits longest, when it is one for this hand and fits.
    pub(super) fn next_if(&self, hand: Hand, fits: impl FnOnce(&dyn Job) -> bool) -> Option<Box<dyn Job>> {
        let mut state = self.state();
        let fits = state.lets(hand) && state.waiting.front().is_some_and(|job| fits(&**job));
        fits.then(|| state.waiting.pop_front()).flatten()
    }

    /// Puts calls back to where they were, for the thread.
    pub(super) fn leave_to_thread(&self, jobs: Vec<Box<dyn Job>>) {
        let mut state = self.state();
        state.needs_thread = true;
        jobs.into_iter().rev().for_each(|job| state.waiting.push_front(job));
    }

    /// Puts what can wait back to where it was.
    pub(super) fn put_back(&self, jobs: Vec<Box<dyn Job>>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.closed {
            tracing::warn!(count = jobs.len(), "what is on file is left to the next server");
            return;
        }
        jobs.into_iter().rev().for_each(|job| state.waiting.push_front(job));
        state.stuck = !state.is_pressed();
    }

    /// Takes out all that waits.
    pub(super) fn take_all(&self) -> VecDeque<Box<dyn Job>> {
        std::mem::take(&mut self.state().waiting)
    }

    pub(super) fn note_pace(&self, began: Instant, now: Instant) {
        self.state().pace.took(now - began, now);
    }

    pub(super) fn give_back(&self, writing: Box<Writing>) {
        let mut state = self.state();
        state.free = Some(writing);
        let more = state.closed || state.is_pressed();
        drop(state);
        if more {
            self.bell.notify_one();
        }
    }

    /// Takes no more calls. Those that wait are still written, and whoever asks is told when that is done.
    pub(super) fn close(&self, tell: Option<oneshot::Sender<()>>) {
        let mut state = self.state();
        (state.closed, state.stuck) = (true, false);
        if !state.over {
            state.tell_when_over.extend(tell);
        }
        self.bell.notify_one();
    }

    /// What the thread does, until the queue is closed and nothing waits any more.
    pub(super) async fn serve(&self) {
        let _over = Over(self);
        loop {
            self.bell.notified().await;
            while let Some(mut desk) = self.desk_for_thread() {
                desk.write_all().await;
            }
            if self.is_done() {
                return;
            }
        }
    }

    fn desk_for_thread(&self) -> Option<Desk<'_>> {
        let mut state = self.state();
        if state.waiting.is_empty() || state.stuck {
            return None;
        }
        let desk = self.desk(&mut state, Hand::Thread)?;
        state.needs_thread = false;
        Some(desk)
    }

    fn desk(&self, state: &mut State, hand: Hand) -> Option<Desk<'_>> {
        state.free.take().map(|writing| Desk::new(self, writing, hand))
    }

    fn is_done(&self) -> bool {
        let state = self.state();
        state.closed && state.waiting.is_empty() && state.free.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether somebody waits for what waits.
    fn is_pressed(&self) -> bool {
        self.waiting.iter().any(|job| !job.can_wait())
    }

    /// Whether what waits longest may be done by this hand.
    fn lets(&self, hand: Hand) -> bool {
        match hand {
            _ if self.stuck => false,
            Hand::Caller => !self.needs_thread && self.waiting.front().is_some_and(|job| job.is_short()),
            Hand::Thread => true,
        }
    }
}

/// The end of the thread, however it comes: nobody is left to wait for it.
struct Over<'q>(&'q Queue);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.closed, state.over) = (true, true);
        let (connection, waiting) = (state.free.take(), std::mem::take(&mut state.waiting));
        let tell = std::mem::take(&mut state.tell_when_over);
        drop(state);
        // Folds the log, which takes its time. Those who wait hear that the store is closed.
        drop((connection, waiting));
        for tell in tell {
            let _ = tell.send(());
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable { source: "the store is closed".into() }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("waiting", &self.waiting.len())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}
