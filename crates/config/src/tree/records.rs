//! Where a server keeps its records, and for how long.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;
use crate::secret::SecretRef;

/// Where a server keeps its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// Where the address of a PostgreSQL database is kept, since it may hold a password: `env:NAME` or `file:/path`,
    /// holding `postgres://user:password@host/name`. Not set: SQLite in the state directory.
    #[schemars(example = &"file:/etc/sandstorm/database.url")]
    pub url: Option<SecretRef>,
    /// What an answer survives: `normal` the end of the server however it comes, `full` a loss of power too.
    pub durability: Durability,
    /// With PostgreSQL: how long nothing is heard of a server before others that share the database end what it left.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub lease: Duration,
}

impl Default for Database {
    fn default() -> Self {
        Self { url: None, durability: Durability::default(), lease: Duration::from_secs(60) }
    }
}

/// What the record of something survives once it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// `kill -9` of the server. A loss of power can take the last moments before it.
    #[default]
    Normal,
    /// A loss of power as well: the disk has it before the answer goes out.
    Full,
}

/// How long a server keeps its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Runs with their results, execs and ended sandboxes.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub runs: Duration,
    /// Events, which a listener can catch up on, and samples of what sandboxes use.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub events: Duration,
    /// The audit trail.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub audit: Duration,
    /// What runs and sandboxes cost. Entries that used free credits stay.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub ledger: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        Retention { runs: days(7), events: days(1), audit: days(90), ledger: days(400) }
    }
}
