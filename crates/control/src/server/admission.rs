//! Memory that sandboxes and runs are promised, so that a burst waits or is refused instead of bringing the host down. What
//! turns out to be elsewhere gives it back, and what rests holds what it uses (`rest.rs`).
//!
//! First come, first served: a small request does not overtake a large one, which would otherwise wait for ever. The
//! line is bounded, and so is the time in it. Whatever was promised, nobody new comes in while the machine itself is short.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ByteSize, ErrorKind, Limits, Space, duration};
use tokio::sync::{Notify, oneshot};

use crate::reserve::space;

/// What the server itself holds for a run: the beginnings of its output, and what is on its way to who listens.
const OWN: u64 = 2 << 20;

/// When to try again after a full line.
const RETRY: Duration = Duration::from_secs(1);

/// Gives promises.
#[derive(Debug, Clone)]
pub(super) struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: u64,
    wait: Duration,
    longest_line: usize,
    /// What is written is in memory, too.
    space_counts: bool,
    state: Mutex<State>,
    /// Told when somebody begins to wait.
    pressed: Notify,
}

#[derive(Debug, Default)]
struct State {
    promised: u64,
    line: VecDeque<(u64, oneshot::Sender<Promise>)>,
    /// The machine has hardly any memory left, whoever took it.
    short: bool,
}

/// Memory that is spoken for until this value is dropped, or given back before.
#[derive(Debug)]
pub(crate) struct Promise {
    /// Changed by whoever has the state.
    bytes: AtomicU64,
    to: Arc<Shared>,
}

impl Admission {
    pub(super) fn new(total: ByteSize, wait: Duration, longest_line: usize, space_counts: bool) -> Self {
        let (state, pressed) = (Mutex::default(), Notify::new());
        let total = total.as_u64();
        Self(Arc::new(Shared { total, wait, longest_line, space_counts, state, pressed }))
    }

    /// Waits for its turn and for room. `Capacity` when the line is full or nothing came free in time.
    pub(super) async fn admit(&self, memory: ByteSize) -> Result<Promise> {
        let bytes = memory.as_u64();
        if bytes > self.0.total {
            let message = "this server never has as much memory for one sandbox; ask for less with limits.memory and limits.disk";
            return Err(Error::new(ErrorKind::Capacity, message).with("wanted", memory));
        }
        let turn = {
            let mut state = self.0.state();
            // Those who gave up hold up nobody who comes now.
            state.line.retain(|(_, waiting)| !waiting.is_closed());
            if state.line.is_empty() && self.0.has_room(&state, bytes) {
                return Ok(self.0.promise(&mut state, bytes));
            }
            if state.line.len() >= self.0.longest_line {
                metrics::counter!("sandstorm_admission_refused_total", "reason" => "queue").increment(1);
                return Err(full(format!(
                    "no room for {memory}: as many requests wait for memory as admission.queue allows; try again later"
                )));
            }
            let (sender, turn) = oneshot::channel();
            state.line.push_back((bytes, sender));
            turn
        };
        let mut place = Place { turn, line: &self.0 };
        self.0.pressed.notify_one();
        match tokio::time::timeout(self.0.wait, &mut place.turn).await {
            Ok(Ok(promise)) => Ok(promise),
            Ok(Err(_)) | Err(_) => {
                let short = self.0.state().short;
                let reason = if short { "machine" } else { "time" };
                metrics::counter!("sandstorm_admission_refused_total", "reason" => reason).increment(1);
                let why = match short {
                    true => "this machine was short of memory",
                    false => "no such amount came free",
                };
                // A caller who hears nothing for so long wants to know what for.
                Err(full(format!(
                    "no room for {memory}: {why} for the {} that a request waits (admission.wait); try again later, end a \
                     sandbox, or ask for less with limits.memory and limits.disk",
                    duration::format(self.0.wait)
                )))
            }
        }
    }

    /// Memory that a sandbox can take with these limits.
    pub(super) fn of(&self, limits: &Limits, lies: Space) -> ByteSize {
        self.with_space(limits.memory, space(limits, lies))
    }

    /// With what may be written beside it, into memory. Nobody is refused who may write more than there is.
    pub(super) fn with_space(&self, memory: ByteSize, space: ByteSize) -> ByteSize {
        if !self.0.space_counts {
            return memory;
        }
        let both = memory.as_u64().saturating_add(space.as_u64());
        memory.max(ByteSize::bytes(both.min(self.0.total)))
    }

    /// What a run holds that needs so much itself: the server has a part of it in its own memory.
    pub(super) fn with_own(&self, memory: ByteSize) -> ByteSize {
        let with_own = memory.as_u64().saturating_add(OWN).min(self.0.total);
        memory.max(ByteSize::bytes(with_own))
    }

    /// The most that is ever promised.
    pub(super) fn total(&self) -> ByteSize {
        ByteSize::bytes(self.0.total)
    }

    /// Whether the machine is short of memory, as its kernel says. Nobody new comes in until it is not.
    pub(super) fn note_shortage(&self, short: bool) {
        let before = std::mem::replace(&mut self.0.state().short, short);
        if before && !short {
            self.0.serve_line();
        }
    }

    /// Waits until somebody has to wait for memory.
    pub(super) async fn pressed(&self) {
        self.0.pressed.notified().await;
    }

    /// For what lives already: counted even where it is more than may be promised now.
    pub(super) fn count(&self, memory: ByteSize) -> Promise {
        self.0.promise(&mut self.0.state(), memory.as_u64())
    }

    #[cfg(test)]
    pub(super) fn promised(&self) -> u64 {
        self.0.state().promised
    }
}

/// A request's place in the line. A request that leaves it may be what held up the next one, however it leaves.
struct Place<'a> {
    turn: oneshot::Receiver<Promise>,
    line: &'a Arc<Shared>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turn.close();
        self.line.serve_line();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, state: &State, bytes: u64) -> bool {
        !state.short && state.promised + bytes <= self.total
    }

    fn promise(self: &Arc<Self>, state: &mut State, bytes: u64) -> Promise {
        let promise = Promise { bytes: AtomicU64::new(0), to: Arc::clone(self) };
        promise.hold(state, bytes);
        promise
    }

    /// Serves the line from its head for as long as there is room.
    fn serve_line(self: &Arc<Self>) {
        loop {
            let (sender, promise) = {
                let mut state = self.state();
                while state.line.front().is_some_and(|(_, waiting)| waiting.is_closed()) {
                    state.line.pop_front();
                }
                match state.line.front() {
                    Some((bytes, _)) if self.has_room(&state, *bytes) => {}
                    _ => return,
                }
                let Some((bytes, sender)) = state.line.pop_front() else { return };
                let promise = self.promise(&mut state, bytes);
                (sender, promise)
            };
            // To somebody who is gone the promise comes back and is dropped, outside the lock.
            drop(sender.send(promise));
        }
    }
}

impl Promise {
    /// Nothing of it is needed on this machine. Given back twice is given back once.
    pub(crate) fn give_back(&self) {
        self.follow(ByteSize::bytes(0));
    }

    /// What was given back is needed here after all. `false`: others have it meanwhile, or wait for it.
    pub(crate) fn take_again(&self, memory: ByteSize) -> bool {
        let bytes = memory.as_u64();
        let mut state = self.to.state();
        if self.held() > 0 {
            return true;
        }
        if !state.line.is_empty() || !self.to.has_room(&state, bytes) {
            return false;
        }
        self.hold(&mut state, bytes);
        true
    }

    /// Holds exactly this much from now on, also where that is more than may be promised: what is used is used.
    pub(crate) fn follow(&self, memory: ByteSize) {
        let before = {
            let mut state = self.to.state();
            let before = self.held();
            self.hold(&mut state, memory.as_u64());
            before
        };
        if memory.as_u64() < before {
            self.to.serve_line();
        }
    }

    /// Holds no more than this from now on.
    pub(crate) fn shrink(&self, memory: ByteSize) {
        let before = {
            let mut state = self.to.state();
            let before = self.held();
            self.hold(&mut state, before.min(memory.as_u64()));
            before
        };
        if memory.as_u64() < before {
            self.to.serve_line();
        }
    }

    /// Takes what is missing up to this much, in turn and when there is room, as a new promise is given.
    pub(super) async fn grow(&self, memory: ByteSize) -> Result<()> {
        let missing = memory.as_u64().saturating_sub(self.held());
        if missing == 0 {
            return Ok(());
        }
        let more = Admission(Arc::clone(&self.to)).admit(ByteSize::bytes(missing)).await?;
        let mut state = self.to.state();
        let all = self.held() + more.held();
        more.hold(&mut state, 0);
        self.hold(&mut state, all);
        Ok(())
    }

    pub(super) fn held(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn hold(&self, state: &mut State, bytes: u64) {
        state.promised = state.promised - self.bytes.swap(bytes, Ordering::AcqRel) + bytes;
        metrics::gauge!("sandstorm_admission_promised_bytes").set(state.promised as f64);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn full(why: String) -> Error {
    Error::new(ErrorKind::Capacity, why).with_retry_after(RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(line: usize) -> Admission {
        Admission::new(ByteSize::mib(10), Duration::from_secs(1), line, false)
    }

    #[test]
    fn what_may_be_written_is_promised_where_it_is_memory() {
        let limits = |disk| Limits {
            memory: ByteSize::mib(2),
            disk: ByteSize::mib(disk),
            inodes: 1024,
            ..Limits::default()
        };
        let on = |space_counts, disk, lies| {
            Admission::new(ByteSize::mib(10), Duration::ZERO, 0, space_counts).of(&limits(disk), lies)
        };
        let of = |space_counts, disk| on(space_counts, disk, Space::Memory);
        assert_eq!((of(false, 4), of(true, 4)), (ByteSize::mib(2), ByteSize::mib(7)));
        assert_eq!(of(true, 4096), ByteSize::mib(10), "all that there is");
        assert_eq!(on(true, 4096, Space::Disk), ByteSize::mib(2), "what is on disk takes no memory");
    }

    #[tokio::test]
    async fn what_was_given_back_is_taken_again_only_while_there_is_room() {
        let admission = admission(8);
        let promise = admission.admit(ByteSize::mib(8)).await.unwrap();
        assert!(promise.take_again(ByteSize::mib(8)), "it was never given back");
        promise.give_back();
        let other = admission.admit(ByteSize::mib(8)).await.unwrap();
        assert!(!promise.take_again(ByteSize::mib(8)));
        drop(other);
        assert!(promise.take_again(ByteSize::mib(8)));
        assert_eq!(admission.promised(), ByteSize::mib(8).as_u64());
        drop(promise);
        assert_eq!(admission.promised(), 0);
    }

    #[tokio::test]
    async fn a_run_takes_more_than_its_sandbox() {
        let admission = admission(8);
        let run = admission.admit(admission.with_own(ByteSize::mib(4))).await.unwrap();
        assert_eq!(admission.promised(), (4 << 20) + OWN);
        drop(run);
        // One that fits alone is not refused for what is the server's.
        admission.admit(admission.with_own(ByteSize::mib(10))).await.unwrap();
        let more = admission.with_own(ByteSize::mib(11));
        assert_eq!(admission.admit(more).await.unwrap_err().kind(), ErrorKind::Capacity);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_in_order_and_is_served_in_order() {
        let admission = admission(8);
        let first = admission.admit(ByteSize::mib(8)).await.unwrap();
        // The large one came first; the small one would fit but has to wait behind it.
        let (large, small) = (admission.admit(ByteSize::mib(9)), admission.admit(ByteSize::mib(1)));
        tokio::pin!(large, small);
        tokio::select! {
            biased;
            _ = &mut large => panic!("there is no room"),
            _ = &mut small => panic!("it overtook"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        drop(first);
        let large = large.await.unwrap();
        let _small = small.await.unwrap();
        assert_eq!(admission.promised(), ByteSize::mib(10).as_u64());
        drop(large);
        assert_eq!(admission.promised(), ByteSize::mib(1).as_u64());
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_line_are_bounded() {
        let admission = admission(1);
        let _all = admission.admit(ByteSize::mib(10)).await.unwrap();
        let waiting = admission.admit(ByteSize::mib(1));
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let refused = admission.admit(ByteSize::mib(1)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Capacity);
        assert!(refused.retry_after().is_some());
        assert_eq!(
            refused.message(),
            "no room for 1MiB: as many requests wait for memory as admission.queue allows; try again later"
        );
        let late = waiting.await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Capacity);
        assert!(
            late.message().contains("no such amount came free for the 1s that a request waits"),
            "{late}"
        );
        assert_eq!(admission.admit(ByteSize::mib(11)).await.unwrap_err().kind(), ErrorKind::Capacity);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_holds_up_nobody() {
        let admission = admission(8);
        let _first = admission.admit(ByteSize::mib(5)).await.unwrap();
        let mut gone = Box::pin(admission.admit(ByteSize::mib(9)));
        assert!(futures_util::poll!(&mut gone).is_pending());
        let mut behind = Box::pin(admission.admit(ByteSize::mib(5)));
        assert!(futures_util::poll!(&mut behind).is_pending());
        // Nothing else happens that would serve the line.
        drop(gone);
        let std::task::Poll::Ready(behind) = futures_util::poll!(&mut behind) else {
            panic!("it waits for a request that is gone")
        };
        assert_eq!(admission.promised(), ByteSize::mib(10).as_u64());
        // Also when the one that gives up has its turn already and does not know it.
        let mut gone = Box::pin(admission.admit(ByteSize::mib(5)));
        let mut next = Box::pin(admission.admit(ByteSize::mib(5)));
        assert!(futures_util::poll!(&mut gone).is_pending() && futures_util::poll!(&mut next).is_pending());
        drop(behind);
        drop(gone);
        next.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_gave_up_is_not_in_the_way_of_who_comes_now() {
        let admission = admission(8);
        let first = admission.admit(ByteSize::mib(5)).await.unwrap();
        let (sender, gone) = oneshot::channel();
        admission.0.state().line.push_back((ByteSize::mib(9).as_u64(), sender));
        drop(gone);
        let mut now = Box::pin(admission.admit(ByteSize::mib(5)));
        assert!(futures_util::poll!(&mut now).is_ready(), "there is room, and nobody is before it");
        drop(first);
    }

    #[tokio::test]
    async fn what_is_given_back_is_given_back_once() {
        let admission = admission(8);
        let (one, _other) = (
            admission.admit(ByteSize::mib(6)).await.unwrap(),
            admission.admit(ByteSize::mib(4)).await.unwrap(),
        );
        one.give_back();
        one.give_back();
        assert_eq!(admission.promised(), ByteSize::mib(4).as_u64());
        drop(one);
        assert_eq!(admission.promised(), ByteSize::mib(4).as_u64());
    }

    #[tokio::test]
    async fn what_lives_already_is_counted_past_the_total() {
        let admission = admission(8);
        let adopted = admission.count(ByteSize::mib(20));
        assert_eq!(admission.promised(), ByteSize::mib(20).as_u64());
        drop(adopted);
        admission.admit(ByteSize::mib(10)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_rests_lets_others_in_and_waits_in_turn_to_have_its_limit_again() {
        let admission = admission(8);
        let resting = admission.admit(ByteSize::mib(10)).await.unwrap();
        let mut waiting = Box::pin(admission.admit(ByteSize::mib(8)));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        tokio::time::timeout(Duration::ZERO, admission.pressed()).await.expect("nobody was told");
        resting.follow(ByteSize::mib(1));
        let other = waiting.await.unwrap();
        assert_eq!(admission.promised(), ByteSize::mib(9).as_u64());
        let mut growing = Box::pin(resting.grow(ByteSize::mib(10)));
        assert!(futures_util::poll!(&mut growing).is_pending(), "it took what another has");
        drop(other);
        growing.await.unwrap();
        assert_eq!(admission.promised(), ByteSize::mib(10).as_u64());
        // What it uses is counted, whatever was promised.
        resting.follow(ByteSize::mib(12));
        assert_eq!(admission.promised(), ByteSize::mib(12).as_u64());
        drop(resting);
        assert_eq!(admission.promised(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_comes_in_while_the_machine_is_short() {
        let admission = admission(8);
        admission.note_shortage(true);
        let refused = admission.admit(ByteSize::mib(1)).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.message()),
            (
                ErrorKind::Capacity,
                "no room for 1MiB: this machine was short of memory for the 1s that a request waits (admission.wait); try \
                 again later, end a sandbox, or ask for less with limits.memory and limits.disk"
            )
        );
        let mut waiting = Box::pin(admission.admit(ByteSize::mib(1)));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        admission.note_shortage(false);
        waiting.await.unwrap();
    }
}
