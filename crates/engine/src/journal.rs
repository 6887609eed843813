//! What a program wrote and how it ended, in a file that outlives this process.
//!
//! Every event is appended before the agent forgets it, so that whatever happens to this process, what the program
//! wrote is either here or still with the agent. The page cache outlives a process that is killed; nothing is synced,
//! since a machine that goes down takes the sandboxes with it. A record that was only half written is recognised and cut.

mod record;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sandstorm_provider::{ExecEvent, Journal, Restored};
use sandstorm_types::PerStream;

pub(crate) use record::About;
use record::{Clock, HEADER, Head, LONGEST, Record, both, pair};

use crate::exec::space::Full;

/// How far apart the places are that reading can begin at.
const STEP: u64 = 64 * 1024;

/// Bytes that one reading gives at most, beyond the first event.
const BATCH: usize = 256 * 1024;

/// A file is written anew when so much of it is forgotten, and more than half.
const WASTE: u64 = 1 << 20;

/// The journal of one exec.
#[derive(Debug, Clone)]
pub(crate) struct ExecJournal(Arc<Mutex<Content>>);

#[derive(Debug)]
struct Content {
    path: PathBuf,
    /// Held while the program runs. A journal that is only kept is opened for each reading: there may be many.
    file: Option<File>,
    length: u64,
    about: About,
    /// Number of the first event in the file, and of the next.
    first: u64,
    next: u64,
    /// Events before this are forgotten.
    base: u64,
    kept: PerStream<u64>,
    written: PerStream<u64>,
    channel: u64,
    ended: bool,
    clock: Option<Clock>,
    /// Numbers of events and where they are in the file, some way apart.
    index: Vec<(u64, u64)>,
}

impl ExecJournal {
    /// A new journal. Its directory is made when it is missing.
    pub(crate) fn create(path: PathBuf, about: About) -> io::Result<Self> {
        let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = match (open(), path.parent()) {
            (Err(e), Some(dir)) if e.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
                open()?
            }
            (opened, _) => opened?,
        };
        let mut content = Content {
            path,
            file: Some(file),
            length: 0,
            about,
            first: 0,
            next: 0,
            base: 0,
            kept: PerStream::default(),
            written: PerStream::default(),
            channel: 0,
            ended: false,
            clock: None,
            index: Vec::new(),
        };
        let head = content.head(0);
        if let Err(error) = content.put(&Record::Head(head)) {
            // Half of a beginning would be in the way of another try.
            let _ = fs::remove_file(&content.path);
            return Err(error);
        }
        Ok(Self(Arc::new(Mutex::new(content))))
    }

    /// The journal that another process left. What it had only begun to write is cut off.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "it does not begin as a journal does");
        let Some((Record::Head(head), mut at)) = read_record(&file, 0, size)? else {
            return Err(malformed());
        };
        let mut content = Content {
            path: path.to_owned(),
            file: Some(file),
            length: 0,
            about: head.about,
            first: head.first,
            next: head.first,
            base: head.first,
            kept: both(head.kept),
            written: both(head.written),
            channel: head.channel,
            ended: false,
            clock: None,
            index: Vec::new(),
        };
        loop {
            let read = read_record(&*content.opened()?, at, size)?;
            content.length = at;
            let Some((record, length)) = read else { break };
            content.note(&record);
            at += length;
        }
        if at < size {
            content.opened()?.set_len(at)?;
        }
        content.let_go();
        Ok(Self(Arc::new(Mutex::new(content))))
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn about(&self) -> About {
        self.content().about
    }

    /// Where a log goes on. `None`: the program never started.
    pub(crate) fn restored(&self) -> Option<Restored> {
        let content = self.content();
        (content.next > 0).then_some(Restored {
            first: content.first,
            next: content.next,
            kept: content.kept,
            written: content.written,
            channel: content.channel,
            ended: content.ended,
        })
    }

    /// Notes what is left of the program's time and whether that runs.
    pub(crate) fn set_clock(&self, left: Duration, runs: bool) -> io::Result<()> {
        let at = since_boot();
        self.content().put(&Record::Clock(Clock { left, runs, at }))
    }

    /// What is left of the program's time now.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let clock = self.content().clock?;
        // One of an earlier version is by the wall clock, much later than any start of a machine: nothing has passed then.
        let passed = since_boot().saturating_sub(clock.at);
        Some(if clock.runs { clock.left.saturating_sub(passed) } else { clock.left })
    }

    /// Bytes in the file.
    pub(crate) fn length(&self) -> u64 {
        self.content().length
    }

    /// When something was last written to it.
    pub(crate) fn touched(&self) -> Option<SystemTime> {
        fs::metadata(&self.content().path).and_then(|found| found.modified()).ok()
    }

    /// Removes the file. Whoever still reads can read to the end.
    pub(crate) fn remove(&self) {
        let mut content = self.content();
        if content.file.is_none() {
            content.file = File::open(&content.path).ok();
        }
        let _ = fs::remove_file(&content.path);
    }
}

/// How long ago the machine started. Nobody sets this clock, and no program outlives what it counts from.
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// The record at a place of a file, and its length. `None`: there is no whole one.
fn read_record(file: &File, at: u64, size: u64) -> io::Result<Option<(Record, u64)>> {
    let rest = size.saturating_sub(at);
    if rest < HEADER as u64 {
        return Ok(None);
    }
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, at)?;
    let length = HEADER as u64 + u64::from(u32::from_le_bytes([header[0], header[1], header[2], header[3]]));
    if length > rest || length > LONGEST as u64 + HEADER as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Record::decode(&bytes).map(|(record, length)| (record, length as u64)))
}

/// A journal's file, held or opened for the moment.
enum Opened<'a> {
    Held(&'a File),
    ForNow(File),
}

impl std::ops::Deref for Opened<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::Held(file) => file,
            Self::ForNow(file) => file,
        }
    }
}

impl Content {
    fn head(&self, first: u64) -> Head {
        Head {
            about: self.about,
            first,
            kept: pair(self.kept),
            written: pair(self.written),
            channel: self.channel,
        }
    }

    fn opened(&self) -> io::Result<Opened<'_>> {
        match &self.file {
            Some(file) => Ok(Opened::Held(file)),
            None => OpenOptions::new().read(true).write(true).open(&self.path).map(Opened::ForNow),
        }
    }

    /// The program ended: nothing more is written.
    fn let_go(&mut self) {
        if self.ended {
            self.file = None;
        }
    }

    /// Appends a record. One that could not be written whole is taken back, so that what follows can be read.
    fn put(&mut self, record: &Record) -> io::Result<()> {
        let bytes = record.encode()?;
        let file = self.opened()?;
        if let Err(error) = file.write_all_at(&bytes, self.length) {
            let _ = file.set_len(self.length);
            return Err(error);
        }
        drop(file);
        self.note(record);
        self.length += bytes.len() as u64;
        self.let_go();
        Ok(())
    }

    /// Takes a record that begins at the end of the file into account.
    fn note(&mut self, record: &Record) {
        match record {
            Record::Output { error, offset, bytes } => {
                let end = offset + bytes.len() as u64;
                let (kept, written) = match error {
                    false => (&mut self.kept.stdout, &mut self.written.stdout),
                    true => (&mut self.kept.stderr, &mut self.written.stderr),
                };
                *kept = end.max(*kept);
                *written = end.max(*written);
            }
            Record::Channel { offset, bytes } => self.channel = self.channel.max(offset + bytes.len() as u64),
            Record::Exited(_) | Record::ExitedDenied(..) => self.ended = true,
            Record::Written(stdout, stderr) => self.written = both((*stdout, *stderr)),
            Record::Clock(clock) => self.clock = Some(*clock),
            Record::Head(_) | Record::Started => {}
        }
        if record.is_event() {
            if self.index.last().is_none_or(|(_, at)| self.length >= at + STEP) {
                self.index.push((self.next, self.length));
            }
            self.next += 1;
        }
    }

    /// The records from an event on, each with its number if it is one; ends early when `take` says so.
    fn walk(&self, from: u64, mut take: impl FnMut(Option<u64>, Record) -> bool) -> io::Result<()> {
        let place = self.index.partition_point(|(number, _)| *number <= from).saturating_sub(1);
        let Some((mut number, mut at)) = self.index.get(place).copied() else { return Ok(()) };
        let file = self.opened()?;
        while at < self.length {
            let (record, length) = read_record(&file, at, self.length)?
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a record was damaged"))?;
            at += length;
            let own = record.is_event().then_some(number);
            number += u64::from(own.is_some());
            if own.is_none_or(|own| own >= from) && !take(own, record) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Copies what is not forgotten.
    fn fill_from(&mut self, old: &Self) -> io::Result<()> {
        let head = self.head(old.base);
        self.put(&Record::Head(head))?;
        // Before the end, after which the file is let go of.
        if let Some(clock) = old.clock {
            self.put(&Record::Clock(clock))?;
        }
        let mut copied = Ok(());
        if old.base < old.next {
            old.walk(old.base, |number, record| {
                if number.is_some() {
                    copied = self.put(&record);
                }
                copied.is_ok()
            })?;
        }
        copied
    }

    /// Writes the file anew without what is forgotten.
    fn compact(&mut self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        let mut anew = Self {
            path: self.path.clone(),
            file: Some(file),
            length: 0,
            first: self.base,
            next: self.base,
            index: Vec::new(),
            // Until its end is copied: what has ended lets go of its file.
            ended: false,
            ..*self
        };
        let filled = anew.fill_from(self).and_then(|()| fs::rename(&beside, &self.path));
        if let Err(error) = filled {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        anew.ended = self.ended;
        *self = anew;
        self.let_go();
        Ok(())
    }
}

impl Journal for ExecJournal {
    fn append(&self, number: u64, event: &ExecEvent) -> io::Result<()> {
        let mut content = self.content();
        if number != content.next {
            return Err(io::Error::other("an event is out of order"));
        }
        content.put(&Record::from(event))
    }

    fn count(&self, written: PerStream<u64>) -> io::Result<()> {
        let (stdout, stderr) = pair(written);
        self.content().put(&Record::Written(stdout, stderr))
    }

    fn read(&self, from: u64) -> io::Result<Vec<ExecEvent>> {
        let (mut events, mut size) = (Vec::new(), 0);
        let content = self.content();
        if from < content.first {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the event was forgotten"));
        }
        content.walk(from, |number, record| {
            if let (Some(_), Some(event)) = (number, record.into_event()) {
                if let ExecEvent::Output { bytes, .. } | ExecEvent::Channel { bytes, .. } = &event {
                    size += bytes.len();
                }
                events.push(event);
            }
            size < BATCH
        })?;
        Ok(events)
    }

    fn forget(&self, before: u64) -> io::Result<()> {
        let mut content = self.content();
        content.base = content.base.max(before.min(content.next));
        let forgotten = content.index.iter().rev().find(|(number, _)| *number <= content.base);
        let waste = forgotten.map_or(0, |(_, at)| *at);
        // With nothing to copy it is cheap, but not so cheap that every cell of a context could pay for it.
        let all = content.base == content.next && content.length > STEP;
        if all || (waste > WASTE && waste > content.length / 2) {
            unless_full(content.compact())?;
        }
        Ok(())
    }

    fn unforgotten(&self) -> u64 {
        let content = self.content();
        if content.base == content.next {
            return 0;
        }
        let place = content.index.partition_point(|(number, _)| *number <= content.base).saturating_sub(1);
        content.length - content.index.get(place).map_or(0, |(_, at)| *at)
    }
}

/// A file that could not be written anew is too long for a while, and nothing else is wrong with it.
fn unless_full(compacted: io::Result<()>) -> io::Result<()> {
    compacted.or_else(|error| if Full::is(&error) { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests;
