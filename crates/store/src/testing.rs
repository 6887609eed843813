//! For tests of this crate and of others: a real PostgreSQL, and doors that a server does not have.

mod postgres;

pub use postgres::Postgres;

use std::time::Duration;

use sandstorm_types::{TenantId, Timestamp};

use crate::database::{Connection, Database, sql};
use crate::writing::{Done, Writing};
use crate::{Json, Result, Store, StoreConfig};

/// The versions that a database can have had.
pub const VERSIONS: std::ops::RangeInclusive<i64> = 1..=crate::database::NEWEST;

/// Opens a database at an earlier version of the schema, to fill it as a program of that day would have.
pub async fn open_at_version(config: &StoreConfig, version: i64) -> Result<Store> {
    Store::open_at(config, version).await
}

/// Runs one statement past all rules, as somebody who got at the database would. Gives the number of rows.
pub async fn meddle(store: &Store, statement: &str) -> Result<u64> {
    let statement = sql(statement.to_owned());
    store.write_long(None, async move |writing| writing.run(statement.clone()).await.map(Done::Keep)).await
}

/// Text of the first column, named `value`, of each row that a statement gives.
pub async fn look(store: &Store, statement: &str) -> Result<Vec<String>> {
    let rows = store.database().rows(sql(statement.to_owned())).await?;
    rows.iter().map(|row| row.get("value")).collect()
}

/// How SQLite means to find the rows of a query.
pub async fn plan(store: &Store, query: &str) -> Result<String> {
    let rows = store.database().rows(sql(format!("EXPLAIN QUERY PLAN {query}"))).await?;
    let steps = rows.iter().map(|row| row.get::<String>("detail")).collect::<Result<Vec<_>>>()?;
    Ok(steps.join("; "))
}

/// Links audit records anew, as somebody who knows how hashes are made would; see [`Store::verify_audit`].
pub async fn rechain(store: &Store, from: i64, to: i64, head: bool) -> Result<()> {
    crate::audit::forge::rechain(store, from, to, head).await
}

/// Waits for checkpoints that were committed to be in the anchor, where they come a moment later.
pub async fn anchored(store: &Store) {
    store.chain().anchor().await;
}

/// What the connection that writes has set, such as `synchronous`, as text.
pub async fn writer_setting(store: &Store, statement: &'static str) -> Result<String> {
    store
        .write(None, async move |writing| {
            let row = writing.row(sql(statement)).await?;
            let row = row.ok_or_else(|| crate::StoreError::corrupt("there is no such setting"))?;
            row.get("value").map(Done::Undo)
        })
        .await
}

/// Transactions that were committed since the store was opened.
pub fn commits(store: &Store) -> u64 {
    store.writer().commits()
}

/// Who writes a small call.
pub async fn writing_thread(store: &Store) -> Result<std::thread::ThreadId> {
    store.write(None, async |_writing| Ok(Done::Undo(std::thread::current().id()))).await
}

/// Keeps whoever does it writing for a while: any caller, as if the disk were slow.
pub async fn write_slowly(store: &Store, time: Duration) -> Result<()> {
    let sleep = async move |_writing: &mut Writing| {
        std::thread::sleep(time);
        Ok(Done::Undo(()))
    };
    store.write(None, sleep).await
}

/// Keeps the thread writing for a while.
pub async fn occupy(store: &Store, time: Duration) -> Result<()> {
    let sleep = async move |_writing: &mut Writing| {
        std::thread::sleep(time);
        Ok(Done::Undo(()))
    };
    store.write_long(None, sleep).await
}

/// A mistake in a call, after it wrote an event.
pub async fn panic_while_writing(store: &Store, tenant: TenantId) -> Result<()> {
    let work = async move |writing: &mut Writing| {
        writing.events(tenant, None, Timestamp::now(), &[Json::Null]).await?;
        panic!("a mistake made on purpose")
    };
    store.write(Some(tenant), work).await
}

/// Holds the database's write lock (SQLite) or nothing but a connection (PostgreSQL) until it is dropped.
#[derive(Debug)]
pub struct Held {
    _connection: Connection,
}

pub async fn hold_writer(config: &StoreConfig) -> Result<Held> {
    let (_, mut connection) = Database::connect(config).await?;
    connection.begin().await?;
    Ok(Held { _connection: connection })
}
