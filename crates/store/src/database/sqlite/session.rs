//! One connection to a SQLite file. Every call blocks until it is done.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql};

use super::super::value::{self, Row, SqliteRow, Statement, Value};
use super::Folding;
use crate::{Durability, Result, StoreError};

/// How long a write waits for another process, such as `sandstorm keys`, to finish its own.
const BUSY: Duration = Duration::from_secs(5);
/// Statements that are kept prepared: more than there are.
const STATEMENTS: usize = 256;
/// Bytes of its log that stay when it is begun anew: a burst must not take that much of the disk for good.
const LONGEST_LOG: i64 = 16 << 20;
/// Pages of the log after which the commit itself folds it, should the thread for that not keep up.
const FOLD_AT_ONCE: i64 = 20_000;

#[derive(Debug)]
pub(crate) struct Session {
    /// Ends before the connection does: the last one to close folds the log.
    folding: Option<Folding>,
    /// Whether a commit waits for the disk.
    waits_for_disk: bool,
    connection: Connection,
}

impl Session {
    /// The one that writes.
    pub(super) fn writer(path: &Path, durability: Durability) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut session = Self::open(path, flags)?;
        let synchronous = match durability {
            // Forced to the disk when the log is folded: what was acknowledged is with the kernel until then.
            Durability::Normal => "NORMAL",
            // Forced with each commit.
            Durability::Full => "FULL",
        };
        session.connection.pragma_update(None, "journal_mode", "WAL")?;
        session.connection.pragma_update(None, "synchronous", synchronous)?;
        session.connection.pragma_update(None, "foreign_keys", true)?;
        session.connection.pragma_update(None, "wal_autocheckpoint", FOLD_AT_ONCE)?;
        session.connection.pragma_update(None, "journal_size_limit", LONGEST_LOG)?;
        session.folding = Some(Folding::start(path.to_owned())?);
        session.waits_for_disk = durability == Durability::Full;
        Ok(session)
    }

    /// One that folds the log while the writer writes.
    pub(super) fn beside(path: &Path) -> Result<Self> {
        Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    }

    /// One that only reads.
    pub(super) fn reader(path: &Path) -> Result<Self> {
        Self::open(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(Self { folding: None, waits_for_disk: true, connection })
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// A statement without values and without rows.
    pub(crate) fn command(&self, text: &str) -> Result<()> {
        self.connection.prepare_cached(text)?.raw_execute()?;
        Ok(())
    }

    /// Begins a transaction that writes, unless another process is in one; whether it did.
    pub(crate) fn begin_at_once(&self) -> Result<bool> {
        self.connection.busy_timeout(Duration::ZERO)?;
        let begun = self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut it| it.raw_execute());
        self.connection.busy_timeout(BUSY)?;
        match begun {
            Ok(_) => Ok(true),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes whenever another connection, of this process or another, has changed the file.
    pub(crate) fn version(&self) -> Result<i64> {
        let mut asked = self.connection.prepare_cached("PRAGMA data_version")?;
        Ok(asked.query_row((), |row| row.get(0))?)
    }

    /// Whether the next commit goes no further than to the kernel's memory.
    pub(crate) fn is_quick(&self) -> bool {
        !self.waits_for_disk && self.folding.as_ref().is_some_and(|folding| !folding.was_folded())
    }

    pub(crate) fn script(&self, script: &str) -> Result<()> {
        Ok(self.connection.execute_batch(script)?)
    }

    /// Undoes the transaction under way, if there still is one.
    pub(crate) fn abandon(&self) {
        if self.is_in_transaction()
            && let Err(error) = self.command("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be undone");
        }
    }

    /// Gives the number of rows that it touched.
    pub(crate) fn run(&self, statement: Statement) -> Result<u64> {
        let mut prepared = self.prepare(&statement)?;
        // One that gives rows has to be run to its end as well.
        if prepared.column_count() > 0 {
            let mut rows = prepared.raw_query();
            while rows.next()?.is_some() {}
            return Ok(self.connection.changes());
        }
        Ok(prepared.raw_execute()? as u64)
    }

    pub(crate) fn rows(&self, statement: Statement) -> Result<Vec<Row>> {
        let mut prepared = self.prepare(&statement)?;
        let columns: Arc<[String]> = prepared.column_names().into_iter().map(str::to_owned).collect();
        let mut rows = prepared.raw_query();
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let read = (0..columns.len()).map(|place| owned(row.get_ref(place)?));
            let values = read.collect::<Result<_>>()?;
            found.push(Row::Sqlite(SqliteRow { columns: Arc::clone(&columns), values }));
        }
        Ok(found)
    }

    fn prepare(&self, statement: &Statement) -> Result<CachedStatement<'_>> {
        let mut prepared = self.connection.prepare_cached(&statement.text)?;
        // `$n` is a name to SQLite, numbered by where it comes first.
        for place in 1..=prepared.parameter_count() {
            let number = prepared.parameter_name(place).and_then(|name| name.get(1..)?.parse::<usize>().ok());
            let value = number.and_then(|number| statement.values.get(number.checked_sub(1)?));
            let value = value.ok_or_else(|| StoreError::corrupt("a statement lacks a value"))?;
            if matches!(value, Value::Text(Some(text)) if text.contains('\0')) {
                return Err(value::holds_nul());
            }
            prepared.raw_bind_parameter(place, value)?;
        }
        Ok(prepared)
    }

    /// Folds the log into the file as far as it can without holding anybody up.
    pub(super) fn fold(&self) -> Result<()> {
        Ok(self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }

    /// To be called after each commit.
    pub(crate) fn committed(&mut self) {
        if let Some(folding) = &mut self.folding {
            folding.committed();
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(Some(number)) => ValueRef::Integer(*number),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
            Self::Int(None) | Self::Text(None) | Self::Bytes(None) => ValueRef::Null,
        }))
    }
}

fn owned(value: ValueRef<'_>) -> Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Int(None),
        ValueRef::Integer(number) => Value::Int(Some(number)),
        ValueRef::Text(text) => match str::from_utf8(text) {
            Ok(text) => Value::Text(Some(text.to_owned())),
            Err(_) => return Err(StoreError::corrupt("a stored text is not valid UTF-8")),
        },
        ValueRef::Blob(bytes) => Value::Bytes(Some(bytes.to_vec())),
        ValueRef::Real(_) => return Err(StoreError::corrupt("a column holds another type")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::sql;

    #[test]
    fn a_log_that_grew_beside_a_reader_is_cut_when_it_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sandstorm.db");
        std::fs::File::create(&path).unwrap();
        let writer = Session::writer(&path, Durability::Normal).unwrap();
        writer.script("CREATE TABLE burst (piece BLOB)").unwrap();
        let reader = Session::reader(&path).unwrap();
        reader.command("BEGIN").unwrap();
        assert!(reader.rows(sql("SELECT piece FROM burst")).unwrap().is_empty());
        for _ in 0..24 {
            writer.script("INSERT INTO burst VALUES (zeroblob(1048576))").unwrap();
        }
        let log = || std::fs::metadata(dir.path().join("sandstorm.db-wal")).unwrap().len();
        assert!(log() > 20 << 20, "{}", log());
        drop(reader);
        Session::beside(&path).unwrap().fold().unwrap();
        writer.script("INSERT INTO burst VALUES (NULL)").unwrap();
        assert!(log() <= 16 << 20, "{}", log());
    }
}
