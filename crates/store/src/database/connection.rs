//! One connection and the transaction that it may be in.

use sqlx::Postgres;
use sqlx::postgres::PgPool;

use super::sqlite::Session;
use super::value::{self, Row, Statement};
use crate::{Result, StoreError};

/// A connection that one owner uses at a time.
///
/// With SQLite every call is done when it returns its future: it blocks the thread and never waits for another. So
/// whoever drives it has a thread for that, or knows that it [is quick](Connection::is_quick).
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(Session),
    Postgres { pool: PgPool, open: Option<Open> },
}

/// The name does not matter: they are never nested.
const SAVEPOINT: &str = "SAVEPOINT job";
const RELEASE: &str = "RELEASE SAVEPOINT job";
const UNDO: &str = "ROLLBACK TO SAVEPOINT job";

impl Connection {
    /// Whether a transaction is under way. SQLite ends one by itself when a disk is full.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Sqlite(session) => session.is_in_transaction(),
            Self::Postgres { open, .. } => open.is_some(),
        }
    }

    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self {
            // Takes the write lock at once: a transaction that reads first and writes later could not get it any more
            // after another process wrote in between.
            Self::Sqlite(session) => session.command("BEGIN IMMEDIATE"),
            Self::Postgres { pool, open } => {
                *open = Some(pool.begin().await?);
                Ok(())
            }
        }
    }

    /// Begins unless that would mean to wait; whether it did.
    pub(crate) fn begin_at_once(&mut self) -> Result<bool> {
        match self {
            Self::Sqlite(session) => session.begin_at_once(),
            Self::Postgres { .. } => Ok(false),
        }
    }

    /// Within a transaction: what changes whenever somebody else has written. `None`: somebody else may write at any time.
    pub(crate) fn version(&mut self) -> Option<i64> {
        match self {
            Self::Sqlite(session) => session.version().ok(),
            Self::Postgres { .. } => None,
        }
    }

    /// Whether a small transaction is likely to be done in less time than it takes to wake another thread.
    pub(crate) fn is_quick(&self) -> bool {
        match self {
            Self::Sqlite(session) => session.is_quick(),
            Self::Postgres { .. } => false,
        }
    }

    /// Undoes a transaction that nobody ended, without waiting for that.
    pub(crate) fn abandon(&mut self) {
        match self {
            Self::Sqlite(session) => session.abandon(),
            Self::Postgres { open, .. } => drop(open.take()),
        }
    }

    /// Whatever it gives, no transaction is under way afterwards.
    pub(crate) async fn commit(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(session) => {
                let committed = session.command("COMMIT");
                match committed {
                    Ok(()) => session.committed(),
                    Err(_) => session.abandon(),
                }
                committed
            }
            Self::Postgres { open, .. } => match open.take() {
                Some(transaction) => Ok(transaction.commit().await?),
                None => Err(StoreError::corrupt("a transaction was lost before it could be committed")),
            },
        }
    }

    pub(crate) async fn rollback(&mut self) {
        match self {
            Self::Sqlite(session) => session.abandon(),
            Self::Postgres { open, .. } => {
                if let Some(transaction) = open.take()
                    && let Err(error) = transaction.rollback().await
                {
                    // The connection is thrown away, and the database undoes what it was told there.
                    tracing::debug!(%error, "a transaction could not be undone");
                }
            }
        }
    }

    /// From here on [`Connection::undo`] undoes, and what came before stays.
    pub(crate) async fn savepoint(&mut self) -> Result<()> {
        self.command(SAVEPOINT).await
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        self.command(RELEASE).await
    }

    pub(crate) async fn undo(&mut self) -> Result<()> {
        self.command(UNDO).await?;
        self.command(RELEASE).await
    }

    /// Whether others write to the database at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres { .. })
    }

    /// Ends a query that reads rows which it is about to change: nobody else may change them meanwhile.
    pub(crate) fn for_update(&self) -> &'static str {
        match self {
            // There is one writer anyway.
            Self::Sqlite(_) => "",
            Self::Postgres { .. } => " FOR UPDATE",
        }
    }

    /// Ends a query: what it read stays as it is until the end of the transaction.
    pub(crate) fn for_share(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "",
            Self::Postgres { .. } => " FOR SHARE",
        }
    }

    /// The same as [`Connection::for_update`], but for rows that somebody else holds.
    pub(crate) fn skipping_locked(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "",
            Self::Postgres { .. } => " FOR UPDATE SKIP LOCKED",
        }
    }

    async fn command(&mut self, text: &'static str) -> Result<()> {
        match self {
            Self::Sqlite(session) => session.command(text),
            Self::Postgres { open, .. } => {
                sqlx::raw_sql(text).execute(&mut **opened(open)?).await?;
                Ok(())
            }
        }
    }

    /// Gives the number of rows that it touched.
    pub(crate) async fn run(&mut self, statement: Statement) -> Result<u64> {
        match self {
            Self::Sqlite(session) => session.run(statement),
            Self::Postgres { open, .. } => {
                let query = value::bound::<Postgres>(statement)?;
                Ok(query.execute(&mut **opened(open)?).await?.rows_affected())
            }
        }
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>> {
        // All of them, since an `UPDATE … RETURNING` has to be run to its end.
        Ok(self.rows(statement).await?.into_iter().next())
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>> {
        match self {
            Self::Sqlite(session) => session.rows(statement),
            Self::Postgres { open, .. } => {
                let query = value::bound::<Postgres>(statement)?;
                Ok(query.fetch_all(&mut **opened(open)?).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Several statements without values, as migrations have them.
    pub(crate) async fn script(&mut self, script: &'static str) -> Result<()> {
        match self {
            Self::Sqlite(session) => session.script(script),
            Self::Postgres { open, .. } => {
                sqlx::raw_sql(script).execute(&mut **opened(open)?).await?;
                Ok(())
            }
        }
    }
}

type Open = sqlx::Transaction<'static, Postgres>;

fn opened(open: &mut Option<Open>) -> Result<&mut Open> {
    open.as_mut().ok_or_else(|| StoreError::corrupt("a statement outside of any transaction"))
}
