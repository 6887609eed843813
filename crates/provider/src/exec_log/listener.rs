//! One listener's way through a log.

use std::collections::VecDeque;

use sandstorm_types::ErrorKind;
use tokio::sync::watch;

use super::{ExecLog, Keep, ListenerGuard, of};
use crate::{Error, ExecEvent, Offset, Result};

/// The pace that a listener sets for as long as it lives.
pub(super) struct Pace {
    pub(super) log: ExecLog,
    pub(super) who: u64,
}

impl Pace {
    /// The listener has taken everything before `number`.
    fn note(&self, number: u64) {
        let mut content = self.log.content();
        if content.pacer == Some(self.who) {
            content.take_before(number);
            self.log.settle(&mut content);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        let mut content = self.log.content();
        if content.pacer == Some(self.who) {
            content.pacer = None;
            while content.take_beyond().is_some() {}
            self.log.settle(&mut content);
            // Somebody else who listens may have to set the pace now.
            self.log.0.length.send_modify(|_| {});
        }
    }
}

pub(super) struct Listener {
    log: ExecLog,
    length: watch::Receiver<u64>,
    next: u64,
    known: Offset,
    /// Events from number `next` on that were read from the journal.
    read: VecDeque<ExecEvent>,
    pace: Option<Pace>,
    _guard: Option<ListenerGuard>,
}

impl Listener {
    pub(super) fn new(
        log: ExecLog,
        length: watch::Receiver<u64>,
        next: u64,
        known: Offset,
        pace: Option<Pace>,
        guard: Option<ListenerGuard>,
    ) -> Self {
        Self { log, length, next, known, read: VecDeque::new(), pace, _guard: guard }
    }

    /// The next event that this listener does not know. `None`: there will be no more.
    pub(super) async fn next(&mut self) -> Option<Result<ExecEvent>> {
        loop {
            match self.look() {
                Look::Event(event) => {
                    self.next += 1;
                    if let Some(pace) = &self.pace {
                        pace.note(self.next);
                    }
                    if let Some(event) = self.unheard(event) {
                        return Some(Ok(event));
                    }
                }
                Look::Beyond(event) => return Some(Ok(event)),
                Look::Failed(error) => return Some(Err(error)),
                Look::Over => return None,
                Look::Wait => {
                    let _ = self.length.changed().await;
                }
            }
        }
    }

    fn look(&mut self) -> Look {
        if let Some(event) = self.beyond() {
            return Look::Beyond(event);
        }
        if let Some(event) = self.read.pop_front() {
            return Look::Event(event);
        }
        // Marked as seen before looking, so that what comes in between is not slept through.
        self.length.borrow_and_update();
        let mut content = self.log.content();
        if self.next < content.base {
            // To go on behind the gap would give what follows wrong numbers.
            let forgotten = "what came meanwhile was forgotten";
            return Look::Failed(Error::new(ErrorKind::Conflict, forgotten));
        }
        let flows = matches!(content.keep, Keep::UntilTaken | Keep::UpToUntilTaken(_));
        if self.pace.is_none() && flows && content.pacer.is_none() {
            // The program waits for somebody to take what it writes, and its own listener went away.
            self.pace = Some(self.log.start_pacing(&mut content, self.next));
        }
        if let Some(event) = content.event(self.next) {
            return Look::Event(event.clone());
        }
        if self.next < content.first {
            drop(content);
            return self.read_journal();
        }
        match (&content.failure, content.ended) {
            (Some(reason), _) => Look::Failed(Error::new(ErrorKind::Provider, reason.clone())),
            (None, true) => Look::Over,
            (None, false) => Look::Wait,
        }
    }

    /// Output past the limit, once everything before it was heard: only the end comes after it.
    fn beyond(&mut self) -> Option<ExecEvent> {
        let pace = self.pace.as_ref()?;
        let mut content = self.log.content();
        if content.beyond.as_ref()?.is_empty() || content.pacer != Some(pace.who) {
            return None;
        }
        let next = self.read.front().or_else(|| content.event(self.next));
        let is_next = match next {
            Some(event) => matches!(event, ExecEvent::Exited(_)),
            None => self.next >= content.length(),
        };
        let event = if is_next { content.take_beyond() } else { None };
        self.log.settle(&mut content);
        event
    }

    /// Events that are not in memory any more.
    fn read_journal(&mut self) -> Look {
        let lost = || Error::new(ErrorKind::Internal, "what the program wrote cannot be read any more");
        let Some(journal) = &self.log.0.journal else { return Look::Failed(lost()) };
        match journal.read(self.next) {
            Ok(events) => {
                self.read = events.into();
                self.read.pop_front().map_or_else(|| Look::Failed(lost()), Look::Event)
            }
            Err(error) => Look::Failed(lost().with_source(error)),
        }
    }

    /// The event without what the listener has already; `None` if that is all of it.
    fn unheard(&mut self, event: ExecEvent) -> Option<ExecEvent> {
        let ExecEvent::Output { stream, offset, mut bytes } = event else {
            return Some(event);
        };
        let known = of(&mut self.known, stream).saturating_sub(offset);
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
        let rest = bytes.split_off(known);
        (!rest.is_empty()).then(|| ExecEvent::Output { stream, offset: offset + known as u64, bytes: rest })
    }
}

enum Look {
    Event(ExecEvent),
    /// One without a number.
    Beyond(ExecEvent),
    Failed(Error),
    Over,
    Wait,
}
