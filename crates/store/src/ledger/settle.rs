//! What providers say that things used, when they say it after the end.

use sandstorm_types::{TenantId, Timestamp};

use super::LedgerBill;
use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Result, Store};

/// The bill of one part of a thing, by its provider's own figures.
#[derive(Debug, Clone, PartialEq)]
pub struct PartBill {
    pub part: u32,
    /// `None`: there never was anything, so there is no entry either.
    pub bill: Option<LedgerBill>,
}

impl LedgerBill {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            provider: row.get("provider")?,
            region: row.optional("region")?,
            ended_at: row.get("ended_at")?,
            wall_ms: row.get("wall_ms")?,
            cpu_ms: row.get("cpu_ms")?,
            peak_memory_bytes: row.get("peak_memory_bytes")?,
            priced: row.get("priced")?,
            metered: row.get("metered")?,
            charge: row.get("charge")?,
            credit: row.get("credit")?,
            margin: row.get("margin")?,
            snapshots: row.get("snapshots")?,
        })
    }
}

impl Store {
    /// Puts the provider's figures in the place of those that were measured from outside. What has the provider's already
    /// stays as it is.
    pub async fn settle_bills(
        &self,
        tenant: TenantId,
        began_at: Timestamp,
        object: &str,
        parts: &[PartBill],
    ) -> Result<()> {
        let (object, parts) = (object.to_owned(), parts.to_vec());
        self.write(Some(tenant), async move |writing| {
            for PartBill { part, bill } in &parts {
                let Some(bill) = bill else {
                    let text = "DELETE FROM ledger WHERE tenant = $1 AND began_at = $2 AND object = $3 AND part = $4
                        AND part > 0 AND metered = 0";
                    let delete = sql(text).bind(tenant).bind(began_at).bind(&*object).bind(*part);
                    writing.run(delete).await?;
                    continue;
                };
                let text = "UPDATE ledger SET wall_ms = $5, cpu_ms = $6, peak_memory_bytes = $7, priced = $8, charge = $9,
                    credit = $10, margin = $11, snapshots = $12, metered = 1
                    WHERE tenant = $1 AND began_at = $2 AND object = $3 AND part = $4 AND ended_at IS NOT NULL AND metered = 0";
                let update = sql(text)
                    .bind(tenant)
                    .bind(began_at)
                    .bind(&*object)
                    .bind(*part)
                    .bind(bill.wall_ms)
                    .bind(bill.cpu_ms)
                    .bind(bill.peak_memory_bytes)
                    .bind(bill.priced)
                    .bind(bill.charge)
                    .bind(bill.credit)
                    .bind(bill.margin)
                    .bind(bill.snapshots);
                writing.run(update).await?;
            }
            Ok(Done::Keep(()))
        })
        .await
    }

    /// The bill of a thing that is over, without its attempts.
    pub async fn bill_of(
        &self,
        tenant: TenantId,
        began_at: Timestamp,
        object: &str,
    ) -> Result<Option<LedgerBill>> {
        let text = "SELECT * FROM ledger WHERE tenant = $1 AND began_at = $2 AND object = $3 AND part = 0
            AND ended_at IS NOT NULL";
        let query = sql(text).bind(tenant).bind(began_at).bind(object);
        self.settled().await?.row(query).await?.as_ref().map(LedgerBill::read).transpose()
    }
}
