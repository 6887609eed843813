//! What it costs to keep a saved sandbox.

use sandstorm_catalog::Bill;
use sandstorm_store::{EntryKind, LedgerBill, LedgerEntry, SnapshotRow, Store, StoreError};
use sandstorm_types::{ByteSize, Timestamp, Usd};

use super::account::no_bill;
use super::during::Spending;

impl Spending {
    /// Puts into the ledger, and into the budgets that it counts for, what it cost since it was charged for. That time passes
    /// also while there is no fee: one that comes later is not for what was before.
    pub(in super::super) async fn charge_snapshot(
        &self,
        store: &Store,
        row: &SnapshotRow,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let kept = until.since(row.charged_until);
        let fee = Bill::of_snapshot(ByteSize::bytes(row.size_bytes), kept, self.prices().fees()).snapshots;
        let entry = (fee > Usd::ZERO).then(|| entry(row, fee, until));
        if store.charge_snapshot(row, until, entry).await? && fee > Usd::ZERO {
            let budgets = self.budgets();
            let counts = budgets.of(row.tenant, &row.key, &row.spec.labels, row.charged_until);
            budgets.correct(&counts, fee);
        }
        Ok(())
    }
}

/// Each time has an entry of its own, so that it counts where it was.
fn entry(row: &SnapshotRow, fee: Usd, until: Timestamp) -> LedgerEntry {
    let bill = LedgerBill { snapshots: fee, ..no_bill(row.provider.clone(), None, until) };
    LedgerEntry {
        object: format!("{}@{}", row.id, row.charged_until.millis()),
        part: 0,
        kind: EntryKind::Snapshot,
        key: row.key.clone(),
        labels: row.spec.labels.clone(),
        provider: row.provider.clone(),
        region: None,
        cpu_milli: 0,
        memory_bytes: 0,
        began_at: row.charged_until,
        estimate: fee,
        max_cost: None,
        bill: Some(bill),
    }
}
