//! What can go wrong with stored things, by what a caller can do about it.

use std::fmt;
use std::path::Path;

use sqlx::error::{DatabaseError, ErrorKind};
use thiserror::Error;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why the store did not do what it was asked. Nothing was changed, unless it says so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No connection, or the database is locked or shutting down. Trying again later can help. Whether a write that
    /// was under way took place is not known.
    #[error("the database is not available")]
    Unavailable { source: Source },
    /// No space, or a quota of the file system.
    #[error("the database cannot grow: the disk is full")]
    Full { source: Source },
    /// Something of that name or id exists already, or something it refers to does not.
    #[error("the record conflicts with what is stored ({what})")]
    Conflict { what: &'static str, source: Source },
    /// A tenant's ceiling.
    #[error("quota of {which} is used up: {used} in use, {wanted} wanted, {limit} allowed")]
    QuotaExceeded { which: QuotaKind, used: u64, wanted: u64, limit: u64 },
    /// What is stored is not what was written.
    #[error("the database is damaged: {what}")]
    Corrupt { what: String, source: Option<Source> },
    /// The database was written by a newer version.
    #[error(
        "the database has version {found}, this program knows versions up to {known}: use the newer program"
    )]
    Newer { found: i64, known: i64 },
    /// Another server has taken over what this one had, or serves under its name.
    #[error("another server has taken over the records of this one")]
    Superseded,
    /// The record belongs to another server that lives.
    #[error("the record belongs to another server ({node})")]
    Elsewhere { node: String },
    /// A value that cannot be stored.
    #[error("{what}")]
    Invalid { what: String },
    /// Not possible with this database.
    #[error("{what}")]
    Unsupported { what: &'static str },
    /// Reading or writing a file beside the database.
    #[error("cannot {action} {path}")]
    File { action: &'static str, path: String, source: std::io::Error },
    /// A mistake of this program, such as a query that the database does not understand.
    #[error("the database refused a query")]
    Refused { source: Source },
}

/// What a tenant's ceiling counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    Sandboxes,
    Cpu,
    Memory,
    Snapshots,
    SnapshotBytes,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "sandboxes",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Snapshots => "snapshots",
            Self::SnapshotBytes => "bytes of snapshots",
        })
    }
}

impl StoreError {
    /// Whether the same call can succeed later without a change of the request.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Full { .. })
    }

    /// The same for somebody else: what several callers waited for failed for all of them.
    pub(crate) fn again(&self) -> Self {
        let source = || std::error::Error::source(self).map_or_else(|| self.to_string(), chain).into();
        match self {
            Self::Full { .. } => Self::Full { source: source() },
            Self::Corrupt { what, .. } => Self::Corrupt { what: what.clone(), source: Some(source()) },
            Self::Refused { .. } => Self::Refused { source: source() },
            Self::Superseded => Self::Superseded,
            _ => Self::Unavailable { source: source() },
        }
    }

    /// Whether PostgreSQL undid it because two transactions waited for each other.
    pub(crate) fn is_deadlock(&self) -> bool {
        let Self::Unavailable { source } = self else { return false };
        let database = source.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
        database.and_then(DatabaseError::code).is_some_and(|code| matches!(&*code, "40P01" | "40001"))
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), source: None }
    }

    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full { source: Box::new(source) }
            }
            _ => Self::File { action, path, source },
        }
    }
}

/// What an error and everything behind it says.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text += &format!(": {inner}");
        source = inner.source();
    }
    text
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(failure, _) = &error else {
            return Self::Refused { source: Box::new(error) };
        };
        Self::by_verdict(sqlite_verdict(failure.extended_code.unsigned_abs()), error)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error;
        match &error {
            Error::Database(database) => Self::by_verdict(postgres_verdict(database.as_ref()), error),
            Error::Io(_)
            | Error::Tls(_)
            | Error::Protocol(_)
            | Error::PoolTimedOut
            | Error::PoolClosed
            | Error::WorkerCrashed
            | Error::InvalidSavePointStatement
            | Error::BeginFailed => Self::Unavailable { source: Box::new(error) },
            Error::ColumnDecode { .. } | Error::Decode(_) => {
                Self::Corrupt { what: "a column holds another type".into(), source: Some(Box::new(error)) }
            }
            _ => Self::Refused { source: Box::new(error) },
        }
    }
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Unavailable,
    Full,
    Conflict(&'static str),
    Corrupt,
    Refused,
}

impl StoreError {
    fn by_verdict(verdict: Verdict, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        let source = Box::new(error);
        match verdict {
            Verdict::Unavailable => Self::Unavailable { source },
            Verdict::Full => Self::Full { source },
            Verdict::Conflict(what) => Self::Conflict { what, source },
            Verdict::Corrupt => {
                Self::Corrupt { what: "the database says so itself".into(), source: Some(source) }
            }
            Verdict::Refused => Self::Refused { source },
        }
    }
}

const EXISTS: Verdict = Verdict::Conflict("it exists already");
const BELONGS_TO_NOTHING: Verdict = Verdict::Conflict("what it belongs to does not exist");

fn postgres_verdict(error: &dyn DatabaseError) -> Verdict {
    match error.kind() {
        ErrorKind::UniqueViolation => EXISTS,
        ErrorKind::ForeignKeyViolation => BELONGS_TO_NOTHING,
        _ => postgres_code_verdict(&error.code().unwrap_or_default()),
    }
}

/// Codes as in sqlite3.h.
fn sqlite_verdict(code: u32) -> Verdict {
    const IOERR_SHMSIZE: u32 = 10 | 19 << 8;
    const CONSTRAINT_FOREIGNKEY: u32 = 19 | 3 << 8;
    const CONSTRAINT_PRIMARYKEY: u32 = 19 | 6 << 8;
    const CONSTRAINT_UNIQUE: u32 = 19 | 8 << 8;
    match (code, code & 0xff) {
        (CONSTRAINT_FOREIGNKEY, _) => BELONGS_TO_NOTHING,
        (CONSTRAINT_PRIMARYKEY | CONSTRAINT_UNIQUE, _) => EXISTS,
        (IOERR_SHMSIZE, _) | (_, 13) => Verdict::Full,
        // busy, locked, read-only, i/o error, cannot open, protocol of locks
        (_, 5 | 6 | 8 | 10 | 14 | 15) => Verdict::Unavailable,
        (_, 11 | 26) => Verdict::Corrupt,
        _ => Verdict::Refused,
    }
}

/// Classes as in PostgreSQL's appendix of error codes.
fn postgres_code_verdict(code: &str) -> Verdict {
    match (code, code.get(..2).unwrap_or_default()) {
        ("53100", _) => Verdict::Full,
        // connection, insufficient resources, operator intervention; deadlock, serialization, lock timeout
        (_, "08" | "53" | "57") | ("40001" | "40P01" | "55P03", _) => Verdict::Unavailable,
        ("XX001" | "XX002", _) => Verdict::Corrupt,
        _ => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_can_be_tried_again_and_a_bad_query_cannot() {
        let lost = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(StoreError::from(lost).is_transient());
        assert!(!StoreError::from(sqlx::Error::ColumnNotFound("x".into())).is_transient());
    }

    #[test]
    fn codes_of_both_databases_are_told_apart() {
        assert!(matches!(sqlite_verdict(13), Verdict::Full));
        assert!(matches!(sqlite_verdict(4874), Verdict::Full));
        assert!(matches!(sqlite_verdict(517), Verdict::Unavailable));
        assert!(matches!(sqlite_verdict(267), Verdict::Corrupt));
        assert!(matches!(sqlite_verdict(2067), EXISTS));
        assert!(matches!(sqlite_verdict(787), BELONGS_TO_NOTHING));
        assert!(matches!(postgres_code_verdict("53100"), Verdict::Full));
        assert!(matches!(postgres_code_verdict("57P01"), Verdict::Unavailable));
        assert!(matches!(postgres_code_verdict("42601"), Verdict::Refused));
    }
}
