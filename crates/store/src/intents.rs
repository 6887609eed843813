//! What is about to be done, on file before its transaction is committed.
//!
//! A transaction takes longer than a short program. To put the same on file takes one call of the kernel, and it survives
//! what a commit survives with [`Durability::Normal`]: the end of this process, however it comes. The transaction follows
//! while the work goes on. What a server did not live to commit, the next one commits: [`Store::catch_up`].
//!
//! The file has places of one size. Each holds one intent or nothing, and is used again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::{
    Audit, ContextChanges, Durability, ExecRow, Json, Result, RunRow, Store, StoreConfig, StoreError,
};

/// Bytes of a place. What does not fit is committed before it is done.
const PLACE: usize = 8 << 10;
/// Length and hash in front of an intent. A length of nothing is an empty place.
const HEAD: usize = 4 + 32;
/// Places in use at most: more than can wait for one writer at once, so that only what failed fills them.
const MOST: u32 = 4096;

/// What is about to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Intent {
    Cell { cell: ExecRow, position: Option<i64>, next_cell: Option<i64>, events: Vec<Json>, audit: Audit },
    Run { run: RunRow, events: Vec<Json>, audit: Audit },
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

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(self: &Arc<Self>, text: &[u8]) -> io::Result<Option<Announced>> {
        if text.len() > PLACE - HEAD {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(HEAD + text.len());
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(digest(&SHA256, text).as_ref());
        bytes.extend_from_slice(text);
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
            Ok(()) => Ok(Some(Announced { intents: Arc::clone(self), place })),
            Err(error) => {
                places.empty.push(place);
                Err(error)
            }
        }
    }

    /// What is on file, of this server or an earlier one.
    fn read(&self) -> io::Result<Vec<Intent>> {
        let bytes = match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        Ok(bytes.chunks(PLACE).filter_map(intent_in).collect())
    }
}

impl Announced {
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

/// The intent in a place. One that was not written to its end was never acted upon.
fn intent_in(place: &[u8]) -> Option<Intent> {
    let (length, rest) = place.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let text = rest.get(..u32::from_le_bytes(*length) as usize).filter(|text| !text.is_empty())?;
    (digest(&SHA256, text).as_ref() == hash).then(|| serde_json::from_slice(text).ok())?
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
        let (cell, events, audit) = (cell.clone(), events.to_vec(), audit.clone());
        self.announce(&Intent::Cell { cell, position, next_cell, events, audit })
    }

    /// The same for a run and [`Store::insert_run`].
    pub fn announce_run(&self, run: &RunRow, events: &[Json], audit: &Audit) -> Option<Announced> {
        let (run, events, audit) = (run.clone(), events.to_vec(), audit.clone());
        self.announce(&Intent::Run { run, events, audit })
    }

    fn announce(&self, intent: &Intent) -> Option<Announced> {
        let intents = self.intents();
        if !intents.is_enough || intents.in_doubt.load(Ordering::Relaxed) {
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
        for intent in announced {
            match self.record_late(intent).await {
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

    async fn record_late(&self, intent: Intent) -> Result<()> {
        match intent {
            Intent::Run { run, events, audit } => self.insert_run(&run, &events, &audit).await.map(drop),
            Intent::Cell { cell, position, next_cell, events, audit } => {
                let missing =
                    || StoreError::Invalid { what: "a cell needs a context that exists".to_owned() };
                let row = self.context(cell.tenant, cell.sandbox, cell.context.ok_or_else(missing)?).await?;
                // A context that went on without it is left as it is.
                let is_next = row.is_some_and(|row| next_cell.is_some_and(|number| row.next_cell <= number));
                let cell_exec = Some(Some(cell.id));
                let changes = match is_next {
                    true => ContextChanges { position, next_cell, cell_exec, ..Default::default() },
                    false => ContextChanges::default(),
                };
                self.begin_cell(&cell, &changes, &events, &audit).await.map(drop)
            }
        }
    }
}
