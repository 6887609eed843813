//! Where locks and layers lie, who may make or remove one, and how much is kept.
//!
//! Each lock and each layer has a file beside it that is locked while it is being made (exclusively) or used (shared).
//! A layer is unpacked under another name and renamed, so a folder under its own name is complete.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_provider::{ByteStream, Error, OpContext, Result};
use sandstorm_types::ErrorKind;

use super::lock::{Lock, LockKey};
use super::{Extract, broken};

/// Largest layer, unpacked.
const MOST_BYTES: u64 = 8 << 30;

/// How often somebody who waits looks again. The kernel could wake us, but only a thread that nothing can cancel.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    max_bytes: u64,
}

/// The right to make something, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim(File);

impl Store {
    pub(crate) fn new(dir: PathBuf, max_bytes: u64) -> Self {
        Self { dir, max_bytes }
    }

    pub(crate) fn layer(&self, manager: &str, key: &str) -> PathBuf {
        self.dir.join(manager).join(key)
    }

    pub(crate) fn layer_claim(&self, manager: &str, key: &str) -> PathBuf {
        self.dir.join(manager).join(format!("{key}.lock"))
    }

    fn lock_path(&self, key: &LockKey, pinned: bool) -> PathBuf {
        let kind = if pinned { "pinned" } else { "open" };
        self.dir.join("locks").join(format!("{}.{kind}.tar", key.as_str()))
    }

    pub(crate) fn lock_claim(&self, key: &LockKey) -> PathBuf {
        self.dir.join("locks").join(format!("{}.lock", key.as_str()))
    }

    /// Waits for the sole right to make something.
    pub(crate) async fn claim(&self, cx: &OpContext, path: &Path) -> Result<Claim> {
        let file = open(path).map_err(broken)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Claim(file)),
                Err(TryLockError::WouldBlock) => {
                    let wait = async {
                        tokio::time::sleep(PATIENCE).await;
                        Ok(())
                    };
                    cx.run("install", wait).await?;
                }
                Err(TryLockError::Error(error)) => return Err(broken(error)),
            }
        }
    }

    /// Holds a layer in place, if it is there.
    pub(crate) fn use_layer(&self, manager: &str, key: &str) -> io::Result<Option<File>> {
        let (layer, claim) = (self.layer(manager, key), self.layer_claim(manager, key));
        if !layer.is_dir() {
            return Ok(None);
        }
        let file = open(&claim)?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // It may have been removed before we held it. Its time is when it was used last.
        file.set_modified(SystemTime::now())?;
        Ok(layer.is_dir().then_some(file))
    }

    /// An earlier resolution.
    pub(crate) fn lock(&self, key: &LockKey) -> Result<Option<Lock>> {
        for pinned in [true, false] {
            let path = self.lock_path(key, pinned);
            match fs::read(&path).and_then(|bytes| Ok((bytes, fs::metadata(&path)?.modified()?))) {
                Ok((bytes, made)) => return Lock::new(Bytes::from(bytes), pinned, made).map(Some),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(broken(e)),
            }
        }
        Ok(None)
    }

    pub(crate) fn keep_lock(&self, key: &LockKey, archive: Bytes, pinned: bool) -> Result<Lock> {
        let lock = Lock::new(archive.clone(), pinned, SystemTime::now())?;
        self.write(&self.lock_path(key, pinned), &archive).map_err(broken)?;
        Ok(lock)
    }

    /// A short text that is asked for again after a day.
    pub(crate) fn note(&self, name: &str) -> Option<String> {
        let path = self.dir.join("indexes").join(name);
        let age = fs::metadata(&path).ok()?.modified().ok()?.elapsed().unwrap_or_default();
        (age < Duration::from_secs(24 * 60 * 60)).then(|| fs::read_to_string(path).ok()).flatten()
    }

    pub(crate) fn keep_note(&self, name: &str, text: &str) -> io::Result<()> {
        self.write(&self.dir.join("indexes").join(name), text.as_bytes())
    }

    /// Readers see all of it or nothing.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        make_folder(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(bytes)?;
        file.persist(path).map_err(|e| e.error).map(drop)
    }

    /// Takes a layer out of its archive and puts it in place. The claim is proof that nobody else does.
    pub(crate) async fn keep_layer(
        &self,
        manager: &str,
        key: &str,
        mut archive: ByteStream,
        extract: &Arc<dyn Extract>,
        claim: &Claim,
    ) -> Result<u64> {
        let dir = self.dir.join(manager);
        make_folder(&dir).map_err(broken)?;
        // Through a file: the archive may be larger than what should lie in our memory.
        let mut spool = tempfile::tempfile_in(&dir).map_err(broken)?;
        let mut size = 0;
        while let Some(piece) = archive.next().await {
            let piece = piece?;
            size += piece.len() as u64;
            if size > MOST_BYTES {
                return Err(Error::new(ErrorKind::InvalidRequest, "the packages are larger than 8 GiB"));
            }
            spool.write_all(&piece).map_err(broken)?;
        }
        let (extract, target) = (Arc::clone(extract), self.layer(manager, key));
        let unpacked = tokio::task::spawn_blocking(move || -> io::Result<u64> {
            spool.rewind()?;
            let place = tempfile::Builder::new().prefix(".new-").tempdir_in(&dir)?;
            let content = place.path().join("content");
            make_folder(&content)?;
            let bytes = extract.extract(&mut io::BufReader::new(spool), &content, MOST_BYTES)?;
            fs::rename(content, target)?;
            Ok(bytes)
        });
        let unpacked = unpacked.await.map_err(|e| broken(io::Error::other(e)))?;
        let bytes = unpacked.map_err(|e| {
            Error::new(ErrorKind::InvalidRequest, "the packages hold files that cannot be kept")
                .with_source(e)
        })?;
        let mut file = &claim.0;
        file.set_len(0).and_then(|()| file.write_all(bytes.to_string().as_bytes())).map_err(broken)?;
        Ok(bytes)
    }

    /// Removes layers that were used least recently until the rest fits. One that is in use stays, and so does `keep`.
    pub(crate) fn shrink(&self, manager: &str, keep: &str) {
        let keep = self.layer_claim(manager, keep);
        for path in
            subfolders(&self.dir).iter().flat_map(|dir| subfolders(dir)).filter(|path| is_left_over(path))
        {
            let _ = fs::remove_dir_all(path);
        }
        let mut layers: Vec<(SystemTime, u64, PathBuf)> = subfolders(&self.dir)
            .iter()
            .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
            .filter(|entry| entry.path().with_extension("").is_dir())
            .filter_map(|entry| {
                let mut size = String::new();
                File::open(entry.path()).ok()?.take(32).read_to_string(&mut size).ok()?;
                Some((entry.metadata().ok()?.modified().ok()?, size.parse().ok()?, entry.path()))
            })
            .collect();
        layers.sort();
        let mut total: u64 = layers.iter().map(|(_, size, _)| size).sum();
        for (_, size, claim) in layers {
            if total <= self.max_bytes {
                break;
            }
            if claim != keep && remove(&claim).is_ok() {
                total -= size;
            }
        }
    }
}

/// Removes a layer that nobody uses. Its lock file stays: somebody may be waiting for it.
fn remove(claim: &Path) -> io::Result<()> {
    let file = open(claim)?;
    file.try_lock().map_err(io::Error::from)?;
    let layer = claim.with_extension("");
    // Under another name first, so that no half of it is ever taken for the whole.
    let doomed = claim.with_extension("gone");
    fs::rename(&layer, &doomed)?;
    fs::remove_dir_all(&doomed)
}

/// What a process that died in the middle left behind: half a layer on its way in or out, untouched for a day.
fn is_left_over(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let old = |time: SystemTime| time.elapsed().unwrap_or_default() > Duration::from_secs(24 * 60 * 60);
    (name.starts_with(".new-") || name.ends_with(".gone"))
        && fs::metadata(path).and_then(|found| found.modified()).is_ok_and(old)
}

fn subfolders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        make_folder(dir)?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Sandboxes have ids of their own, so a folder that one mounts must let everybody pass; nobody else can write to it.
fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

#[cfg(test)]
mod tests;
