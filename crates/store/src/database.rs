//! What the two databases do differently, behind one way to run a statement.
//!
//! Every column is a whole number, a text or bytes, and every placeholder is `$n`: that much both understand alike, so
//! the queries themselves are written once.

mod connection;
mod migrate;
mod postgres;
mod sqlite;
mod value;

use std::path::Path;
use std::sync::Arc;

use sqlx::Postgres;
use sqlx::postgres::PgPool;

pub(crate) use connection::Connection;
pub(crate) use migrate::{NEWEST, migrate};
pub(crate) use value::{Row, Statement, Value, sql};

use crate::{Result, StoreConfig, StoreError};

/// What reads from one of the two. What writes is a [`Connection`] of its own; see [`crate::writing`].
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(Arc<sqlite::Readers>),
    Postgres(PgPool),
}

impl Database {
    /// Connects: what reads, and the one connection that writes.
    pub(crate) async fn connect(config: &StoreConfig) -> Result<(Self, Connection)> {
        match &config.url {
            Some(url) => {
                let pool = postgres::connect(url, config.connections, config.durability).await?;
                Ok((Self::Postgres(pool.clone()), Connection::Postgres { pool, open: None }))
            }
            None => {
                let (readers, session) = sqlite::open(config).await?;
                Ok((Self::Sqlite(Arc::new(readers)), Connection::Sqlite(session)))
            }
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Follows the name of a table: which index to look into. SQLite would rather walk along a table that is kept in the
    /// order of its key, however few of its rows are wanted.
    pub(crate) fn by_index(&self, index: &str) -> String {
        if self.is_sqlite() { format!("INDEXED BY {index}") } else { String::new() }
    }

    /// A connection that only reads, and sees the database as it was when it first looked.
    ///
    /// With SQLite its calls block the thread, so whoever has one works where that is allowed.
    pub(crate) async fn snapshot(&self) -> Result<Connection> {
        match self {
            Self::Sqlite(readers) => readers.snapshot().map(Connection::Sqlite),
            Self::Postgres(pool) => {
                let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let open = postgres::begin(pool, begin).await?;
                Ok(Connection::Postgres { pool: pool.clone(), open: Some(open) })
            }
        }
    }

    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Row>> {
        match self {
            Self::Sqlite(readers) => readers.rows(statement).await,
            Self::Postgres(pool) => {
                let query = value::bound::<Postgres>(statement)?;
                Ok(query.fetch_all(pool).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    pub(crate) async fn row(&self, statement: Statement) -> Result<Option<Row>> {
        match self {
            Self::Sqlite(readers) => Ok(readers.rows(statement).await?.into_iter().next()),
            Self::Postgres(pool) => {
                let query = value::bound::<Postgres>(statement)?;
                Ok(query.fetch_optional(pool).await?.map(Row::Postgres))
            }
        }
    }

    /// A consistent copy in a new file with mode 0600.
    pub(crate) async fn copy_to(&self, to: &Path) -> Result<()> {
        match self {
            Self::Sqlite(readers) => readers.copy_to(to).await,
            Self::Postgres(_) => Err(StoreError::Unsupported {
                what: "this store is a PostgreSQL database: copy audit.anchor first, then run pg_dump",
            }),
        }
    }

    /// A SQLite file that belongs to nobody else, to be read.
    pub(crate) fn of_file(path: &Path) -> Self {
        Self::Sqlite(Arc::new(sqlite::Readers::new(path.to_owned(), 1)))
    }

    /// Ends what reads.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(readers) => readers.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
