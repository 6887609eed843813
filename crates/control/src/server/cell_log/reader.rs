//! Reading the log of a cell from its beginning, as it grows.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use sandstorm_types::{Event, EventBody, PerStream};

use super::{Block, CellLog, Content};

/// One listener's place in a log.
#[derive(Debug)]
pub(in crate::server) struct Reader {
    log: Arc<CellLog>,
    /// Which of the kept events is next.
    number: usize,
    /// Those from there on that were read from the file.
    read: VecDeque<Event>,
    /// It is the client for whom the cell runs.
    is_client: bool,
}

/// What comes next.
enum Next {
    Event(Event),
    /// It has to be read first.
    InFile(Arc<File>, Block),
    Later,
    Never,
}

impl Reader {
    pub(in crate::server) fn new(log: Arc<CellLog>) -> Self {
        Self { log, number: 0, read: VecDeque::new(), is_client: false }
    }

    /// For the client for whom the cell runs, after [`CellLog::attend`]. Dropping it tells the log that the client went away.
    pub(in crate::server) fn of_client(log: Arc<CellLog>) -> Self {
        Self { log, number: 0, read: VecDeque::new(), is_client: true }
    }

    /// The next event, waited for if it is still to come. `None` after the last.
    pub(in crate::server) async fn next(&mut self) -> Option<Event> {
        let mut written = self.log.written.subscribe();
        loop {
            let next = {
                let log = Arc::clone(&self.log);
                let mut content = log.content();
                // What comes from here on is heard of below.
                written.mark_unchanged();
                self.look(&mut content)
            };
            match next {
                Next::Event(event) => {
                    if self.is_client {
                        self.log.taken.notify_waiters();
                    }
                    return Some(event);
                }
                Next::InFile(file, block) => {
                    let skipped = self.number - block.first;
                    match read(&file, block) {
                        Ok(events) => self.read = events.into_iter().skip(skipped).collect(),
                        Err(error) => {
                            // It ends without an end, so that no client takes it for whole.
                            tracing::error!(%error, "output of a cell cannot be read any more");
                            return None;
                        }
                    }
                }
                Next::Later => drop(written.changed().await),
                Next::Never => return None,
            }
        }
    }

    fn look(&mut self, content: &mut Content) -> Next {
        let stored = &content.stored;
        if self.read.is_empty()
            && self.number < stored.events
            && let Some((file, block)) = stored.block_of(self.number)
        {
            return Next::InFile(file, block);
        }
        let kept = self.read.front().or_else(|| content.tail.get(self.number.checked_sub(stored.events)?));
        let live = content.live.as_mut().filter(|_| self.is_client);
        let missed = live.as_ref().map_or(content.cut, |live| live.cut);
        // What goes past the limit lies between what is kept, by its number.
        if let Some(live) = live
            && live.events.front().is_some_and(|front| kept.is_none_or(|kept| front.seq < kept.seq))
            && let Some(event) = live.events.pop_front()
        {
            live.bytes = if live.events.is_empty() { 0 } else { live.bytes.saturating_sub(size(&event)) };
            return Next::Event(event);
        }
        let Some(mut event) = kept.cloned() else {
            return if content.ended { Next::Never } else { Next::Later };
        };
        self.number += 1;
        self.read.pop_front();
        if self.is_client {
            tell_missed(&mut event, missed);
        }
        Next::Event(event)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.is_client {
            self.log.leave();
        }
    }
}

/// The client has heard more than what is kept, so the end tells it what itself has missed.
fn tell_missed(event: &mut Event, missed: PerStream<bool>) {
    if let EventBody::End(end) = &mut event.body {
        end.truncated = missed;
    }
}

fn size(event: &Event) -> usize {
    let bytes = match &event.body {
        EventBody::Stdout(chunk) | EventBody::Stderr(chunk) => chunk.data.as_bytes().len(),
        _ => 0,
    };
    bytes + super::EVENT
}

fn read(file: &File, block: Block) -> io::Result<Vec<Event>> {
    let mut text = vec![0; block.length];
    file.read_exact_at(&mut text, block.at)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}
