//! The events of a cell: made here, since a context's log is cut after every cell.
//!
//! What a cell prints is kept up to the limit of its sandbox: a little of it in memory, more of it in a file without a name.
//! What goes past the limit only the client hears for whom the cell runs, and the cell waits for that client.

mod ended_cells;
mod reader;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_types::{Event, EventBody, ExecId, PerStream, ProgramError, RichResult, Stream};
use tokio::sync::{Notify, watch};

pub(super) use ended_cells::EndedCells;
pub(super) use reader::Reader;

use super::ended::{Ended, KEPT_EVENTS};
use super::numbering::Numbering;
use crate::spool::{AGAIN, Spools, is_full};

/// Bytes of events that stay in memory, about; more of them move to the file.
const BLOCK: usize = KEPT_EVENTS;
/// What an event takes beside its output.
const EVENT: usize = 128;
/// Bytes past the limit that wait for the client for whom the cell runs.
const WAITING: usize = 256 << 10;

/// A log that one cell writes and any number of listeners read.
#[derive(Debug)]
pub(super) struct CellLog {
    content: Mutex<Content>,
    /// Told when there is something new.
    written: watch::Sender<()>,
    /// Told when there is room again.
    taken: Notify,
}

#[derive(Debug)]
struct Content {
    numbering: Numbering,
    fresh: VecDeque<Event>,
    stored: Stored,
    /// Those that are not in the file.
    tail: Vec<Event>,
    /// What these take, about, and what all take.
    tail_bytes: usize,
    bytes: usize,
    /// Bytes of output and of rich results that may still be kept.
    output_room: u64,
    result_room: u64,
    /// Output of which streams was not kept.
    cut: PerStream<bool>,
    /// What waits for the client for whom the cell runs, if there is one.
    live: Option<Live>,
    ended: bool,
}

/// Events that are in a file, in blocks: each is a list of events as JSON.
#[derive(Debug)]
struct Stored {
    spools: Spools,
    file: Option<Arc<File>>,
    blocks: Vec<Block>,
    length: u64,
    /// How many events that are.
    events: usize,
    /// There is no space for more just now.
    full: bool,
    /// Nothing more can be written.
    broken: bool,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Which of all events is the first in it.
    first: usize,
    at: u64,
    length: usize,
}

#[derive(Debug, Default)]
struct Live {
    events: VecDeque<Event>,
    bytes: usize,
    /// Whether the client was too slow at the end, and what it missed by that.
    given_up: bool,
    cut: PerStream<bool>,
}

impl CellLog {
    pub(super) fn new(exec: ExecId, output: u64, spools: Spools) -> Arc<Self> {
        let stored = Stored {
            spools,
            file: None,
            blocks: Vec::new(),
            length: 0,
            events: 0,
            full: false,
            broken: false,
        };
        let content = Content {
            numbering: Numbering::new(exec, false),
            fresh: VecDeque::new(),
            stored,
            tail: Vec::new(),
            tail_bytes: 0,
            bytes: 0,
            output_room: output,
            result_room: output.max(32 << 20),
            cut: PerStream::default(),
            live: None,
            ended: false,
        };
        Arc::new(Self { content: Mutex::new(content), written: watch::Sender::new(()), taken: Notify::new() })
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, size: usize, write: impl FnOnce(&mut Numbering, &mut VecDeque<Event>)) {
        let mut content = self.content();
        let Content { numbering, fresh, .. } = &mut *content;
        write(numbering, fresh);
        content.keep_fresh(size);
        self.written.send_replace(());
    }

    pub(super) fn start(&self, exec: ExecId) {
        self.write(EVENT, |numbering, into| numbering.push(EventBody::Start { exec }, into));
    }

    /// Output past the limit is for the client for whom the cell runs. `false`: it has none, or the client went away.
    pub(super) fn output(&self, stream: Stream, bytes: &[u8]) -> bool {
        let mut content = self.content();
        let room = if content.stored.broken { 0 } else { content.output_room };
        let kept = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        content.output_room -= kept as u64;
        let (kept, rest) = bytes.split_at(kept);
        if !kept.is_empty() {
            let Content { numbering, fresh, .. } = &mut *content;
            numbering.output(stream, kept, fresh);
            content.keep_fresh(kept.len());
        }
        if !rest.is_empty() {
            *of(&mut content.cut, stream) = true;
            content.pass_on(stream, rest);
        }
        self.written.send_replace(());
        content.live.as_ref().is_some_and(|live| !live.given_up)
    }

    pub(super) fn result(&self, shown: RichResult) {
        let size = serde_json::to_string(&shown.data).map_or(u64::MAX, |text| text.len() as u64);
        {
            let mut content = self.content();
            if size > content.result_room {
                return;
            }
            content.result_room -= size;
        }
        self.write(size as usize, |numbering, into| numbering.push(EventBody::Result(shown), into));
    }

    pub(super) fn error(&self, error: ProgramError) {
        let lines: usize = error.traceback.iter().map(String::len).sum();
        let size = error.name.len() + error.value.len() + lines;
        self.write(size, |numbering, into| numbering.push(EventBody::Error(error), into));
    }

    /// Keeps what goes past the limit for a client, from here on. It is to be read by [`Reader::of_client`].
    pub(super) fn attend(&self) {
        self.content().live = Some(Live::default());
    }

    /// The client for whom the cell runs went away.
    fn leave(&self) {
        self.content().live = None;
        self.taken.notify_waiters();
    }

    /// Waits until the client has taken what goes past the limit, and until there is space on the disk.
    pub(super) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            let full = {
                let mut content = self.content();
                content.spill();
                let waits = content.live.as_ref().is_some_and(|live| !live.given_up && live.bytes > WAITING);
                if !waits && !content.stored.full {
                    return;
                }
                content.stored.full
            };
            tokio::select! {
                () = taken => {}
                () = tokio::time::sleep(AGAIN), if full => {}
            }
        }
    }

    /// Waits for nothing any more: the client misses what it did not take, and of what finds no space nothing is kept.
    pub(super) fn give_up(&self) {
        let mut content = self.content();
        if let Some(live) = content.live.as_mut().filter(|live| live.bytes > WAITING) {
            live.given_up = true;
        }
        content.stored.broken |= content.stored.full;
        content.stored.full = false;
    }

    /// The last events, with the end that is about to be told, and its number.
    pub(super) fn with_end(&self, ended: &Ended) -> (Vec<Event>, u64) {
        let mut content = self.content();
        let mut last = VecDeque::new();
        content.numbering.end(ended, &mut last);
        if let Some(EventBody::End(end)) = last.back_mut().map(|event| &mut event.body) {
            // The cell counts what it kept.
            end.truncated = content.cut;
        }
        let number = last.back().map_or(0, |event| event.seq);
        (last.into(), number)
    }

    /// All events, if there are few enough to be stored with `last` behind them.
    pub(super) fn few(&self, last: &[Event]) -> Option<Vec<Event>> {
        let content = self.content();
        let few = content.bytes <= KEPT_EVENTS && content.stored.events == 0;
        few.then(|| [&content.tail[..], last].concat())
    }

    /// Closes the log with the events that [`CellLog::with_end`] gave.
    pub(super) fn close(&self, last: Vec<Event>) {
        let mut content = self.content();
        content.fresh.extend(last);
        content.keep_fresh(EVENT);
        content.ended = true;
        self.written.send_replace(());
    }

    /// Bytes of it in memory, about, and in a file.
    fn size(&self) -> (usize, u64) {
        let content = self.content();
        (content.tail_bytes + 1024, content.stored.length)
    }
}

impl Content {
    /// Keeps the events that were just made. `size`: what they hold, about.
    fn keep_fresh(&mut self, size: usize) {
        let size = size + EVENT * self.fresh.len();
        self.tail.extend(self.fresh.drain(..));
        self.tail_bytes += size;
        self.bytes += size;
        self.spill();
    }

    /// Puts output past the limit where the client takes it.
    fn pass_on(&mut self, stream: Stream, bytes: &[u8]) {
        let Self { numbering, fresh, live: Some(live), .. } = self else { return };
        if live.given_up {
            *of(&mut live.cut, stream) = true;
            return;
        }
        numbering.output(stream, bytes, fresh);
        live.bytes += bytes.len() + EVENT * fresh.len();
        live.events.extend(fresh.drain(..));
    }

    /// Moves events to the file when there are many.
    fn spill(&mut self) {
        let Self { stored, tail, tail_bytes, .. } = self;
        stored.full = false;
        if *tail_bytes <= BLOCK || stored.broken {
            return;
        }
        let Spools::Files(dir) = &stored.spools else { return };
        let dir = Arc::clone(dir);
        match stored.write(&dir, tail) {
            Ok(()) => {
                tail.clear();
                *tail_bytes = 0;
            }
            Err(error) if is_full(&error) => {
                tracing::debug!(%error, "a cell waits until what it writes can be kept");
                stored.full = true;
            }
            Err(error) => {
                tracing::error!(%error, "output of a cell cannot be kept");
                stored.broken = true;
            }
        }
    }
}

impl Stored {
    fn write(&mut self, dir: &Path, events: &[Event]) -> io::Result<()> {
        let text = serde_json::to_vec(events)?;
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(tempfile::tempfile_in(dir)?)),
        };
        file.write_all_at(&text, self.length)?;
        self.blocks.push(Block { first: self.events, at: self.length, length: text.len() });
        self.length += text.len() as u64;
        self.events += events.len();
        Ok(())
    }

    /// The block that holds this event.
    fn block_of(&self, number: usize) -> Option<(Arc<File>, Block)> {
        let after = self.blocks.partition_point(|block| block.first <= number);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        Some((Arc::clone(self.file.as_ref()?), *block))
    }
}

fn of(streams: &mut PerStream<bool>, stream: Stream) -> &mut bool {
    match stream {
        Stream::Stdout => &mut streams.stdout,
        Stream::Stderr => &mut streams.stderr,
    }
}

#[cfg(test)]
mod tests;
