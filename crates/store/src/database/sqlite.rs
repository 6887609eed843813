//! SQLite: a file, one connection that writes, several that read.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::value::{self, sql};
use crate::{Result, StoreError};

/// How long a write waits for another process, such as `sandstorm keys`, to finish its own.
const BUSY: Duration = Duration::from_secs(5);
/// How long a call waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(10);

/// SQLite lets one connection write at a time; queueing for it here is fair, waiting for its lock is not.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
}

impl Pools {
    pub(super) async fn open(path: &Path, readers: u32) -> Result<Self> {
        own_file(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY)
            .foreign_keys(true)
            .statement_cache_capacity(256)
            .thread_name(|number| format!("sqlite-{number}"));
        let pool = SqlitePoolOptions::new()
            .acquire_timeout(ACQUIRE)
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_release(|connection, _| {
                Box::pin(async move {
                    // After a full disk SQLite undoes a transaction by itself, and the driver goes on believing in it.
                    // Waits for what was queued, then keeps only a connection that is in no transaction.
                    connection.ping().await?;
                    Ok(!connection.is_in_transaction())
                })
            });
        let writer = pool.clone().max_connections(1).connect_with(options.clone()).await?;
        let readers = pool.max_connections(readers.max(1)).connect_lazy_with(options.read_only(true));
        Ok(Self { writer, readers })
    }

    pub(super) async fn backup(&self, to: &Path) -> Result<()> {
        let partial = partial_name(to);
        create_private(&partial).map_err(StoreError::file("create", &partial))?;
        let copied = self.copy_into(&partial, to).await;
        // Gone already under this name when the copy was finished; what is left otherwise is half a copy.
        if let Err(error) = fs::remove_file(&partial) {
            tracing::warn!(path = %partial.display(), %error, "a temporary file of a backup stays behind");
        }
        copied
    }

    async fn copy_into(&self, partial: &Path, to: &Path) -> Result<()> {
        let name = partial.to_str().ok_or_else(|| StoreError::Invalid {
            what: "the path of a backup must be valid UTF-8".to_owned(),
        })?;
        let vacuum = value::bound::<sqlx::Sqlite>(sql("VACUUM INTO $1").bind(name))?;
        vacuum.execute(&self.readers).await?;
        let synced = File::open(partial).and_then(|file| file.sync_all());
        synced.map_err(StoreError::file("write", partial))?;
        // A link, unlike a rename, does not replace what is there.
        fs::hard_link(partial, to).map_err(StoreError::file("create", to))
    }

    pub(super) async fn close(&self) {
        // The last to close folds the log into the file, which a connection that may only read cannot do.
        self.readers.close().await;
        self.writer.close().await;
    }
}

fn partial_name(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    name.into()
}

/// Nobody else may read the file. SQLite gives its log and its shared memory the same mode.
fn own_file(path: &Path) -> Result<()> {
    match create_private(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created.map_err(StoreError::file("create", path)),
    }
    let mode = fs::metadata(path).map_err(StoreError::file("read", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(StoreError::file("protect", path))?;
    }
    Ok(())
}

fn create_private(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}
