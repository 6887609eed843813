//! What must survive: tenants, keys, sandboxes, execs, contexts, runs, events, audit; in SQLite or PostgreSQL.
//!
//! One [`Store`] with one set of queries; the two databases differ in how they connect and in their migrations alone.
//! Everything that belongs to a tenant is looked up by tenant *and* id. What a principal does is written together
//! with its [`Audit`] record in one transaction: no record, no act. A run or a cell is on file before it acts, and so is its
//! end before anybody hears of it; the transaction follows. Whoever reads sees everything that anybody heard of.
//!
//! What survives what is [`Durability`]. SQLite runs in WAL mode with `synchronous=NORMAL`, or `FULL` when asked to. Calls
//! are written one after the other, many in one transaction, and each is answered when that is committed. A caller who
//! finds nobody writing writes where it is, unless that could take long.

mod audit;
mod clock;
mod config;
mod contexts;
mod database;
mod error;
mod events;
mod execs;
mod files;
mod idempotency;
mod intents;
mod keys;
mod leases;
mod ledger;
mod names;
mod retention;
mod runs;
mod samples;
mod sandboxes;
mod settling;
mod snapshots;
mod store;
mod tenants;
#[cfg(feature = "testing")]
pub mod testing;
mod usage;
mod writing;

pub use audit::{Audit, AuditKey, AuditReport, AuditRow, Decision, Tampering};
pub use clock::WallClock;
pub use config::{Durability, StoreConfig};
pub use contexts::{ContextChanges, ContextRow, WholeCell};
pub use error::{QuotaKind, Result, StoreError};
pub use events::EventRow;
pub use execs::{ExecEnd, ExecRow};
pub use files::NotedFile;
pub use idempotency::{Begun, Left, StoredAnswer};
pub use intents::Announced;
pub use keys::KeyRow;
pub use leases::{Estate, Lease};
pub use ledger::{
    EntryKind, GroupBy, LedgerBill, LedgerEntry, LedgerQuery, LedgerSum, NoGroup, OpenEntry, PartBill, Spent,
    SpentBy,
};
pub use names::{Claimed, NameRow};
pub use retention::{Retention, Swept};
pub use runs::{RunEnd, RunRow, WholeRun};
pub use samples::SampleRow;
pub use sandboxes::{Reservation, SandboxChanges, SandboxFilter, SandboxRow, StepOutcome, TransitionRow};
pub use snapshots::{SnapshotFilter, SnapshotRoom, SnapshotRow, SnapshotState};
pub use store::Store;
pub use tenants::TenantRow;
pub use usage::{UsageDelta, UsageRow};

/// JSON as it is stored.
pub type Json = serde_json::Value;
