//! Saved sandboxes: a file for each, with what its agent sent of the places that can be written.
//!
//! A file is written under another name and becomes a snapshot by being renamed, when all of it is on disk: what a server
//! that dies on the way leaves is none, and is removed by the next one. What is in it came out of a sandbox. It is never
//! read here, only passed on to the agent of another sandbox, behind the walls of that one. Each piece has a hash that goes on
//! from the one before, so nothing is passed on that is not what was saved, and half of it is not taken for all.

mod piece;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sandstorm_agent_client::files::carry::Files;
use sandstorm_provider::{Begun, Error, Result, UnderWay};
use sandstorm_types::{ByteSize, ErrorKind, SnapshotId};
use tokio::sync::mpsc;

use self::piece::{PIECE, Reader, Seal};

/// Where snapshots are kept, and how much room all of them together may take.
#[derive(Debug, Clone)]
pub struct SnapshotConfig {
    pub folder: PathBuf,
    pub most: ByteSize,
}

/// What a file begins with. Another form has another number.
const HEADER: &[u8; 21] = b"sandstorm snapshot 2\n";
/// The form of development versions. It has no hashes, so nothing of it is passed on.
const WITHOUT_HASHES: &[u8; 21] = b"sandstorm snapshot 1\n";
const WHOLE: &str = "files";
const PARTIAL: &str = "part";
/// Pieces between the agent and the disk.
const PIECES: usize = 4;

/// The snapshots of this machine.
#[derive(Debug)]
pub(crate) struct Snapshots {
    folder: PathBuf,
    most: u64,
    /// Bytes of all files, with those that are being written.
    used: AtomicU64,
    writing: UnderWay<SnapshotId>,
}

/// What is passed to the thread that writes.
enum Piece {
    Bytes(Bytes),
    /// Without this it is not whole.
    End,
}

impl Snapshots {
    /// Looks what is there, and removes what was never finished.
    pub(crate) fn open(config: SnapshotConfig) -> io::Result<Arc<Self>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&config.folder)?;
        let mut used = 0;
        for entry in fs::read_dir(&config.folder)? {
            let (entry, ending) = entry.map(|entry| {
                let path = entry.path();
                (entry, path.extension().and_then(|ending| ending.to_str()).map(str::to_owned))
            })?;
            match ending.as_deref() {
                Some(WHOLE) => used += entry.metadata()?.len(),
                Some(PARTIAL) => fs::remove_file(entry.path())?,
                _ => {}
            }
        }
        let SnapshotConfig { folder, most } = config;
        Ok(Arc::new(Self {
            folder,
            most: most.as_u64(),
            used: AtomicU64::new(used),
            writing: UnderWay::default(),
        }))
    }

    /// Writes what the agent sends. Gives its size when all of it is on disk under its name. Dropping the future leaves
    /// nothing; [`Self::delete`] waits for that.
    pub(crate) async fn write(
        self: &Arc<Self>,
        id: SnapshotId,
        files: &mut Files,
        most: u64,
        past_most: impl Fn() -> Error,
    ) -> Result<u64> {
        let partial = self.begin(id)?;
        let (pieces, coming) = mpsc::channel(PIECES);
        let thread = tokio::task::spawn_blocking(move || partial.write(coming));
        let mut sent = 0;
        while let Some(bytes) = files.next().await? {
            sent += bytes.len() as u64;
            if sent > most {
                return Err(past_most());
            }
            // The thread may be over already; it says why.
            if pieces.send(Piece::Bytes(bytes)).await.is_err() {
                break;
            }
        }
        let _ = pieces.send(Piece::End).await;
        thread.await.map_err(|_| failed("saved"))?
    }

    /// What was saved, on its way to another sandbox.
    pub(crate) async fn read(&self, id: SnapshotId) -> Result<Files> {
        let path = self.path(id, WHOLE);
        let opened = tokio::task::spawn_blocking(move || {
            let mut file = File::open(path)?;
            let mut header = [0; HEADER.len()];
            file.read_exact(&mut header)?;
            Ok::<_, io::Error>((file, header))
        });
        let (file, header) = match opened.await.map_err(|_| failed("read"))? {
            Ok(opened) => opened,
            Err(error) => {
                return Err(match error.kind() {
                    io::ErrorKind::NotFound => missing(id),
                    io::ErrorKind::UnexpectedEof => damaged(id),
                    _ => failed("read").with_source(error).with("snapshot", id),
                });
            }
        };
        match &header {
            HEADER => {}
            WITHOUT_HASHES => return Err(from_earlier_version(id)),
            _ => return Err(damaged(id)),
        }
        let reader = Reader::new(file, id);
        let (pieces, coming) = mpsc::channel(PIECES);
        tokio::task::spawn_blocking(move || pass_on(reader, id, &pieces));
        Ok(Files::kept(coming))
    }

    /// Absent is fine. One that is being written is waited for.
    pub(crate) async fn delete(self: &Arc<Self>, id: SnapshotId) -> Result<()> {
        self.writing.settled(&id).await;
        let snapshots = Arc::clone(self);
        let removed = tokio::task::spawn_blocking(move || snapshots.remove(id)).await;
        removed
            .map_err(|_| failed("removed"))?
            .map_err(|error| failed("removed").with_source(error).with("snapshot", id))
    }

    fn remove(&self, id: SnapshotId) -> io::Result<()> {
        let path = self.path(id, WHOLE);
        let length = match fs::symlink_metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match fs::remove_file(&path) {
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        self.used.fetch_sub(length, Ordering::AcqRel);
        self.sync_folder()
    }

    fn begin(self: &Arc<Self>, id: SnapshotId) -> Result<Partial> {
        let begun = self.writing.begin(id).filter(|_| !self.path(id, WHOLE).exists());
        let taken =
            || Error::new(ErrorKind::Conflict, "there is such a snapshot already").with("snapshot", id);
        Ok(Partial { snapshots: Arc::clone(self), begun: begun.ok_or_else(taken)?, taken: 0, whole: false })
    }

    fn path(&self, id: SnapshotId, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", id.bare()))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

/// A snapshot that is being written. Dropped before it is whole, nothing of it is left.
struct Partial {
    snapshots: Arc<Snapshots>,
    /// Bytes that were taken of the room for all.
    taken: u64,
    whole: bool,
    /// The last to go: who waits for its end finds nothing left of it.
    begun: Begun<SnapshotId>,
}

impl Partial {
    fn write(mut self, mut coming: mpsc::Receiver<Piece>) -> Result<u64> {
        let id = self.begun.key();
        let of_disk = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_room(),
            _ => failed("saved").with_source(error).with("snapshot", id),
        };
        let path = self.snapshots.path(id, PARTIAL);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = opened.map_err(of_disk)?;
        self.take(HEADER.len())?;
        file.write_all(HEADER).map_err(of_disk)?;
        let mut seal = Seal::new(id);
        let mut put = |bytes: &[u8]| {
            let head = seal.head(bytes);
            self.take(head.len() + bytes.len())?;
            file.write_all(&head).and_then(|()| file.write_all(bytes)).map_err(of_disk)
        };
        loop {
            match coming.blocking_recv() {
                Some(Piece::Bytes(bytes)) => bytes.chunks(PIECE).try_for_each(&mut put)?,
                Some(Piece::End) => break,
                None => return Err(Error::new(ErrorKind::Cancelled, "the snapshot was given up")),
            }
        }
        // Nothing is the end.
        put(&[])?;
        file.sync_all().map_err(of_disk)?;
        fs::rename(&path, self.snapshots.path(id, WHOLE)).map_err(of_disk)?;
        self.whole = true;
        self.snapshots.sync_folder().map_err(of_disk)?;
        Ok(self.taken)
    }

    /// Takes room of what all snapshots may have together.
    fn take(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        let before = self.snapshots.used.fetch_add(bytes, Ordering::AcqRel);
        self.taken += bytes;
        if before.saturating_add(bytes) > self.snapshots.most { Err(no_room()) } else { Ok(()) }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.whole {
            let _ = fs::remove_file(self.snapshots.path(self.begun.key(), PARTIAL));
            self.snapshots.used.fetch_sub(self.taken, Ordering::AcqRel);
        }
    }
}

/// Reads a file to its end, for as long as somebody wants it.
fn pass_on(mut reader: Reader, id: SnapshotId, pieces: &mpsc::Sender<Result<Bytes>>) {
    loop {
        let passed = match reader.next() {
            Ok(None) => return,
            Ok(Some(piece)) => pieces.blocking_send(Ok(piece)),
            Err(error) => {
                let told = match error.kind() {
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => damaged(id),
                    _ => failed("read").with_source(error).with("snapshot", id),
                };
                let _ = pieces.blocking_send(Err(told));
                return;
            }
        };
        if passed.is_err() {
            return;
        }
    }
}

fn damaged(id: SnapshotId) -> Error {
    let message =
        "the snapshot is damaged: its file is not what was saved; delete it and save the sandbox anew";
    Error::new(ErrorKind::Internal, message).with("snapshot", id)
}

fn from_earlier_version(id: SnapshotId) -> Error {
    let message = "the snapshot cannot be checked: an earlier version of sandstorm saved it without hashes; delete it \
                   and save the sandbox anew";
    Error::new(ErrorKind::Internal, message).with("snapshot", id)
}

fn missing(id: SnapshotId) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such snapshot").with("snapshot", id)
}

fn no_room() -> Error {
    Error::new(ErrorKind::Capacity, "this machine has no room for another snapshot")
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("a snapshot could not be {what}"))
}

#[cfg(test)]
mod tests;
