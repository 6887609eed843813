//! The events of a cell: made here, since a context's log is cut after every cell.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_types::{Event, EventBody, ExecId, ProgramError, RichResult, Stream};
use tokio::sync::watch;

use super::ended::Ended;
use super::numbering::Numbering;

/// Bytes of events of ended cells that are kept in memory.
const KEPT: usize = 64 << 20;

/// A log that one cell writes and any number of listeners read.
#[derive(Debug)]
pub(super) struct CellLog {
    content: Mutex<Content>,
    length: watch::Sender<usize>,
}

#[derive(Debug)]
struct Content {
    numbering: Numbering,
    events: Vec<Event>,
    fresh: VecDeque<Event>,
    /// Bytes of output and of rich results that may still be kept.
    output_room: u64,
    result_room: u64,
    bytes: usize,
    ended: bool,
}

impl CellLog {
    pub(super) fn new(exec: ExecId, output: u64) -> Arc<Self> {
        let content = Content {
            numbering: Numbering::new(exec, false),
            events: Vec::new(),
            fresh: VecDeque::new(),
            output_room: output,
            result_room: output.max(32 << 20),
            bytes: 0,
            ended: false,
        };
        Arc::new(Self { content: Mutex::new(content), length: watch::Sender::new(0) })
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, write: impl FnOnce(&mut Numbering, &mut VecDeque<Event>)) {
        let mut content = self.content();
        let Content { numbering, events, fresh, .. } = &mut *content;
        write(numbering, fresh);
        events.extend(fresh.drain(..));
        self.length.send_replace(content.events.len());
    }

    pub(super) fn start(&self, exec: ExecId) {
        self.write(|numbering, into| numbering.push(EventBody::Start { exec }, into));
    }

    /// Output past the limit is left out, as the result leaves it out.
    pub(super) fn output(&self, stream: Stream, bytes: &[u8]) {
        let kept = {
            let mut content = self.content();
            let kept = bytes.len().min(usize::try_from(content.output_room).unwrap_or(usize::MAX));
            content.output_room -= kept as u64;
            content.bytes += kept;
            kept
        };
        if kept > 0 {
            self.write(|numbering, into| numbering.output(stream, &bytes[..kept], into));
        }
    }

    pub(super) fn result(&self, shown: RichResult) {
        let size = serde_json::to_string(&shown.data).map_or(u64::MAX, |text| text.len() as u64);
        {
            let mut content = self.content();
            if size > content.result_room {
                return;
            }
            content.result_room -= size;
            content.bytes += size as usize;
        }
        self.write(|numbering, into| numbering.push(EventBody::Result(shown), into));
    }

    pub(super) fn error(&self, error: ProgramError) {
        let lines: usize = error.traceback.iter().map(String::len).sum();
        self.content().bytes += error.name.len() + error.value.len() + lines;
        self.write(|numbering, into| numbering.push(EventBody::Error(error), into));
    }

    /// The events with the end that is about to be told, for the store.
    pub(super) fn with_end(&self, ended: &Ended) -> (Vec<Event>, u64) {
        let mut last = VecDeque::new();
        let mut content = self.content();
        content.numbering.end(ended, &mut last);
        if let Some(EventBody::End(end)) = last.back_mut().map(|event| &mut event.body) {
            // The cell counts what it kept.
            end.truncated = ended.result.truncated;
        }
        let mut events = content.events.clone();
        events.extend(last);
        let number = events.last().map_or(0, |event| event.seq);
        (events, number)
    }

    /// Closes the log with the events that [`CellLog::with_end`] gave.
    pub(super) fn close(&self, events: Vec<Event>) {
        let mut content = self.content();
        content.events = events;
        content.ended = true;
        self.length.send_replace(content.events.len());
    }

    /// The event of a number, waited for if it is still to come. `None` after the last.
    pub(super) async fn event(&self, number: u64) -> Option<Event> {
        let number = usize::try_from(number).ok()?;
        let mut length = self.length.subscribe();
        loop {
            {
                let content = self.content();
                if let Some(event) = content.events.get(number) {
                    return Some(event.clone());
                }
                if content.ended {
                    return None;
                }
                length.mark_unchanged();
            }
            let _ = length.changed().await;
        }
    }

    /// What its events take, about.
    pub(super) fn bytes(&self) -> usize {
        self.content().bytes + 1024
    }
}

/// Logs of cells that ended, the latest ones.
#[derive(Debug, Default)]
pub(super) struct EndedCells(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    logs: HashMap<ExecId, Arc<CellLog>>,
    order: VecDeque<(ExecId, std::time::Instant)>,
    bytes: usize,
}

impl EndedCells {
    pub(super) fn keep(&self, exec: ExecId, log: Arc<CellLog>) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.bytes += log.bytes();
        shelf.logs.insert(exec, log);
        shelf.order.push_back((exec, std::time::Instant::now()));
        shelf.drop_while(|shelf, _| shelf.bytes > KEPT);
    }

    pub(super) fn get(&self, exec: ExecId) -> Option<Arc<CellLog>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).logs.get(&exec).cloned()
    }

    /// Lets go of what ended longer than `age` ago.
    pub(super) fn forget_older_than(&self, age: std::time::Duration) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.drop_while(|_, at| at.elapsed() > age);
    }
}

impl Shelf {
    fn drop_while(&mut self, too_much: impl Fn(&Self, std::time::Instant) -> bool) {
        while let Some((exec, at)) = self.order.front().copied() {
            if !too_much(self, at) {
                return;
            }
            self.order.pop_front();
            if let Some(log) = self.logs.remove(&exec) {
                self.bytes -= log.bytes();
            }
        }
    }
}
