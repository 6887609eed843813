//! A copy of the database with its own anchor.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sandstorm_types::Timestamp;

use super::{AuditKey, AuditReport, Checkpoint, Kind, anchor, verify};
use crate::database::Database;
use crate::{Result, Store, StoreError};

impl Store {
    /// Copies the database to `to` and its anchor to `anchor`, while others go on: two new files with mode 0600, of which
    /// `to` comes last. SQLite only.
    ///
    /// The anchor is read first. What it speaks of was committed before it was written, so it names no record that the
    /// copy lacks; read after the database, it would name what was recorded meanwhile, as if somebody had cut that off.
    /// What was recorded between the two is then signed in the copied anchor, which so covers the copy to its end. It
    /// is not when the report says that the copied trail is not sound.
    pub async fn backup(&self, to: &Path, anchor: &Path) -> Result<AuditReport> {
        self.settle().await?;
        for path in [to, anchor] {
            // Refused before anything is copied; what comes in between is refused by the link.
            if fs::symlink_metadata(path).is_ok() {
                let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
                return Err(StoreError::file("create", path)(exists));
            }
        }
        let (database, side) = (Partial::of(to), Partial::of(anchor));
        anchor::copy(self.chain().anchor_file(), &side.0)?;
        self.database().copy_to(&database.0).await?;
        let key = self.chain().key().clone();
        let (of_database, of_side) = (database.0.clone(), side.0.clone());
        let runtime = tokio::runtime::Handle::current();
        let judged =
            tokio::task::spawn_blocking(move || runtime.block_on(judge(&of_database, &of_side, &key)));
        let report = judged.await.map_err(|error| StoreError::Unavailable { source: Box::new(error) })??;
        side.publish(anchor)?;
        if let Err(error) = database.publish(to) {
            let _ = fs::remove_file(anchor);
            return Err(error);
        }
        Ok(report)
    }
}

/// Verifies a copy, and signs its end if it is sound.
async fn judge(database: &Path, side: &Path, key: &AuditKey) -> Result<AuditReport> {
    let copy = Database::of_file(database);
    let mut report = verify::verify(&copy, key, side).await?;
    if report.is_sound() && report.unanchored > 0 {
        let node = key.node();
        let end = verify::head(&mut copy.snapshot().await?, &node).await?;
        let end = end.map(|(seq, hash)| Checkpoint { kind: Kind::Mark, seq, hash, at: Timestamp::now() });
        if let Some(end) = end {
            anchor::append(side, key, &node, &[end])?;
            report.unanchored = 0;
        }
    }
    copy.close().await;
    Ok(report)
}

/// A file that is not whole yet, under a name of its own; gone when it is dropped.
struct Partial(PathBuf);

impl Partial {
    fn of(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        Self(name.into())
    }

    /// Gives it its name, which nothing else has.
    fn publish(&self, to: &Path) -> Result<()> {
        let synced = File::open(&self.0).and_then(|file| file.sync_all());
        synced.map_err(StoreError::file("write", &self.0))?;
        // A link, unlike a rename, does not replace what is there.
        fs::hard_link(&self.0, to).map_err(StoreError::file("create", to))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "a temporary file of a backup stays behind");
        }
    }
}
