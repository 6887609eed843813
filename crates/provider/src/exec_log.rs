//! What a program wrote and how it ended, kept for as many listeners as there are.
//!
//! The log keeps output up to its limit and counts the rest. A listener has a place of its own in it and waits for
//! more. One listener may set the pace: then whoever writes waits while that one lags behind, and through the pipe so
//! does the program.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_types::{ByteSize, PerStream, Stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{ExecEnd, ExecEvent, OUTPUT_HARD_FACTOR, Offset, Result};

/// How far the listener that sets the pace may be behind.
const LAG: u64 = 256 * 1024;

/// A log that one writer and any number of listeners share.
#[derive(Debug, Clone)]
pub struct ExecLog(Arc<Shared>);

/// Let go of together with a stream of events: a way to end a program that nobody listens to any more.
pub type ListenerGuard = Box<dyn Any + Send>;

#[derive(Debug)]
struct Shared {
    content: Mutex<Content>,
    /// How many events there are; listeners wait for it to grow.
    length: watch::Sender<usize>,
    /// Bytes that the listener which sets the pace has taken; everything, when there is none.
    taken: watch::Sender<u64>,
    /// Set when far more was written than is kept.
    flooded: CancellationToken,
}

#[derive(Debug)]
struct Content {
    /// The events from number `first` on.
    events: VecDeque<ExecEvent>,
    first: usize,
    /// Bytes that are kept; `None` keeps nothing that the listener which sets the pace has taken.
    limit: Option<u64>,
    kept: PerStream<u64>,
    written: PerStream<u64>,
    ended: bool,
}

impl Content {
    /// How many events there have been.
    fn length(&self) -> usize {
        self.first + self.events.len()
    }

    fn event(&self, number: usize) -> Option<&ExecEvent> {
        self.events.get(number.checked_sub(self.first)?)
    }

    /// The listener that sets the pace has taken everything before `number`.
    fn forget_before(&mut self, number: usize) {
        if self.limit.is_none() {
            while self.first < number && self.events.pop_front().is_some() {
                self.first += 1;
            }
        }
    }

    fn truncated(&self) -> PerStream<bool> {
        let (written, kept) = (self.written, self.kept);
        PerStream { stdout: written.stdout > kept.stdout, stderr: written.stderr > kept.stderr }
    }
}

fn of<T>(both: &mut PerStream<T>, stream: Stream) -> &mut T {
    match stream {
        Stream::Stdout => &mut both.stdout,
        Stream::Stderr => &mut both.stderr,
    }
}

impl ExecLog {
    /// A log that keeps output up to a limit.
    pub fn new(limit: ByteSize) -> Self {
        Self::with_limit(Some(limit.as_u64()))
    }

    /// A log that keeps only what its listener has not taken yet.
    pub fn flowing() -> Self {
        Self::with_limit(None)
    }

    fn with_limit(limit: Option<u64>) -> Self {
        let content = Content {
            events: VecDeque::from([ExecEvent::Started]),
            first: 0,
            limit,
            kept: PerStream::default(),
            written: PerStream::default(),
            ended: false,
        };
        Self(Arc::new(Shared {
            content: Mutex::new(content),
            length: watch::Sender::new(1),
            taken: watch::Sender::new(u64::MAX),
            flooded: CancellationToken::new(),
        }))
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self, stream: Stream, mut bytes: Bytes) {
        let mut content = self.content();
        *of(&mut content.written, stream) += bytes.len() as u64;
        let limit = content.limit.unwrap_or(u64::MAX);
        let room = limit.saturating_sub(content.kept.stdout + content.kept.stderr);
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        if !bytes.is_empty() {
            let offset = *of(&mut content.kept, stream);
            *of(&mut content.kept, stream) += bytes.len() as u64;
            content.events.push_back(ExecEvent::Output { stream, offset, bytes });
        }
        if content.written.stdout + content.written.stderr > limit.saturating_mul(OUTPUT_HARD_FACTOR) {
            self.0.flooded.cancel();
        }
        self.0.length.send_replace(content.length());
    }

    /// Waits while the listener that sets the pace lags behind.
    pub async fn pace(&self) {
        let kept = {
            let content = self.content();
            content.kept.stdout + content.kept.stderr
        };
        let mut taken = self.0.taken.subscribe();
        let _ = taken.wait_for(|taken| kept.saturating_sub(*taken) <= LAG).await;
    }

    /// Set when the program wrote so much more than is kept that it has to be ended.
    pub fn flooded(&self) -> &CancellationToken {
        &self.0.flooded
    }

    /// Closes the log with an end whose counts it fills in. The first end stands.
    pub fn end(&self, end: ExecEnd) {
        let mut content = self.content();
        if content.ended {
            return;
        }
        let end = ExecEnd { written: content.written, truncated: content.truncated(), ..end };
        content.events.push_back(ExecEvent::Exited(end));
        content.ended = true;
        self.0.length.send_replace(content.length());
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

    /// The events from an offset on.
    pub fn events(&self, from: Offset) -> BoxStream<'static, Result<ExecEvent>> {
        self.listen(from, None, None)
    }

    /// All events, for the one listener that sets the pace. What `guard` holds is let go of with the stream.
    pub fn paced_events(&self, guard: Option<ListenerGuard>) -> BoxStream<'static, Result<ExecEvent>> {
        self.0.taken.send_replace(0);
        self.listen(Offset::default(), Some(Pace(self.clone())), guard)
    }

    fn listen(
        &self,
        from: Offset,
        pace: Option<Pace>,
        guard: Option<ListenerGuard>,
    ) -> BoxStream<'static, Result<ExecEvent>> {
        let length = self.0.length.subscribe();
        let listener = Listener { log: self.clone(), length, next: 0, from, pace, _guard: guard };
        stream::unfold(listener, |mut listener| async move {
            let event = listener.next().await?;
            Some((Ok(event), listener))
        })
        .boxed()
    }
}

/// The pace that a listener sets for as long as it lives.
struct Pace(ExecLog);

impl Drop for Pace {
    fn drop(&mut self) {
        self.0.0.taken.send_replace(u64::MAX);
    }
}

struct Listener {
    log: ExecLog,
    length: watch::Receiver<usize>,
    next: usize,
    from: Offset,
    pace: Option<Pace>,
    _guard: Option<ListenerGuard>,
}

impl Listener {
    async fn next(&mut self) -> Option<ExecEvent> {
        loop {
            let event = {
                let mut content = self.log.content();
                self.next = self.next.max(content.first);
                let event = content.event(self.next).cloned();
                if event.is_some() && self.pace.is_some() {
                    content.forget_before(self.next + 1);
                }
                if event.is_none() && content.ended {
                    return None;
                }
                event
            };
            match event {
                Some(event) => {
                    self.next += 1;
                    self.note(&event);
                    if let Some(event) = self.unheard(event) {
                        return Some(event);
                    }
                }
                None => {
                    let _ = self.length.changed().await;
                }
            }
        }
    }

    fn note(&self, event: &ExecEvent) {
        if let (Some(Pace(log)), ExecEvent::Output { bytes, .. }) = (&self.pace, event) {
            log.0.taken.send_modify(|taken| *taken = taken.saturating_add(bytes.len() as u64));
        }
    }

    /// The event without what the listener has already; `None` if that is all of it.
    fn unheard(&mut self, event: ExecEvent) -> Option<ExecEvent> {
        let ExecEvent::Output { stream, offset, mut bytes } = event else {
            return Some(event);
        };
        let known = of(&mut self.from, stream).saturating_sub(offset);
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
        let rest = bytes.split_off(known);
        (!rest.is_empty()).then(|| ExecEvent::Output { stream, offset: offset + known as u64, bytes: rest })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sandstorm_types::LimitSet;

    use super::*;
    use crate::{EndCause, ExecStatus, Usage};

    fn end() -> ExecEnd {
        ExecEnd {
            status: ExecStatus::Code(0),
            cause: EndCause::Program,
            limits_hit: LimitSet::EMPTY,
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage: Usage::default(),
        }
    }

    #[tokio::test]
    async fn keeps_up_to_the_limit_and_counts_the_rest() {
        let log = ExecLog::new(ByteSize::bytes(5));
        log.write(Stream::Stdout, Bytes::from_static(b"abc"));
        log.write(Stream::Stderr, Bytes::from_static(b"defg"));
        log.write(Stream::Stdout, Bytes::from_static(b"h"));
        assert!(!log.flooded().is_cancelled());
        log.write(Stream::Stdout, Bytes::from_static(&[0; 40]));
        assert!(log.flooded().is_cancelled());
        log.end(end());
        let events: Vec<_> = log.events(Offset::default()).map(Result::unwrap).collect().await;
        assert_eq!(events.len(), 4);
        assert_eq!(
            events[2],
            ExecEvent::Output { stream: Stream::Stderr, offset: 0, bytes: Bytes::from_static(b"de") }
        );
        let ExecEvent::Exited(end) = events[3] else { panic!("{events:?}") };
        assert_eq!(end.written, PerStream { stdout: 44, stderr: 4 });
        assert_eq!(end.truncated, PerStream { stdout: true, stderr: true });
    }

    #[tokio::test]
    async fn listeners_start_where_they_say() {
        let log = ExecLog::new(ByteSize::bytes(100));
        log.write(Stream::Stdout, Bytes::from_static(b"abc"));
        log.write(Stream::Stdout, Bytes::from_static(b"def"));
        log.end(end());
        let from = PerStream { stdout: 4, stderr: 0 };
        let events: Vec<_> = log.events(from).map(Result::unwrap).collect().await;
        assert_eq!(
            events[1],
            ExecEvent::Output { stream: Stream::Stdout, offset: 4, bytes: Bytes::from_static(b"ef") }
        );
        assert_eq!(events.len(), 3);
    }

    #[tokio::test]
    async fn a_flowing_log_keeps_nothing_that_was_taken() {
        let log = ExecLog::flowing();
        let mut events = log.paced_events(None);
        for _ in 0..100 {
            log.write(Stream::Stdout, Bytes::from(vec![0; 1000]));
            // One guard at a time: two in one expression would wait for each other.
            while !log.content().events.is_empty() {
                events.next().await;
            }
        }
        assert_eq!(log.content().events.len(), 0);
        assert_eq!(log.content().written.stdout, 100_000);
        log.end(end());
        let last: Vec<_> = events.collect().await;
        assert!(matches!(
            last[..],
            [Ok(ExecEvent::Exited(ExecEnd { truncated: PerStream { stdout: false, .. }, .. }))]
        ));
    }

    #[tokio::test]
    async fn the_writer_waits_for_the_listener_that_sets_the_pace() {
        let log = ExecLog::new(ByteSize::mib(10));
        let mut events = log.paced_events(None);
        log.write(Stream::Stdout, Bytes::from(vec![0; LAG as usize + 1]));
        assert!(
            tokio::time::timeout(Duration::from_millis(20), log.pace()).await.is_err(),
            "it did not wait"
        );
        events.next().await;
        events.next().await;
        log.pace().await;
        log.write(Stream::Stdout, Bytes::from(vec![0; LAG as usize + 1]));
        drop(events);
        log.pace().await;
    }
}
