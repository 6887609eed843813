//! Memory of sandboxes that live: who works holds its whole limit, who rests what it uses and a little more, who is paused
//! what it uses.
//!
//! Most sandboxes do nothing most of the time, and were each to hold its limit, a machine would be full of a few dozen that
//! sleep. So what a resting one holds follows what the kernel counts for it. To begin something in it takes the rest of its
//! limit first, in line with everybody else. What nobody asked for, such as a thread of an idle interpreter, is counted
//! when it is seen, and held up when the machine itself runs short.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::{OpContext, Result};
use sandstorm_store::{Audit, Decision};
use sandstorm_types::{ByteSize, State, Transition};
use tokio::time::Instant;

use super::Inner;
use super::admission::Promise;
use super::living::Living;
use super::steady;

/// What a resting one holds beyond what it uses: for work that takes little and does not wait in line, such as a look at
/// its files.
const HEADROOM: u64 = 8 << 20;
/// Between two looks at who has nothing to do.
const EVERY: Duration = Duration::from_secs(1);
/// How long one has nothing to do before it rests, while nobody waits for memory.
const STILL: Duration = Duration::from_secs(1);
/// Between two looks while somebody waits.
const PRESSED: Duration = Duration::from_millis(20);
/// Between two readings of all that rest, while the machine is short.
const AGAIN: Duration = Duration::from_secs(5);
/// What grew longer ago than this does not grow.
const LATELY: Duration = Duration::from_secs(30);
/// When one that was paused is read once more: the kernel takes back what it can do without after a while.
const PAUSED_READINGS: [Duration; 3] =
    [Duration::from_secs(3), Duration::from_secs(10), Duration::from_secs(30)];
/// And from then on, since many that are paused together are taken from one after the other, and later by whoever needs it.
const PAUSED_EVERY: Duration = Duration::from_secs(60);
/// Sandboxes that are read at the same time, and how long one may take to answer.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);
/// A machine is short when less than this part of its memory is left, and at most this much.
const LAST_PART: u64 = 20;
const LAST_BYTES: u64 = 1 << 30;

/// What one sandbox holds of the machine's memory.
#[derive(Debug)]
pub(super) struct Share {
    promise: Promise,
    limit: ByteSize,
    state: Mutex<Holding>,
    /// Held by whoever waits for the rest of the limit, for all that want to begin something.
    growing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Holding {
    /// Of those that began something or are about to. Nothing is taken away from them.
    workers: usize,
    rests: Option<Rest>,
    elsewhere: bool,
    /// When it was last seen to use more than it held.
    grew_at: Option<Instant>,
    /// Since when it is paused, and how often it was read since.
    paused: Option<(Instant, usize)>,
}

impl Holding {
    /// Whether what it used when it was paused is to be read once more.
    fn is_to_read(&self) -> bool {
        self.rests == Some(Rest::Paused)
            && self.paused.is_some_and(|(since, read)| since.elapsed() >= paused_reading(read))
    }
}

/// How long after it was paused one is read that was read so often since.
fn paused_reading(read: usize) -> Duration {
    let later = || u32::try_from(read - PAUSED_READINGS.len() + 1).unwrap_or(u32::MAX);
    PAUSED_READINGS.get(read).copied().unwrap_or_else(|| PAUSED_EVERY.saturating_mul(later()))
}

/// What it holds while it does not hold its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// What it uses and some room.
    Idle,
    /// What it uses.
    Paused,
}

/// Keeps the whole limit for a sandbox until it is dropped. Execs in flight keep it too.
#[derive(Debug)]
pub(super) struct Working(Arc<Living>);

impl Share {
    pub(super) fn new(promise: Promise, limit: ByteSize) -> Self {
        Self { promise, limit, state: Mutex::default(), growing: tokio::sync::Mutex::default() }
    }

    /// It is elsewhere, and needs no memory here.
    pub(super) fn is_elsewhere(&self) {
        self.state().elsewhere = true;
        self.promise.give_back();
    }

    /// Everything was made that it needs: nobody needs more any more than it may use.
    pub(super) fn settle(&self) {
        self.promise.shrink(self.limit);
    }

    /// Takes a reading in. Of one that holds its limit it changes nothing. That one grew is kept, since whoever reads it next
    /// finds what it holds raised already.
    pub(super) fn measured(&self, used: ByteSize) {
        let mut state = self.state();
        let Some(rest) = state.rests.filter(|_| !state.elsewhere && used.as_u64() > 0) else { return };
        if used.as_u64() > self.promise.held() {
            state.grew_at = Some(Instant::now());
        }
        self.promise.follow(self.resting(rest, used));
    }

    /// Whether it has lately outgrown what it held while it rested, whoever read it.
    fn grows(&self) -> bool {
        self.state().grew_at.is_some_and(|at| at.elapsed() < LATELY)
    }

    fn state(&self) -> MutexGuard<'_, Holding> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resting(&self, rest: Rest, used: ByteSize) -> ByteSize {
        let room = if rest == Rest::Idle { HEADROOM } else { 0 };
        ByteSize::bytes(used.as_u64().saturating_add(room)).min(self.limit)
    }

    /// Puts it to rest with what it uses, unless something began meanwhile.
    fn rest(&self, rest: Rest, used: ByteSize) {
        let mut state = self.state();
        let begun = rest == Rest::Idle && state.workers > 0;
        // Where nothing counts memory, nobody knows what it would be enough to hold.
        if begun || state.elsewhere || used.as_u64() == 0 {
            return;
        }
        state.paused = match (rest, state.rests, state.paused) {
            (Rest::Paused, Some(Rest::Paused), Some((since, read))) => Some((since, read + 1)),
            (Rest::Paused, ..) => Some((Instant::now(), 0)),
            (Rest::Idle, ..) => None,
        };
        state.rests = Some(rest);
        state.grew_at = None;
        self.promise.follow(self.resting(rest, used));
    }

    /// It works again, and nobody took its limit for it: what is so is counted.
    fn wake(&self) {
        let mut state = self.state();
        if !state.elsewhere && state.rests.take().is_some() {
            self.promise.follow(self.limit);
        }
    }
}

impl Living {
    /// Sees to it that the sandbox has its whole limit for what is about to begin. `Capacity` when there is no room for that.
    pub(super) async fn work(self: &Arc<Self>) -> Result<Working> {
        self.share.state().workers += 1;
        let working = Working(Arc::clone(self));
        if self.share.state().rests.is_some() {
            let _one = self.share.growing.lock().await;
            if self.share.state().rests.is_some() {
                self.share.promise.grow(self.share.limit).await?;
                self.share.state().rests = None;
            }
        }
        Ok(working)
    }

    /// How it should rest from now on. `None`: it holds what it should.
    fn should_rest(&self, still: Duration) -> Option<Rest> {
        let wanted = match self.row().state {
            State::Paused => Rest::Paused,
            State::Ready if self.execs() == 0 && self.last_used().after(still) <= steady::now() => Rest::Idle,
            _ => return None,
        };
        let state = self.share.state();
        let holds = state.elsewhere || (state.rests == Some(wanted) && !state.is_to_read());
        (!holds && (wanted == Rest::Paused || state.workers == 0)).then_some(wanted)
    }

    /// Whether programs go on in it although it holds less than its limit.
    fn works_unheld(&self) -> bool {
        let state = self.share.state();
        state.rests.is_some() && state.workers == 0 && self.execs() > 0 && self.row().state.is_ready()
    }

    fn is_idle(&self) -> bool {
        self.share.state().rests == Some(Rest::Idle)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.touch();
        self.0.share.state().workers -= 1;
    }
}

impl Inner {
    /// Lets those rest that have nothing to do, and looks after the machine itself.
    pub(super) async fn share_memory(self: Arc<Self>) {
        let measures = self.provider.capabilities().usage;
        let mut read_at = Instant::now();
        loop {
            let pressed = tokio::select! {
                () = tokio::time::sleep(EVERY) => false,
                () = self.admission.pressed() => true,
            };
            let short = is_short(&self.settings.meminfo);
            self.admission.note_shortage(short);
            if !measures {
                continue;
            }
            self.let_rest(if pressed { Duration::ZERO } else { STILL }).await;
            if short && read_at.elapsed() >= AGAIN {
                self.hold_up_growth().await;
                read_at = Instant::now();
            }
            if pressed {
                tokio::time::sleep(PRESSED).await;
            }
        }
    }

    async fn let_rest(&self, still: Duration) {
        for living in self.sandboxes.which(Living::works_unheld) {
            living.share.wake();
        }
        let idle = self.sandboxes.which(|living| living.should_rest(still).is_some());
        let read = stream::iter(idle).for_each_concurrent(AT_ONCE, |living| async move {
            let Some(used) = self.memory_of(&living).await else { return };
            // What it does may have changed while it was read.
            if let Some(rest) = living.should_rest(still) {
                living.share.rest(rest, used);
            }
        });
        read.await;
    }

    /// Reads all that rest. One that takes more and more although nobody asked it for anything stands still until somebody
    /// does: else the kernel would end what it likes best, which may be a neighbour's.
    async fn hold_up_growth(self: &Arc<Self>) {
        let resting = self.sandboxes.which(Living::is_idle);
        let read = stream::iter(resting).for_each_concurrent(AT_ONCE, |living| async move {
            let Some(used) = self.memory_of(&living).await else { return };
            living.share.measured(used);
            if !living.share.grows() || !self.can(&living.row()).pause || living.execs() > 0 {
                return;
            }
            tracing::warn!(sandbox = %living.id, %used, "an idle sandbox grows while memory is short, and is paused");
            let audit = Audit {
                tenant: living.tenant,
                principal: "<memory>".to_owned(),
                action: "sandbox.pause".to_owned(),
                object: living.id.to_string(),
                decision: Decision::Allowed,
                request_id: String::new(),
                detail: None,
            };
            let cx = OpContext::new(living.tenant);
            if let Err(error) = self.transition(&cx, living.id, Transition::Pause, Some(&audit)).await {
                tracing::warn!(sandbox = %living.id, %error, "it could not be paused");
            }
        });
        read.await;
    }

    async fn memory_of(&self, living: &Living) -> Option<ByteSize> {
        let cx = OpContext::new(living.tenant).with_timeout(PATIENCE);
        match self.provider.usage(&cx, &living.id).await {
            Ok(usage) => Some(usage.memory),
            Err(error) => {
                tracing::debug!(sandbox = %living.id, %error, "what a sandbox uses could not be read");
                None
            }
        }
    }
}

/// Whether hardly any memory is left, as the kernel says. What cannot be read is no reason to turn anybody away.
fn is_short(meminfo: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(meminfo) else { return false };
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let (Some(total), Some(left)) = (bytes("MemTotal:"), bytes("MemAvailable:")) else { return false };
    left < (total / LAST_PART).min(LAST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_one_is_read_again_for_as_long_as_it_is_paused() {
        let since = Instant::now();
        let after =
            |read| Holding { rests: Some(Rest::Paused), paused: Some((since, read)), ..Holding::default() };
        let seconds = [3, 10, 30, 60, 120, 180, 240].map(Duration::from_secs);
        for (read, at) in seconds.into_iter().enumerate() {
            tokio::time::advance(at - Duration::from_millis(1) - since.elapsed()).await;
            assert!(!after(read).is_to_read(), "{read}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(after(read).is_to_read() && !after(read + 1).is_to_read(), "{read}");
        }
    }

    #[test]
    fn a_machine_is_short_when_a_twentieth_is_left() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let short = |total: u64, left: u64| {
            let text = format!("MemTotal: {total} kB\nMemFree:  1 kB\nMemAvailable:   {left} kB\n");
            std::fs::write(file.path(), text).unwrap();
            is_short(file.path())
        };
        assert!(short(1_000_000, 49_000) && !short(1_000_000, 51_000));
        assert!(short(1 << 28, 1_000_000) && !short(1 << 28, 1_100_000), "a gibibyte is enough for any");
        assert!(!is_short(Path::new("/proc/there/is/no/such")), "who cannot tell turns nobody away");
    }
}
