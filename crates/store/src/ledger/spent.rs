//! What was spent: of a budget, and of a provider's free credits.

use std::fmt::Write;

use sandstorm_types::{TenantId, Timestamp, Usd};

use super::report::{read_sum, sum_of};
use crate::database::sql;
use crate::{Result, Store};

/// Whose spending, and of what time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpentBy {
    pub tenant: TenantId,
    pub key: Option<String>,
    /// Name and value.
    pub label: Option<(String, String)>,
    /// What began from here to before `to`.
    pub from: Timestamp,
    pub to: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// By what is over.
    pub settled: Usd,
    /// As estimated, by what is not.
    pub expected: Usd,
}

impl Store {
    pub async fn spent(&self, by: &SpentBy) -> Result<Spent> {
        let cost = "CASE WHEN ended_at IS NULL THEN 0 ELSE charge - credit + margin + snapshots END";
        let expected = "CASE WHEN ended_at IS NULL THEN estimate ELSE 0 END";
        let mut text = format!(
            "SELECT {}, {} FROM ledger WHERE tenant = $1 AND began_at >= $2 AND began_at < $3",
            sum_of(cost, "micros", "rest"),
            sum_of(expected, "expected_micros", "expected_rest"),
        );
        let mut place = 4;
        if by.key.is_some() {
            let _ = write!(text, " AND key = ${place}");
            place += 1;
        }
        if by.label.is_some() {
            let _ = write!(
                text,
                " AND object IN (SELECT object FROM ledger_labels WHERE tenant = $1 AND name = ${place} AND value = ${})",
                place + 1
            );
        }
        let mut query = sql(text).bind(by.tenant).bind(by.from).bind(by.to);
        if let Some(key) = &by.key {
            query = query.bind(&**key);
        }
        if let Some((name, value)) = &by.label {
            query = query.bind(&**name).bind(&**value);
        }
        let Some(row) = self.settled().await?.row(query).await? else { return Ok(Spent::default()) };
        let settled = read_sum(&row, "micros", "rest")?;
        Ok(Spent { settled, expected: read_sum(&row, "expected_micros", "expected_rest")? })
    }

    /// How much of a provider's free credits was used from `from` on, by all tenants.
    pub async fn credit_used(&self, provider: &str, from: Timestamp) -> Result<Usd> {
        let text = format!(
            "SELECT {} FROM ledger WHERE provider = $1 AND began_at >= $2 AND credit > 0",
            sum_of("credit", "micros", "rest")
        );
        let row = self.settled().await?.row(sql(text).bind(provider).bind(from)).await?;
        row.map_or(Ok(Usd::ZERO), |row| read_sum(&row, "micros", "rest"))
    }
}
