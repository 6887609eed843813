//! Versions of the schema: forward only, each applied once, whole or not at all.

use ring::digest::{SHA256, digest};

use super::{Connection, sql};
use crate::audit::hex;
use crate::{Result, StoreError};
use sandstorm_types::Timestamp;

struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("../../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../migrations/postgres/", $name, ".sql")),
        }
    };
}

/// Once released, a migration is never edited: databases remember its checksum.
const MIGRATIONS: [Migration; 10] = [
    migration!(1, "0001_core"),
    migration!(2, "0002_work"),
    migration!(3, "0003_tracking"),
    migration!(4, "0004_lists"),
    migration!(5, "0005_fewer_pages"),
    migration!(6, "0006_ledger"),
    migration!(7, "0007_metered"),
    migration!(8, "0008_snapshots"),
    migration!(9, "0009_claims"),
    migration!(10, "0010_leases"),
];

/// The version that this program works with.
pub(crate) const NEWEST: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Servers that start together take turns. The number is arbitrary, and ours. That the table exists is no news.
const POSTGRES_LOCK: &str =
    "SET LOCAL client_min_messages = warning; SELECT pg_advisory_xact_lock(8316294051264423217)";

const BOOKKEEPING: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)";

/// Brings the schema from whatever version it has to `wanted`.
pub(crate) async fn migrate(connection: &mut Connection, wanted: i64) -> Result<()> {
    connection.begin().await?;
    let migrated = migrate_within(connection, wanted).await;
    match migrated {
        Ok(()) => connection.commit().await,
        Err(error) => {
            connection.rollback().await;
            Err(error)
        }
    }
}

async fn migrate_within(connection: &mut Connection, wanted: i64) -> Result<()> {
    if let Connection::Postgres { .. } = connection {
        connection.script(POSTGRES_LOCK).await?;
    }
    connection.script(BOOKKEEPING).await?;
    let applied = check_applied(connection).await?;
    for migration in MIGRATIONS.iter().filter(|it| it.version > applied && it.version <= wanted) {
        tracing::info!(version = migration.version, name = migration.name, "migrating the database");
        let script = migration.script(connection);
        connection.script(script).await?;
        let entry =
            "INSERT INTO schema_versions (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)";
        let entry = sql(entry).bind(migration.version).bind(migration.name).bind(checksum(script));
        connection.run(entry.bind(Timestamp::now())).await?;
    }
    Ok(())
}

/// The newest version that was applied, after making sure that what was applied is what we would have applied.
async fn check_applied(connection: &mut Connection) -> Result<i64> {
    let rows = connection.rows(sql("SELECT version, checksum FROM schema_versions ORDER BY version")).await?;
    let mut newest = 0;
    for row in &rows {
        let version: i64 = row.get("version")?;
        if version > NEWEST {
            let found = rows.last().map_or(Ok(version), |last| last.get("version"))?;
            return Err(StoreError::Newer { found, known: NEWEST });
        }
        let known = MIGRATIONS.iter().find(|migration| migration.version == version);
        let expected = known.map(|migration| checksum(migration.script(connection)));
        if expected != Some(row.get("checksum")?) || version != newest + 1 {
            return Err(StoreError::corrupt(format!("its schema version {version} is not ours")));
        }
        newest = version;
    }
    Ok(newest)
}

impl Migration {
    fn script(&self, connection: &Connection) -> &'static str {
        match connection {
            Connection::Sqlite(_) => self.sqlite,
            Connection::Postgres { .. } => self.postgres,
        }
    }
}

fn checksum(script: &str) -> String {
    hex(digest(&SHA256, script.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbered_without_gaps() {
        let versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (1..=NEWEST).collect::<Vec<_>>());
        assert!(MIGRATIONS.iter().all(|it| it.name.starts_with(&format!("{:04}_", it.version))));
    }
}
