//! The connections that read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::value::{Row, Statement, sql};
use super::{Session, create_private};
use crate::{Result, StoreError};

/// How long a call waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(10);

/// Connections are opened when they are needed and kept.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Session>>>,
    /// How many may be in use at once.
    seats: Arc<Semaphore>,
    count: u32,
}

impl Readers {
    pub(super) fn new(path: PathBuf, count: u32) -> Self {
        let count = count.max(1);
        Self { path, idle: Arc::default(), seats: Arc::new(Semaphore::new(count as usize)), count }
    }

    /// A connection of its own, in a transaction.
    pub(crate) fn snapshot(&self) -> Result<Session> {
        let session = Session::reader(&self.path)?;
        session.command("BEGIN")?;
        Ok(session)
    }

    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Row>> {
        self.with_session(move |session| session.rows(statement)).await
    }

    /// Works on a thread that may block. Whoever gives up leaves the work to its end, and the connection to the next.
    async fn with_session<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let seat = self.seat().await?;
        let (idle, path) = (Arc::clone(&self.idle), self.path.clone());
        let worked = tokio::task::spawn_blocking(move || {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let session = kept.map_or_else(|| Session::reader(&path), Ok)?;
            let done = work(&session)?;
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
            drop(seat);
            Ok(done)
        });
        worked.await.map_err(|error| StoreError::Unavailable { source: Box::new(error) })?
    }

    async fn seat(&self) -> Result<OwnedSemaphorePermit> {
        let unavailable = |what: &str| StoreError::Unavailable { source: what.into() };
        match tokio::time::timeout(ACQUIRE, Arc::clone(&self.seats).acquire_owned()).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) => Err(unavailable("the store is closed")),
            Err(_) => Err(unavailable("every connection that reads is busy")),
        }
    }

    pub(crate) async fn backup(&self, to: &Path) -> Result<()> {
        let to = to.to_owned();
        self.with_session(move |session| {
            let partial = partial_name(&to);
            create_private(&partial).map_err(StoreError::file("create", &partial))?;
            let copied = copy_into(session, &partial, &to);
            // Gone already under this name when the copy was finished; what is left otherwise is half a copy.
            if let Err(error) = fs::remove_file(&partial) {
                tracing::warn!(path = %partial.display(), %error, "a temporary file of a backup stays behind");
            }
            copied
        })
        .await
    }

    /// Waits for what is under way.
    pub(crate) async fn close(&self) {
        let all = self.seats.acquire_many(self.count).await;
        self.seats.close();
        drop(all);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn copy_into(session: &Session, partial: &Path, to: &Path) -> Result<()> {
    let name = partial
        .to_str()
        .ok_or_else(|| StoreError::Invalid { what: "the path of a backup must be valid UTF-8".to_owned() })?;
    session.run(sql("VACUUM INTO $1").bind(name))?;
    let synced = File::open(partial).and_then(|file| file.sync_all());
    synced.map_err(StoreError::file("write", partial))?;
    // A link, unlike a rename, does not replace what is there.
    fs::hard_link(partial, to).map_err(StoreError::file("create", to))
}

fn partial_name(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    name.into()
}
