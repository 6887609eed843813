//! PostgreSQL: a pool of connections that read, one of which the writer takes for each batch.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Postgres, Transaction};

use crate::{Durability, Result, StoreError};

const ACQUIRE: Duration = Duration::from_secs(10);

/// A server that acknowledges before it has written would lose the last moments in a crash of its own. One that waits
/// for more than itself is left as it is.
const FULL: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

pub(super) async fn connect(url: &str, connections: u32, durability: Durability) -> Result<PgPool> {
    // What is wrong with it is not passed on: the parser's words may hold the password.
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Invalid {
        what: "the address of the database must be like postgres://user@host/database".to_owned(),
    })?;
    let options = options
        .application_name("sandstorm")
        .statement_cache_capacity(256)
        // A server that hangs must not hang us: no statement of ours takes this long.
        // Nor must what a server held that was lost in the middle of something: the others wait for it.
        .options([
            ("statement_timeout", "60s"),
            ("lock_timeout", "20s"),
            ("idle_in_transaction_session_timeout", "60s"),
        ]);
    let mut pool = PgPoolOptions::new().max_connections(connections.max(2)).acquire_timeout(ACQUIRE);
    if durability == Durability::Full {
        pool = pool.after_connect(|connection, _| {
            Box::pin(async move { sqlx::raw_sql(FULL).execute(connection).await.map(drop) })
        });
    }
    Ok(pool.connect_with(options).await?)
}

/// Begins a transaction in a task of its own, so that a caller who gives up does not interrupt it: a connection whose
/// `BEGIN` was on its way would go back to the pool with a transaction that nobody ends, and what the next one writes
/// there would never be kept. The task ends the transaction when nobody takes it.
pub(super) async fn begin(
    pool: &PgPool,
    statement: &'static str,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let pool = pool.clone();
    #[expect(clippy::disallowed_methods, reason = "as short as one statement, and bounded by its time limit")]
    let begun = tokio::spawn(async move { pool.begin_with(statement).await });
    begun.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
