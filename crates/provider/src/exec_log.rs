//! What a program wrote and how it ended, kept for as many listeners as there are.
//!
//! Events are numbered and never change: event `n` is the same for everybody who ever hears it. The log keeps what its
//! [`Keep`] says and counts the rest. With a [`Journal`] every event is written there before anybody hears it, and only
//! the latest ones stay in memory. A listener has a place of its own in the log and waits for more. One listener may set
//! the pace: then whoever writes waits while that one lags behind, and through the pipe so does the program.

mod listener;
mod tails;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_types::{ByteSize, ErrorKind, PerStream, Stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::listener::{Listener, Pace};
pub use self::tails::Tails;
use crate::{AttachFrom, Error, ExecEnd, ExecEvent, ExecRequest, OUTPUT_HARD_FACTOR, Offset, Result};

/// How far the listener that sets the pace may be behind.
const LAG: u64 = 256 * 1024;

/// Bytes of events that stay in memory where a journal has them too.
const TAIL: u64 = 256 * 1024;

/// Bytes that a log keeps until they are forgotten. One cell of a context that speaks in lines fits in at the usual
/// limits: 256 MiB of messages and 80 MiB of output in base64. It is forgotten only when it is done.
const MOST_UNFORGOTTEN: u64 = 384 << 20;

/// What an event costs in memory beside its bytes.
const EVENT: u64 = 64;

/// A log that one writer and any number of listeners share.
#[derive(Debug, Clone)]
pub struct ExecLog(Arc<Shared>);

/// Let go of together with a stream of events: a way to end a program that nobody listens to any more.
pub type ListenerGuard = Box<dyn Any + Send>;

/// Which events a log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Output up to this many bytes, for good.
    UpTo(ByteSize),
    /// What the listener that sets the pace has not taken yet. Without a listener the program waits.
    UntilTaken,
    /// The same of output up to this many bytes; the rest is counted. For a program that nobody listens to later.
    UpToUntilTaken(ByteSize),
    /// Everything that [`ExecLog::forget`] was not told to forget. Without a listener the program waits, and so it does
    /// when that is more than 384 MiB.
    UntilForgotten,
}

/// A second place for the events of one log, which outlives this process.
pub trait Journal: fmt::Debug + Send + Sync {
    /// Writes the next event. Numbers come without gaps.
    fn append(&self, number: u64, event: &ExecEvent) -> io::Result<()>;

    /// Notes how much was written in all, after part of it was not kept.
    fn count(&self, written: PerStream<u64>) -> io::Result<()>;

    /// Some events from a number on, in order; none when there is none.
    fn read(&self, from: u64) -> io::Result<Vec<ExecEvent>>;

    /// Nothing before this number will be read again.
    fn forget(&self, before: u64) -> io::Result<()>;

    /// Bytes of the events that are not forgotten, or a little more.
    fn unforgotten(&self) -> u64;
}

/// What is known of a log whose events are in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Number of the first event that the journal still has.
    pub first: u64,
    /// Number of the next event.
    pub next: u64,
    pub kept: PerStream<u64>,
    pub written: PerStream<u64>,
    pub channel: u64,
    pub ended: bool,
}

#[derive(Debug)]
struct Shared {
    content: Mutex<Content>,
    /// How many events there are; listeners wait for it to grow.
    length: watch::Sender<u64>,
    /// Whether whoever writes has to wait.
    waits: watch::Sender<bool>,
    /// Set when far more was written than is kept.
    flooded: CancellationToken,
    journal: Option<Box<dyn Journal>>,
}

#[derive(Debug)]
struct Content {
    /// The events in memory, from number `first` on.
    events: VecDeque<ExecEvent>,
    first: u64,
    /// Bytes of the events in memory.
    memory: u64,
    /// Number of the first event that anybody can still hear.
    base: u64,
    keep: Keep,
    kept: PerStream<u64>,
    written: PerStream<u64>,
    channel: u64,
    /// Number of the next event for the listener that sets the pace, and how many bytes lie from there on.
    taken: u64,
    lag: u64,
    /// Who sets the pace; `None`: nobody.
    pacer: Option<u64>,
    pacers: u64,
    ended: bool,
    /// Whether something was written that nobody heard or counted.
    missed: bool,
    /// Output past the limit, for the listener that sets the pace; `None`: that one hears no more than others.
    beyond: Option<VecDeque<ExecEvent>>,
    /// Why there will be no more events, though the program may live.
    failure: Option<String>,
}

impl Keep {
    /// What is kept of a program that is asked for, and at most `limit` bytes of its output.
    pub fn of(request: &ExecRequest, limit: ByteSize) -> Self {
        match (request.replay, request.lasting) {
            // Its sandbox goes with it, so nobody listens to it later.
            (true, false) if request.last && !request.background => Self::UpToUntilTaken(limit),
            (true, _) => Self::UpTo(limit),
            (false, false) => Self::UntilTaken,
            (false, true) => Self::UntilForgotten,
        }
    }

    /// Bytes of output that anybody hears.
    fn limit(self) -> u64 {
        match self {
            Self::UpTo(limit) | Self::UpToUntilTaken(limit) => limit.as_u64(),
            Self::UntilTaken | Self::UntilForgotten => u64::MAX,
        }
    }
}

impl Content {
    fn new(keep: Keep, from: Restored) -> Self {
        Self {
            events: VecDeque::new(),
            first: from.next,
            memory: 0,
            base: from.first,
            keep,
            kept: from.kept,
            written: from.written,
            channel: from.channel,
            taken: from.next,
            lag: 0,
            pacer: None,
            pacers: 0,
            ended: from.ended,
            missed: false,
            beyond: None,
            failure: None,
        }
    }

    /// How many events there have been.
    fn length(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn event(&self, number: u64) -> Option<&ExecEvent> {
        self.events.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Where output past the limit goes, while somebody takes it.
    fn beyond(&mut self) -> Option<&mut VecDeque<ExecEvent>> {
        self.beyond.as_mut().filter(|_| self.pacer.is_some())
    }

    /// The next of what is past the limit.
    fn take_beyond(&mut self) -> Option<ExecEvent> {
        let event = self.beyond.as_mut()?.pop_front()?;
        self.lag = self.lag.saturating_sub(size(&event));
        Some(event)
    }

    fn is_paced(&self) -> bool {
        self.pacer.is_some() || !matches!(self.keep, Keep::UpTo(_))
    }

    fn push(&mut self, event: ExecEvent) {
        let size = size(&event);
        self.memory += size;
        self.lag += size;
        self.events.push_back(event);
    }

    /// The listener that sets the pace is at `number` now.
    fn take_before(&mut self, number: u64) {
        while self.taken < number.min(self.length()) {
            if let Some(event) = self.event(self.taken) {
                self.lag = self.lag.saturating_sub(size(event));
            }
            self.taken += 1;
        }
    }

    /// Drops from memory what nobody will ask for, or will find in the journal.
    fn trim(&mut self, journaled: bool) {
        let needless = |content: &Self| match (content.keep, journaled) {
            _ if content.first < content.base => true,
            // How it ended is for everybody who asks.
            (Keep::UntilTaken | Keep::UpToUntilTaken(_), _) => {
                content.first < content.taken && !(content.ended && content.events.len() == 1)
            }
            (_, true) => content.memory > TAIL && (!content.is_paced() || content.first < content.taken),
            (_, false) => false,
        };
        while needless(self) {
            let Some(event) = self.events.pop_front() else { break };
            self.memory = self.memory.saturating_sub(size(&event));
            self.first += 1;
        }
        if !journaled {
            self.base = self.base.max(self.first);
        }
    }

    fn truncated(&self) -> PerStream<bool> {
        let (written, kept) = (self.written, self.kept);
        let cut = |written, kept| self.missed || written > kept;
        PerStream { stdout: cut(written.stdout, kept.stdout), stderr: cut(written.stderr, kept.stderr) }
    }
}

fn size(event: &ExecEvent) -> u64 {
    match event {
        ExecEvent::Output { bytes, .. } | ExecEvent::Channel { bytes, .. } => EVENT + bytes.len() as u64,
        ExecEvent::Started | ExecEvent::Exited(_) => EVENT,
    }
}

fn of<T>(both: &mut PerStream<T>, stream: Stream) -> &mut T {
    match stream {
        Stream::Stdout => &mut both.stdout,
        Stream::Stderr => &mut both.stderr,
    }
}

impl ExecLog {
    /// A log in memory.
    pub fn new(keep: Keep) -> Self {
        let log = Self::with(keep, None, Restored::default());
        let mut content = log.content();
        content.push(ExecEvent::Started);
        log.0.length.send_replace(1);
        drop(content);
        log
    }

    /// A log whose events go to a journal first.
    pub fn journaled(keep: Keep, journal: Box<dyn Journal>) -> io::Result<Self> {
        let log = Self::with(keep, Some(journal), Restored::default());
        let content = log.content();
        log.add(content, ExecEvent::Started).map(drop).map_err(|(error, _)| error)?;
        Ok(log)
    }

    /// A log that goes on where its journal ends.
    pub fn restored(keep: Keep, journal: Box<dyn Journal>, from: Restored) -> Self {
        Self::with(keep, Some(journal), from)
    }

    fn with(keep: Keep, journal: Option<Box<dyn Journal>>, from: Restored) -> Self {
        Self(Arc::new(Shared {
            content: Mutex::new(Content::new(keep, from)),
            length: watch::Sender::new(from.next),
            waits: watch::Sender::new(false),
            flooded: CancellationToken::new(),
            journal,
        }))
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event: first to the journal, then for everybody. The log is given back, after an error for what was counted
    /// to be undone.
    fn add<'a>(
        &self,
        mut content: MutexGuard<'a, Content>,
        event: ExecEvent,
    ) -> std::result::Result<MutexGuard<'a, Content>, (io::Error, MutexGuard<'a, Content>)> {
        if let Some(journal) = &self.0.journal
            && let Err(error) = journal.append(content.length(), &event)
        {
            return Err((error, content));
        }
        content.push(event);
        self.settle(&mut content);
        Ok(content)
    }

    /// Tells everybody who waits how things are now, if that is news to them.
    fn settle(&self, content: &mut Content) {
        content.trim(self.0.journal.is_some());
        let length = content.length();
        let waits = (content.is_paced() && content.lag > LAG) || self.is_full(content);
        self.0.length.send_if_modified(|known| std::mem::replace(known, length) != length);
        self.0.waits.send_if_modified(|known| std::mem::replace(known, waits) != waits);
    }

    /// Whether some of what was heard has to be forgotten before there can be more.
    fn is_full(&self, content: &Content) -> bool {
        // Only contexts have a channel. What a cell may say there is bounded by who runs it, and may be more than this.
        if content.keep != Keep::UntilForgotten || content.channel > 0 {
            return false;
        }
        let unforgotten = self.0.journal.as_ref().map_or(content.memory, |journal| journal.unforgotten());
        unforgotten > MOST_UNFORGOTTEN
    }

    /// Output of the program. An error means that it could not be kept, that nobody heard it and that it may be written
    /// again.
    pub fn write(&self, stream: Stream, mut bytes: Bytes) -> io::Result<()> {
        let mut content = self.content();
        if content.ended {
            return Ok(());
        }
        let (before, whole) = ((content.written, content.kept), bytes.len());
        *of(&mut content.written, stream) += whole as u64;
        let limit = content.keep.limit();
        let room = limit.saturating_sub(content.kept.stdout + content.kept.stderr);
        let rest = bytes.split_off(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        let written = content.written;
        let flood = written.stdout.saturating_add(written.stderr) > limit.saturating_mul(OUTPUT_HARD_FACTOR);
        // Of what somebody takes it is never too much.
        if flood && content.beyond().is_none() {
            self.0.flooded.cancel();
        }
        let cut = bytes.len() < whole;
        // Counted first: a count that is ahead of the output is of no harm, and one that is behind is made good by no retry.
        if let Some(journal) = self.0.journal.as_ref().filter(|_| cut)
            && let Err(error) = journal.count(written)
        {
            (content.written, content.kept) = before;
            return Err(error);
        }
        if !bytes.is_empty() {
            let offset = *of(&mut content.kept, stream);
            *of(&mut content.kept, stream) += bytes.len() as u64;
            let event = ExecEvent::Output { stream, offset, bytes };
            content = self.add(content, event).map_err(|(error, mut content)| {
                (content.written, content.kept) = before;
                error
            })?;
        }
        let offset = of(&mut content.written, stream).saturating_sub(rest.len() as u64);
        let event = ExecEvent::Output { stream, offset, bytes: rest };
        if cut && let Some(beyond) = content.beyond() {
            let size = size(&event);
            beyond.push_back(event);
            content.lag += size;
            self.settle(&mut content);
            // No number is new, but who waits has something to hear.
            self.0.length.send_modify(|_| {});
        }
        Ok(())
    }

    /// The listener that sets the pace hears all output, also what is past the limit and told to nobody else. To be said
    /// before there is any, and only where the program ends with that listener.
    pub fn pass_on_beyond(&self) {
        self.content().beyond = Some(VecDeque::new());
    }

    /// What the program said on its side channel. An error means what it does for [`ExecLog::write`].
    pub fn write_channel(&self, bytes: Bytes) -> io::Result<()> {
        let mut content = self.content();
        if bytes.is_empty() || content.ended {
            return Ok(());
        }
        let offset = content.channel;
        content.channel += bytes.len() as u64;
        self.add(content, ExecEvent::Channel { offset, bytes }).map(drop).map_err(|(error, mut content)| {
            content.channel = offset;
            error
        })
    }

    /// Waits while the listener that sets the pace lags behind, or while too much is not forgotten.
    pub async fn pace(&self) {
        let mut waits = self.0.waits.subscribe();
        let _ = waits.wait_for(|waits| !*waits).await;
    }

    /// Set when the program wrote so much more than is kept that it has to be ended.
    pub fn flooded(&self) -> &CancellationToken {
        &self.0.flooded
    }

    /// Closes the log with an end whose counts it fills in. The first end stands. With an error it is not closed.
    pub fn end(&self, end: ExecEnd) -> io::Result<()> {
        let mut content = self.content();
        if content.ended {
            return Ok(());
        }
        content.ended = true;
        let end = ExecEnd { written: content.written, truncated: content.truncated(), ..end };
        self.add(content, ExecEvent::Exited(end)).map(drop).map_err(|(error, mut content)| {
            content.ended = false;
            error
        })
    }

    /// Bytes that the events take which are in memory and in the journal.
    fn tail(&self) -> u64 {
        if self.0.journal.is_some() { self.content().memory } else { 0 }
    }

    /// Drops the events of a program that has ended from memory, where they are in the journal.
    fn drop_tail(&self) {
        let mut content = self.content();
        if content.ended && content.failure.is_none() && self.0.journal.is_some() {
            content.first = content.length();
            content.events = VecDeque::new();
            content.memory = 0;
        }
    }

    /// Output may have been lost on the way here, nobody knows how much: in the end both streams are called truncated.
    pub fn miss(&self) {
        self.content().missed = true;
    }

    /// Closes the log without an end: listeners hear an error after what there is.
    pub fn fail(&self, reason: impl Into<String>) {
        let mut content = self.content();
        if !content.ended {
            content.ended = true;
            content.failure = Some(reason.into());
            // Nothing grew, but whoever waits has to look again.
            self.0.length.send_modify(|_| {});
        }
    }

    pub fn has_ended(&self) -> bool {
        self.content().ended
    }

    pub async fn ended(&self) {
        let mut length = self.0.length.subscribe();
        while !self.has_ended() {
            // The sender lives as long as this log, so waiting cannot fail.
            let _ = length.changed().await;
        }
    }

    /// Bytes that the program has written to each stream, kept or not.
    pub fn written(&self) -> PerStream<u64> {
        self.content().written
    }

    /// Bytes that the program has said on its side channel.
    pub fn channel(&self) -> u64 {
        self.content().channel
    }

    /// Events before this number are not needed any more.
    pub fn forget(&self, before: u64) -> io::Result<()> {
        let mut content = self.content();
        let before = before.min(content.length());
        if before <= content.base {
            return Ok(());
        }
        content.base = before;
        content.take_before(before);
        let forgotten = self.0.journal.as_ref().map_or(Ok(()), |journal| journal.forget(before));
        self.settle(&mut content);
        forgotten
    }

    /// The number of the first event of the stream, and the events from there on.
    pub fn events(&self, from: AttachFrom) -> (u64, BoxStream<'static, Result<ExecEvent>>) {
        let mut content = self.content();
        let (next, known) = match from {
            AttachFrom::Offset(known) => (content.base, known),
            AttachFrom::Seq(number) => (number.max(content.base), Offset::default()),
            AttachFrom::End => return (content.length(), self.end_alone()),
        };
        // Whoever follows a program that would otherwise wait takes over from who did before.
        let pace = (content.keep == Keep::UntilForgotten).then(|| self.start_pacing(&mut content, next));
        drop(content);
        (next, self.listen(next, known, pace, None))
    }

    /// The last event, once there is one.
    fn end_alone(&self) -> BoxStream<'static, Result<ExecEvent>> {
        let log = self.clone();
        stream::once(async move {
            log.ended().await;
            log.last()
        })
        .boxed()
    }

    /// How a program that has ended did so.
    fn last(&self) -> Result<ExecEvent> {
        let content = self.content();
        if let Some(reason) = &content.failure {
            return Err(Error::new(ErrorKind::Provider, reason.clone()));
        }
        let (last, length) = (content.events.back().cloned(), content.length());
        drop(content);
        let kept = |journal: &dyn Journal| journal.read(length.saturating_sub(1)).ok()?.pop();
        match last.or_else(|| self.0.journal.as_deref().and_then(kept)) {
            Some(end @ ExecEvent::Exited(_)) => Ok(end),
            _ => Err(Error::new(ErrorKind::Internal, "how the program ended cannot be read any more")),
        }
    }

    /// All events, for the one listener that sets the pace. What `guard` holds is let go of with the stream.
    pub fn paced_events(&self, guard: Option<ListenerGuard>) -> BoxStream<'static, Result<ExecEvent>> {
        let mut content = self.content();
        let base = content.base;
        content.taken = base;
        content.lag = content.events.iter().map(size).sum();
        let pace = self.start_pacing(&mut content, base);
        drop(content);
        self.listen(base, Offset::default(), Some(pace), guard)
    }

    fn start_pacing(&self, content: &mut Content, from: u64) -> Pace {
        content.pacers += 1;
        content.pacer = Some(content.pacers);
        content.take_before(from);
        self.settle(content);
        Pace { log: self.clone(), who: content.pacers }
    }

    fn listen(
        &self,
        next: u64,
        known: Offset,
        pace: Option<Pace>,
        guard: Option<ListenerGuard>,
    ) -> BoxStream<'static, Result<ExecEvent>> {
        let listener = Listener::new(self.clone(), self.0.length.subscribe(), next, known, pace, guard);
        stream::unfold(Some(listener), |listener| async move {
            let mut listener = listener?;
            match listener.next().await? {
                Ok(event) => Some((Ok(event), Some(listener))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}
