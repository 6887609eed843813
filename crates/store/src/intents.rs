//! What is about to be done, and how it ended, on file before its transaction is committed.
//!
//! A transaction takes longer than a short program. To put the same on file takes one call of the kernel, and it survives
//! what a commit survives with [`Durability::Normal`]: the end of this process, however it comes. The transaction follows
//! while the work goes on, or after its end; see [`crate::settling`]. What a server did not live to commit, the next one
//! commits: [`Store::catch_up`].
//!
//! The file has places of one size. Each holds one intent, with or without its outcome, or nothing, and is used again.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::digest::{Context, SHA256};
use sandstorm_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::contexts::no_context;
use crate::{
    Audit, ContextChanges, Durability, ExecEnd, ExecRow, Json, Result, RunEnd, RunRow, Store, StoreConfig,
    StoreError, WholeCell, WholeRun,
};

/// Bytes of a place. What does not fit is committed before it is done.
const PLACE: usize = 8 << 10;
/// Length and hash in front of an intent, and of its outcome. A length of nothing is an empty place.
const HEAD: usize = 4 + HASH;
const HASH: usize = 32;
/// Places in use at most: more than can wait for one writer at once, so that only what failed fills them.
const MOST: u32 = 4096;

/// What is about to begin.
#[derive(Debug, Serialize, Deserialize)]
enum Intent<'a> {
    Cell {
        cell: Cow<'a, ExecRow>,
        position: Option<i64>,
        next_cell: Option<i64>,
        events: Cow<'a, [Json]>,
        audit: Cow<'a, Audit>,
    },
    Run {
        run: Cow<'a, RunRow>,
        events: Cow<'a, [Json]>,
        audit: Cow<'a, Audit>,
    },
}

/// How it ended.
#[derive(Debug, Serialize, Deserialize)]
enum Outcome<'a> {
    Cell {
        end: Cow<'a, ExecEnd>,
        position: Option<i64>,
        next_cell: Option<i64>,
        execution_count: Option<i64>,
        events: Cow<'a, [Json]>,
    },
    Run {
        end: Cow<'a, RunEnd>,
        events: Cow<'a, [Json]>,
    },
}

/// The file, which is made when it is needed first.
#[derive(Debug)]
pub(crate) struct Intents {
    path: PathBuf,
    /// Whether a commit survives no more than what is written here.
    is_enough: bool,
    /// Whether the last transaction could not be committed: then nobody begins what may not be recorded for long.
    in_doubt: AtomicBool,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    file: Option<File>,
    /// How many there are, and which of them are empty.
    count: u32,
    empty: Vec<u32>,
}

/// An intent on file. It stays there until its transaction is committed.
#[derive(Debug)]
#[must_use = "it stays on file until it is said to be recorded"]
pub struct Announced {
    intents: Arc<Intents>,
    place: u32,
    /// How much of the place it takes, and its hash, which that of its outcome goes on from.
    length: usize,
    hash: [u8; HASH],
}

impl Intents {
    pub(crate) fn new(config: &StoreConfig) -> Arc<Self> {
        let is_enough = config.durability == Durability::Normal;
        Arc::new(Self {
            path: config.intents.clone(),
            is_enough,
            in_doubt: AtomicBool::new(false),
            places: Mutex::default(),
        })
    }

    /// What became of a transaction.
    pub(crate) fn learn<T>(&self, written: &Result<T>) {
        let failed = written.as_ref().is_err_and(StoreError::is_transient);
        if written.is_ok() || failed {
            self.in_doubt.store(failed, Ordering::Relaxed);
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(self: &Arc<Self>, text: &[u8]) -> io::Result<Option<Announced>> {
        let Some((bytes, hash)) = part(&[], text, PLACE) else { return Ok(None) };
        let mut places = self.places();
        if places.file.is_none() {
            let open =
                OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path);
            places.file = Some(open?);
        }
        let place = match places.empty.pop() {
            Some(place) => place,
            None if places.count < MOST => {
                places.count += 1;
                places.count - 1
            }
            None => return Ok(None),
        };
        let file = places.file.as_ref().expect("it was opened above");
        match file.write_all_at(&bytes, start_of(place)) {
            Ok(()) => Ok(Some(Announced { intents: Arc::clone(self), place, length: bytes.len(), hash })),
            Err(error) => {
                places.empty.push(place);
                Err(error)
            }
        }
    }

    /// What is on file, of this server or an earlier one, in the order of its beginning.
    fn read(&self) -> io::Result<Vec<(Intent<'static>, Option<Outcome<'static>>)>> {
        let bytes = match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        let mut found: Vec<_> = bytes.chunks(PLACE).filter_map(intent_in).collect();
        found.sort_by_key(|(intent, _)| intent.order());
        Ok(found)
    }
}

impl Intent<'_> {
    fn order(&self) -> (Timestamp, Option<i64>) {
        match self {
            Self::Cell { cell, next_cell, .. } => (cell.started_at, *next_cell),
            Self::Run { run, .. } => (run.created_at, None),
        }
    }
}

impl Announced {
    /// Puts on file how it ended, beside it.
    fn add(&self, outcome: &Outcome<'_>) -> bool {
        let Ok(text) = serde_json::to_vec(outcome) else { return false };
        let Some((bytes, _)) = part(&self.hash, &text, PLACE - self.length) else { return false };
        let places = self.intents.places();
        let file = places.file.as_ref().expect("it is on file");
        let written = file.write_all_at(&bytes, start_of(self.place) + self.length as u64);
        if let Err(error) = &written {
            tracing::warn!(%error, "an outcome could not be put on file");
        }
        written.is_ok()
    }

    /// Its transaction is committed: it need not be on file any more.
    pub fn recorded(self) {
        let mut places = self.intents.places();
        let file = places.file.as_ref().expect("it is on file");
        match file.write_all_at(&[0; 4], start_of(self.place)) {
            Ok(()) => places.empty.push(self.place),
            // What is found there again is found to be recorded.
            Err(error) => tracing::warn!(%error, "an intent could not be taken off its file"),
        }
    }
}

fn start_of(place: u32) -> u64 {
    u64::from(place) * PLACE as u64
}

/// A text with its head, and its hash, if there is room for it. The hash goes on from `before`.
fn part(before: &[u8], text: &[u8], room: usize) -> Option<(Vec<u8>, [u8; HASH])> {
    if HEAD + text.len() > room {
        return None;
    }
    let hash = hash(before, text);
    let mut bytes = Vec::with_capacity(HEAD + text.len());
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&hash);
    bytes.extend_from_slice(text);
    Some((bytes, hash))
}

fn hash(before: &[u8], text: &[u8]) -> [u8; HASH] {
    let mut context = Context::new(&SHA256);
    context.update(before);
    context.update(text);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The text that begins here, its hash and what follows it. One that was not written to its end was never acted upon.
fn part_in<'p>(before: &[u8], place: &'p [u8]) -> Option<(&'p [u8], [u8; HASH], &'p [u8])> {
    let (length, rest) = place.split_first_chunk()?;
    let (expected, rest) = rest.split_first_chunk::<HASH>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (!text.is_empty() && hash(before, text) == *expected).then_some((text, *expected, rest))
}

fn intent_in(place: &[u8]) -> Option<(Intent<'static>, Option<Outcome<'static>>)> {
    let (text, hash, rest) = part_in(&[], place)?;
    let intent = serde_json::from_slice(text).ok()?;
    // The outcome of an intent that was here before has another hash.
    let outcome = part_in(&hash, rest).and_then(|(text, ..)| serde_json::from_slice(text).ok());
    Some((intent, outcome))
}

impl Store {
    /// Puts on file that a cell is about to begin, with what [`Store::begin_cell`] will be called with. `None`: it has
    /// to be called before the cell begins.
    pub fn announce_cell(
        &self,
        cell: &ExecRow,
        changes: &ContextChanges,
        events: &[Json],
        audit: &Audit,
    ) -> Option<Announced> {
        let ContextChanges { position, next_cell, .. } = *changes;
        let (cell, events, audit) = (Cow::Borrowed(cell), Cow::Borrowed(events), Cow::Borrowed(audit));
        self.announce(&Intent::Cell { cell, position, next_cell, events, audit })
    }

    /// The same for a run and [`Store::insert_run`].
    pub fn announce_run(&self, run: &RunRow, events: &[Json], audit: &Audit) -> Option<Announced> {
        let (run, events, audit) = (Cow::Borrowed(run), Cow::Borrowed(events), Cow::Borrowed(audit));
        self.announce(&Intent::Run { run, events, audit })
    }

    /// Puts on file how a run ended. `false`: it has to be recorded before anybody hears of it.
    pub(crate) fn file_end_of_run(&self, announced: &Announced, run: &WholeRun) -> bool {
        let (end, events) = (Cow::Borrowed(&run.end), Cow::Borrowed(&*run.ended));
        !self.intents().is_in_doubt() && announced.add(&Outcome::Run { end, events })
    }

    /// The same for a cell.
    pub(crate) fn file_end_of_cell(&self, announced: &Announced, cell: &WholeCell) -> bool {
        let (end, events) = (Cow::Borrowed(&cell.end), Cow::Borrowed(&*cell.ended));
        let ContextChanges { position, next_cell, execution_count, .. } = cell.changes;
        let outcome = Outcome::Cell { end, position, next_cell, execution_count, events };
        !self.intents().is_in_doubt() && announced.add(&outcome)
    }

    fn announce(&self, intent: &Intent<'_>) -> Option<Announced> {
        let intents = self.intents();
        if !intents.is_enough || intents.is_in_doubt() {
            return None;
        }
        let text = serde_json::to_vec(intent).ok()?;
        intents.put(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %intents.path.display(), %error, "an intent could not be put on file");
            None
        })
    }

    /// Commits what an earlier server announced and did not live to commit; says how much that was. To be called before
    /// anything is announced, by the one server that the file belongs to.
    pub async fn catch_up(&self) -> Result<usize> {
        let intents = self.intents();
        let announced = intents.read().map_err(StoreError::file("read", &intents.path))?;
        let mut missed = 0;
        for (intent, outcome) in announced {
            match self.record_late(intent, outcome).await {
                Ok(()) => missed += 1,
                // It is recorded, or what it ran in is forgotten.
                Err(StoreError::Conflict { .. } | StoreError::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match std::fs::remove_file(&intents.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::file("remove", &intents.path)(error))
            }
            _ => Ok(missed),
        }
    }

    async fn record_late(&self, intent: Intent<'_>, outcome: Option<Outcome<'_>>) -> Result<()> {
        match (intent, outcome) {
            (Intent::Run { run, events, audit }, Some(Outcome::Run { end, events: ended })) => {
                let (row, started, audit) = (run.into_owned(), events.into_owned(), audit.into_owned());
                let (end, ended) = (end.into_owned(), ended.into_owned());
                self.whole_run(&WholeRun { row, started, audit, end, ended }).await.map(drop)
            }
            (Intent::Run { run, events, audit }, _) => self.insert_run(&run, &events, &audit).await.map(drop),
            (
                Intent::Cell { cell, events, audit, .. },
                Some(Outcome::Cell { end, position, next_cell, execution_count, events: ended }),
            ) => {
                let (cell_exec, default) = (Some(None), ContextChanges::default());
                let changes = ContextChanges { position, next_cell, cell_exec, execution_count, ..default };
                let changes = self.unless_it_went_on(&cell, changes).await?;
                let (row, started, audit) = (cell.into_owned(), events.into_owned(), audit.into_owned());
                let (end, ended) = (end.into_owned(), ended.into_owned());
                self.whole_cell(&WholeCell { row, started, audit, end, changes, ended }).await.map(drop)
            }
            (Intent::Cell { cell, position, next_cell, events, audit }, _) => {
                let (cell_exec, default) = (Some(Some(cell.id)), ContextChanges::default());
                let changes = ContextChanges { position, next_cell, cell_exec, ..default };
                let changes = self.unless_it_went_on(&cell, changes).await?;
                self.begin_cell(&cell, &changes, &events, &audit).await.map(drop)
            }
        }
    }

    /// What a cell changes of its context, which is left as it is when it went on without the cell.
    async fn unless_it_went_on(&self, cell: &ExecRow, changes: ContextChanges) -> Result<ContextChanges> {
        let context = cell.context.ok_or_else(no_context)?;
        let row = self.context(cell.tenant, cell.sandbox, context).await?;
        let is_next = row.is_some_and(|row| changes.next_cell.is_some_and(|number| row.next_cell <= number));
        Ok(if is_next { changes } else { ContextChanges::default() })
    }
}
