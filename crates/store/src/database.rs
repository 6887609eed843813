//! What the two databases do differently, behind one way to run a statement.
//!
//! Every column is a whole number, a text or bytes, and every placeholder is `$n`: that much both understand alike, so
//! the queries themselves are written once.

mod migrate;
mod postgres;
mod sqlite;
mod value;

use std::path::Path;

use sqlx::postgres::PgPool;
use sqlx::{Postgres, Sqlite};

pub(crate) use migrate::NEWEST;
pub(crate) use value::{Row, Statement, sql};

use crate::{Result, StoreConfig, StoreError};

/// Connections to one of the two.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(sqlite::Pools),
    Postgres(PgPool),
}

/// A transaction under way. Dropping it undoes what it wrote.
#[derive(Debug)]
pub(crate) enum Transaction {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Database {
    pub(crate) async fn connect(config: &StoreConfig) -> Result<Self> {
        match &config.url {
            Some(url) => postgres::connect(url, config.connections).await.map(Self::Postgres),
            None => sqlite::Pools::open(&config.path, config.connections).await.map(Self::Sqlite),
        }
    }

    /// Brings the schema from whatever version it has to `version`.
    pub(crate) async fn migrate(&self, version: i64) -> Result<()> {
        migrate::migrate(self, version).await
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    pub(crate) async fn begin(&self) -> Result<Transaction> {
        Ok(match self {
            // Takes the write lock at once: a transaction that reads first and writes later could not get it any more
            // after another process wrote in between.
            Self::Sqlite(pools) => Transaction::Sqlite(pools.writer.begin_with("BEGIN IMMEDIATE").await?),
            Self::Postgres(pool) => Transaction::Postgres(postgres::begin(pool, "BEGIN").await?),
        })
    }

    /// A transaction that only reads, and sees the database as it was when it first looked.
    pub(crate) async fn snapshot(&self) -> Result<Transaction> {
        Ok(match self {
            Self::Sqlite(pools) => Transaction::Sqlite(pools.readers.begin().await?),
            Self::Postgres(pool) => {
                let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
                Transaction::Postgres(postgres::begin(pool, begin).await?)
            }
        })
    }

    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Row>> {
        Ok(match self {
            Self::Sqlite(pools) => {
                let query = value::bound::<Sqlite>(statement)?;
                query.fetch_all(&pools.readers).await?.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(pool) => {
                let query = value::bound::<Postgres>(statement)?;
                query.fetch_all(pool).await?.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    pub(crate) async fn row(&self, statement: Statement) -> Result<Option<Row>> {
        Ok(match self {
            Self::Sqlite(pools) => {
                value::bound::<Sqlite>(statement)?.fetch_optional(&pools.readers).await?.map(Row::Sqlite)
            }
            Self::Postgres(pool) => {
                value::bound::<Postgres>(statement)?.fetch_optional(pool).await?.map(Row::Postgres)
            }
        })
    }

    pub(crate) async fn backup(&self, to: &Path) -> Result<()> {
        match self {
            Self::Sqlite(pools) => pools.backup(to).await,
            Self::Postgres(_) => Err(StoreError::Unsupported {
                what: "this store is a PostgreSQL database: back it up with pg_dump",
            }),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pools) => pools.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Transaction {
    /// Gives the number of rows that it touched.
    pub(crate) async fn run(&mut self, statement: Statement) -> Result<u64> {
        Ok(match self {
            Self::Sqlite(transaction) => {
                value::bound::<Sqlite>(statement)?.execute(&mut **transaction).await?.rows_affected()
            }
            Self::Postgres(transaction) => {
                value::bound::<Postgres>(statement)?.execute(&mut **transaction).await?.rows_affected()
            }
        })
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>> {
        // All of them, since an `UPDATE … RETURNING` has to be run to its end.
        Ok(self.rows(statement).await?.into_iter().next())
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>> {
        Ok(match self {
            Self::Sqlite(transaction) => {
                let query = value::bound::<Sqlite>(statement)?;
                query.fetch_all(&mut **transaction).await?.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(transaction) => {
                let query = value::bound::<Postgres>(statement)?;
                query.fetch_all(&mut **transaction).await?.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Several statements without values, as migrations have them.
    pub(crate) async fn script(&mut self, script: &'static str) -> Result<()> {
        match self {
            Self::Sqlite(transaction) => {
                sqlx::raw_sql(script).execute(&mut **transaction).await?;
            }
            Self::Postgres(transaction) => {
                sqlx::raw_sql(script).execute(&mut **transaction).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await?,
            Self::Postgres(transaction) => transaction.commit().await?,
        }
        Ok(())
    }
}
