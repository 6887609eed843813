//! For tests of this crate and of others: a real PostgreSQL, and doors that a server does not have.

mod postgres;

pub use postgres::Postgres;

use crate::database::{Transaction, sql};
use crate::{Result, Store, StoreConfig};

/// The versions that a database can have had.
pub const VERSIONS: std::ops::RangeInclusive<i64> = 1..=crate::database::NEWEST;

/// Opens a database at an earlier version of the schema, to fill it as a program of that day would have.
pub async fn open_at_version(config: &StoreConfig, version: i64) -> Result<Store> {
    Store::open_at(config, version).await
}

/// Runs one statement past all rules, as somebody who got at the database would. Gives the number of rows.
pub async fn meddle(store: &Store, statement: &str) -> Result<u64> {
    let mut transaction = store.database().begin().await?;
    let touched = transaction.run(sql(statement.to_owned())).await?;
    transaction.commit().await?;
    Ok(touched)
}

/// Text of the first column, named `value`, of each row that a statement gives.
pub async fn look(store: &Store, statement: &str) -> Result<Vec<String>> {
    let rows = store.database().rows(sql(statement.to_owned())).await?;
    rows.iter().map(|row| row.get("value")).collect()
}

/// Links audit records anew, as somebody who knows how hashes are made would; see [`Store::verify_audit`].
pub async fn rechain(store: &Store, from: i64, to: i64, head: bool) -> Result<()> {
    crate::audit::forge::rechain(store, from, to, head).await
}

/// Holds the database's write lock (SQLite) or nothing but a connection (PostgreSQL) until it is dropped.
#[derive(Debug)]
pub struct Held {
    _transaction: Transaction,
}

pub async fn hold_writer(store: &Store) -> Result<Held> {
    Ok(Held { _transaction: store.database().begin().await? })
}
