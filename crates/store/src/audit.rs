//! Who did what: a hash chain with signed checkpoints, anchored outside the database.
//!
//! Each node, that is each state directory with its [`AuditKey`], has a chain of its own: every record's hash covers its
//! fields and the hash before it. A bare chain can be cut short or written anew by whoever can write the database, so
//! every so many records a checkpoint is signed with a key that is not in the database and appended to the anchor, a
//! file beside it whose lines form a signed chain too. Whoever copies that file elsewhere can also tell when database
//! *and* anchor were put back together to an earlier day; on one machine alone nothing can.
//!
//! What was recorded after the last anchored record is held by nothing outside the database: whoever can write that can
//! change those records, or cut them off, unseen. The window is bounded by number (`checkpoint_every`) and, where
//! [`Store::anchor_recent`] is called again and again, by time; a report says how many records are in it.

mod anchor;
mod chain;
mod copying;
mod diagnosis;
#[cfg(feature = "testing")]
pub(crate) mod forge;
mod key;
mod record;
mod redact;
mod report;
mod verify;

use std::path::Path;

use sandstorm_types::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

pub use key::AuditKey;
pub use report::{AuditReport, Tampering};

pub(crate) use chain::{Chain, Checkpoint, Head};
pub(crate) use key::random_name;
pub(crate) use record::{from_hex, hex};

use chain::Kind;

use crate::database::sql;
use crate::writing::Done;
use crate::{Json, Result, Store, StoreError};

/// What to record of an act, or of one that was refused. Fields are made safe to print and bounded in size when they
/// are stored; what looks like a secret is taken out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    pub tenant: TenantId,
    /// The public id of a key, or a name in angle brackets such as `<cli>`.
    pub principal: String,
    /// Such as `sandbox.create`.
    pub action: String,
    /// What it was done to.
    pub object: String,
    pub decision: Decision,
    pub request_id: String,
    /// No secrets, no contents of files, no output.
    pub detail: Option<Json>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Decision {
    Allowed,
    Denied,
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRow {
    pub node: String,
    pub seq: u64,
    pub at: Timestamp,
    /// Milliseconds since the writing process opened the store, by a clock that nobody can set.
    pub monotonic_ms: u64,
    pub audit: Audit,
    /// In hexadecimal.
    pub prev_hash: String,
    pub hash: String,
}

impl Store {
    /// Records something that changes no other row, such as a refusal.
    pub async fn record_audit(&self, audit: &Audit) -> Result<()> {
        let audit = audit.clone();
        self.write(None, async move |writing| {
            writing.audit(&audit).await?;
            Ok(Done::Keep(()))
        })
        .await
    }

    /// Oldest first, after record `after` of this node.
    pub async fn audit(&self, tenant: Option<TenantId>, after: u64, limit: u32) -> Result<Vec<AuditRow>> {
        let node = self.chain().node();
        let query = match tenant {
            Some(tenant) => {
                let by_tenant = self.database().by_index("audit_by_tenant");
                let text = format!(
                    "SELECT * FROM audit {by_tenant} WHERE node = $1 AND seq > $2 AND tenant = $4
                    ORDER BY seq LIMIT $3"
                );
                sql(text).bind(node).bind(after).bind(limit).bind(tenant)
            }
            None => sql("SELECT * FROM audit WHERE node = $1 AND seq > $2 ORDER BY seq LIMIT $3")
                .bind(node)
                .bind(after)
                .bind(limit),
        };
        self.settled().await?.rows(query).await?.iter().map(record::read).collect()
    }

    /// Signs and anchors where the chain is now. Gives its last number.
    pub async fn checkpoint_audit(&self) -> Result<u64> {
        let seq = self.write(None, async |writing| writing.checkpoint().await.map(Done::Keep)).await?;
        self.chain().anchor().await;
        Ok(seq)
    }

    /// Signs and anchors where the chain is now, if there are records that no checkpoint speaks of. Whoever does this from
    /// time to time bounds by time, too, what somebody with the database could cut off unseen.
    pub async fn anchor_recent(&self) -> Result<()> {
        if self.chain().has_recent() {
            return self.checkpoint_audit().await.map(drop);
        }
        // What could not be written to the anchor before.
        self.chain().anchor().await;
        Ok(())
    }

    /// Checks every record of the key's node against the chain, the signed checkpoints and the anchor file.
    pub async fn verify_audit(&self, key: &AuditKey, anchor: &Path) -> Result<AuditReport> {
        self.settle().await?;
        // What this server signed is anchored a moment after it was committed.
        self.chain().anchor().await;
        let (store, key, anchor) = (self.clone(), key.clone(), anchor.to_owned());
        let runtime = tokio::runtime::Handle::current();
        let verified = tokio::task::spawn_blocking(move || {
            runtime.block_on(verify::verify(store.database(), &key, &anchor))
        });
        verified.await.map_err(|error| StoreError::Unavailable { source: Box::new(error) })?
    }
}
