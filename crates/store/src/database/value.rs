//! Values on their way into and out of either database.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use sandstorm_types::{ContextId, ExecId, RunId, SandboxId, SnapshotId, TenantId, Timestamp, Usd};
use sqlx::postgres::PgRow;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Database, Encode, Row as _, Type};

use crate::{Json, Result, StoreError};

/// What a column can hold.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(super) text: Cow<'static, str>,
    pub(super) values: Vec<Value>,
}

/// A statement whose text is fixed, or put together from fixed pieces; what callers give is bound, never pasted.
pub(crate) fn sql(text: impl Into<Cow<'static, str>>) -> Statement {
    Statement { text: text.into(), values: Vec::new() }
}

impl Statement {
    /// The value of the next placeholder.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// The same statement with more text.
    pub(crate) fn and(mut self, text: impl AsRef<str>) -> Self {
        self.text.to_mut().push_str(text.as_ref());
        self
    }
}

pub(super) fn bound<'q, DB>(statement: Statement) -> Result<Query<'q, DB, <DB as Database>::Arguments>>
where
    DB: Database,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    Option<String>: Encode<'q, DB> + Type<DB>,
    Option<Vec<u8>>: Encode<'q, DB> + Type<DB>,
{
    let mut query = sqlx::query(AssertSqlSafe(statement.text));
    for value in statement.values {
        query = match value {
            Value::Int(number) => query.bind(number),
            Value::Text(Some(text)) if text.contains('\0') => return Err(holds_nul()),
            Value::Text(text) => query.bind(text),
            Value::Bytes(bytes) => query.bind(bytes),
        };
    }
    Ok(query)
}

/// PostgreSQL cannot hold it, so neither database is given it.
pub(super) fn holds_nul() -> StoreError {
    StoreError::Invalid { what: "a stored text cannot hold a NUL character".to_owned() }
}

/// A row of either database.
#[derive(Debug)]
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// What SQLite gave, copied out of it.
#[derive(Debug)]
pub(crate) struct SqliteRow {
    pub(super) columns: Arc<[String]>,
    pub(super) values: Vec<Value>,
}

impl SqliteRow {
    fn value(&self, column: &'static str) -> Result<&Value> {
        let place = self.columns.iter().position(|name| name == column);
        place
            .and_then(|place| self.values.get(place))
            .ok_or_else(|| StoreError::corrupt(format!("there is no column {column}")))
    }
}

impl Row {
    pub(crate) fn get<T: Column>(&self, column: &'static str) -> Result<T> {
        T::read(self, column)?.ok_or_else(|| StoreError::corrupt(format!("column {column} is empty")))
    }

    pub(crate) fn optional<T: Column>(&self, column: &'static str) -> Result<Option<T>> {
        T::read(self, column)
    }
}

/// A type that a column can be read as.
pub(crate) trait Column: Sized {
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>>;
}

macro_rules! stored_as_is {
    ($($type:ty => $value:ident),*) => {$(
        impl Column for $type {
            fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
                match row {
                    Row::Sqlite(row) => match row.value(column)? {
                        // An empty column has no type.
                        Value::Int(None) => Ok(None),
                        Value::$value(value) => Ok(value.clone()),
                        _ => Err(StoreError::corrupt(format!("column {column} holds another type"))),
                    },
                    Row::Postgres(row) => Ok(row.try_get(column)?),
                }
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$value(Some(value))
            }
        }

        impl From<Option<$type>> for Value {
            fn from(value: Option<$type>) -> Self {
                Self::$value(value)
            }
        }
    )*};
}

stored_as_is!(i64 => Int, String => Text, Vec<u8> => Bytes);

macro_rules! stored_as_text {
    ($($type:ty),*) => {$(
        impl Column for $type {
            fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
                let Some(text) = String::read(row, column)? else { return Ok(None) };
                Self::from_str(&text).map(Some).map_err(|error| StoreError::Corrupt {
                    what: format!("column {column} holds no {}", stringify!($type)),
                    source: Some(Box::new(error)),
                })
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::Text(Some(value.to_string()))
            }
        }

        impl From<Option<$type>> for Value {
            fn from(value: Option<$type>) -> Self {
                Self::Text(value.map(|value| value.to_string()))
            }
        }
    )*};
}

stored_as_text!(TenantId, SandboxId, ExecId, ContextId, RunId, SnapshotId, Json);

impl Column for Timestamp {
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
        Ok(i64::read(row, column)?.map(Self::from_millis))
    }
}

impl Column for bool {
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
        Ok(i64::read(row, column)?.map(|number| number != 0))
    }
}

impl Column for u64 {
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
        let negative = |_| StoreError::corrupt(format!("column {column} is negative"));
        i64::read(row, column)?.map(|number| Self::try_from(number).map_err(negative)).transpose()
    }
}

/// In picodollars. A single amount stops at nine million dollars; sums are made of more than one number.
impl Column for Usd {
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
        Ok(i64::read(row, column)?.map(|picos| Self::picos(picos.into())))
    }
}

impl From<Usd> for Value {
    fn from(value: Usd) -> Self {
        Self::Int(Some(picos(value)))
    }
}

impl From<Option<Usd>> for Value {
    fn from(value: Option<Usd>) -> Self {
        Self::Int(value.map(picos))
    }
}

fn picos(amount: Usd) -> i64 {
    i64::try_from(amount.as_picos()).unwrap_or(if amount.is_positive() { i64::MAX } else { i64::MIN })
}

impl From<Timestamp> for Value {
    fn from(value: Timestamp) -> Self {
        Self::Int(Some(value.millis()))
    }
}

impl From<Option<Timestamp>> for Value {
    fn from(value: Option<Timestamp>) -> Self {
        Self::Int(value.map(Timestamp::millis))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(Some(value.into()))
    }
}

/// Counts stop at the largest number that both databases hold, far beyond what can be counted.
impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(Some(value.into()))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<&Json> for Value {
    fn from(value: &Json) -> Self {
        Self::Text(Some(value.to_string()))
    }
}

impl From<Option<&Json>> for Value {
    fn from(value: Option<&Json>) -> Self {
        Self::Text(value.map(Json::to_string))
    }
}
