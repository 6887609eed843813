//! Space where a server keeps its things.
//!
//! A full disk passes. Until it does, nothing that was begun is given up, and nothing is begun: whoever asks hears when to come
//! back. A little is set aside, so that a server that has to start on a full disk can open its database there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;

/// With less than this the disk is full: what runs may still need it.
const LEAST: u64 = 32 << 20;
/// What is set aside, and how much has to be there beside it when that is done.
const RESERVE: u64 = 16 << 20;
const PLENTY: u64 = 4 * RESERVE;

/// The place of one server's things.
#[derive(Debug)]
pub(crate) struct Space {
    dir: PathBuf,
    full: AtomicBool,
}

impl Space {
    pub(crate) fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), full: AtomicBool::new(false) }
    }

    /// Whether there was too little when it was looked at last.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Looks how much there is, and sets something aside where there is plenty. Blocking.
    pub(crate) fn look(&self) -> io::Result<()> {
        let free = free(&self.dir)?;
        metrics::gauge!("sandstorm_disk_free_bytes").set(free as f64);
        let full = free < LEAST;
        if self.full.swap(full, Ordering::Relaxed) != full {
            match full {
                true => tracing::warn!(free, "the disk is full: nothing new is begun until there is space"),
                false => tracing::info!(free, "there is space on the disk again"),
            }
        }
        if free >= RESERVE + PLENTY { set_aside(&self.dir) } else { Ok(()) }
    }
}

/// Gives back what was set aside, where a server starts on a full disk.
pub fn make_room(dir: &Path) -> io::Result<()> {
    if free(dir)? >= RESERVE {
        return Ok(());
    }
    match std::fs::remove_file(reserve(dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Bytes that may still be written.
fn free(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn reserve(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

fn set_aside(dir: &Path) -> io::Result<()> {
    let path = reserve(dir);
    let file: File = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        opened => opened?,
    };
    let filled = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE);
    if let Err(error) = filled {
        let _ = std::fs::remove_file(&path);
        // A file system that cannot do it has no reserve.
        return if error == rustix::io::Errno::OPNOTSUPP { Ok(()) } else { Err(error.into()) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_stays_while_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let space = Space::of(dir.path());
        space.look().unwrap();
        space.look().unwrap();
        assert!(!space.is_full());
        assert_eq!(std::fs::metadata(reserve(dir.path())).unwrap().len(), RESERVE);
        make_room(dir.path()).unwrap();
        assert!(reserve(dir.path()).exists(), "nobody needs it");
    }
}
