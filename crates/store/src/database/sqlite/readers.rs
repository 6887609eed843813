//! The connections that read.

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
    pub(crate) fn new(path: PathBuf, count: u32) -> Self {
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

    pub(crate) async fn copy_to(&self, to: &Path) -> Result<()> {
        let to = to.to_owned();
        self.with_session(move |session| {
            create_private(&to).map_err(StoreError::file("create", &to))?;
            let name = to.to_str().ok_or_else(|| StoreError::Invalid {
                what: "the path of a backup must be valid UTF-8".to_owned(),
            })?;
            session.run(sql("VACUUM INTO $1").bind(name)).map(drop)
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
