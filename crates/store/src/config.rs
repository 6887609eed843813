//! Where the store is and how it signs its audit.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::AuditKey;

/// Longer than it takes to start a server again.
const LEASE: Duration = Duration::from_secs(60);

/// What [`crate::Store::open`] needs.
#[derive(Clone)]
pub struct StoreConfig {
    /// `postgres://…`; without it SQLite at `path`.
    pub url: Option<String>,
    /// The SQLite file; made with mode 0600 when absent.
    pub path: PathBuf,
    /// Signs checkpoints of the audit. Never in the database.
    pub audit_key: AuditKey,
    /// The side file that checkpoints are anchored in, outside the database.
    pub audit_anchor: PathBuf,
    /// The side file for what is about to be done; made when it is needed first.
    pub intents: PathBuf,
    /// The side file that says by which clock records are.
    pub clock: PathBuf,
    /// A checkpoint is made every so many audit records.
    pub checkpoint_every: u32,
    /// Connections that read, or all connections with PostgreSQL.
    pub connections: u32,
    pub durability: Durability,
    /// Where the state directory is, as nobody else on this machine has it; `None` if that cannot be told.
    pub place: Option<String>,
    /// How long this server's records stay its own when it is not heard of any more, where several share a database.
    pub lease: Duration,
}

/// What a call that returned survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// The end of this process, however it comes, `kill -9` included. A loss of power, or a kernel that fails, can take the
    /// last moments before it, never the consistency of what is stored. PostgreSQL keeps what it acknowledged as its own
    /// `synchronous_commit` says.
    #[default]
    Normal,
    /// A loss of power as well: each commit is forced to the disk before anybody in it is answered.
    Full,
}

impl StoreConfig {
    /// The usual files in a state directory: `sandstorm.db`, `audit.anchor`, `intents`, `clock`.
    pub fn in_directory(state: &Path, url: Option<String>, audit_key: AuditKey) -> Self {
        Self {
            url,
            path: state.join("sandstorm.db"),
            audit_key,
            audit_anchor: state.join("audit.anchor"),
            intents: state.join("intents"),
            clock: state.join("clock"),
            checkpoint_every: 100,
            connections: 8,
            durability: Durability::default(),
            place: place_of(state),
            lease: LEASE,
        }
    }
}

/// A directory of a machine that is running: a copy of it is another place, and so is the same one after a start of the
/// machine, since nothing tells a machine from its copy.
fn place_of(state: &Path) -> Option<String> {
    let boot = boot()?;
    let directory = std::fs::metadata(state).ok()?;
    Some(format!("{boot} {}:{}", directory.dev(), directory.ino()))
}

/// The name of this start of the machine.
pub(crate) fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

/// The address of a database carries its password, so it is not shown.
impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("postgres", &self.url.is_some())
            .field("path", &self.path)
            .field("audit_anchor", &self.audit_anchor)
            .finish_non_exhaustive()
    }
}
