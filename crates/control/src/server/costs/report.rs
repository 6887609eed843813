//! What was spent, by whatever somebody wants to know it by.

use data_encoding::BASE64URL_NOPAD;
use sandstorm_provider::Result;
use sandstorm_store::{GroupBy, LedgerQuery, LedgerSum, Store};
use sandstorm_types::{TenantId, Timestamp};

use super::super::failure::{invalid, stored};
use super::super::sandboxes::{LARGEST_PAGE, PAGE};
use super::super::usage::month_of;
use super::super::{Caller, Control, Scope};

/// What to sum up.
#[derive(Debug, Clone, Default)]
pub struct CostQuery {
    /// From the first of the month unless given.
    pub from: Option<Timestamp>,
    /// Until now unless given; not included.
    pub to: Option<Timestamp>,
    pub group_by: Vec<GroupBy>,
    pub limit: Option<u32>,
    /// From an earlier page.
    pub cursor: Option<String>,
}

/// Sums, in the order of their groups.
#[derive(Debug, Clone)]
pub struct CostReport {
    pub from: Timestamp,
    pub to: Timestamp,
    pub group_by: Vec<GroupBy>,
    pub groups: Vec<CostGroup>,
    /// Of everything, on whichever page it is.
    pub total: LedgerSum,
    pub next_cursor: Option<String>,
}

/// One sum.
#[derive(Debug, Clone)]
pub struct CostGroup {
    /// The values of what it is grouped by: days and hours as people write them.
    pub values: Vec<String>,
    pub sum: LedgerSum,
}

impl Control {
    /// What the caller's tenant spent.
    pub async fn costs(&self, caller: &Caller, query: CostQuery) -> Result<CostReport> {
        caller.require_key()?;
        self.report(Some(caller.tenant), query).await
    }

    /// What everybody spent, or one tenant; for operators.
    pub async fn costs_of_all(
        &self,
        caller: &Caller,
        tenant: Option<TenantId>,
        query: CostQuery,
    ) -> Result<CostReport> {
        caller.require(Scope::Admin)?;
        self.report(tenant, query).await
    }

    async fn report(&self, tenant: Option<TenantId>, query: CostQuery) -> Result<CostReport> {
        let now = Timestamp::now();
        let from = query.from.unwrap_or_else(|| month_of(now));
        let to = query.to.unwrap_or_else(|| now.after(std::time::Duration::from_millis(1)));
        if to < from {
            return Err(invalid("the end of the time is before its beginning"));
        }
        if query.group_by.len() > Store::MOST_GROUPS {
            return Err(invalid("sums can be made by eight things at most"));
        }
        let limit = query.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
        let after =
            query.cursor.as_deref().map(|cursor| place_of(cursor, query.group_by.len())).transpose()?;
        let whole = LedgerQuery::of(tenant, from, to);
        let wanted =
            LedgerQuery { group_by: query.group_by.clone(), after, limit: limit + 1, ..whole.clone() };
        let mut sums = stored(self.0.store.ledger_sums(&wanted).await)?;
        let more = sums.len() as u64 > u64::from(limit);
        sums.truncate(limit as usize);
        let next_cursor = sums.last().filter(|_| more).and_then(|sum| serde_json::to_vec(&sum.place).ok());
        let total = stored(self.0.store.ledger_sums(&whole).await)?.into_iter().next();
        let group = |sum: LedgerSum| CostGroup {
            values: sum.place.iter().zip(&query.group_by).map(|(value, by)| by.shown(value)).collect(),
            sum,
        };
        Ok(CostReport {
            from,
            to,
            groups: sums.into_iter().map(group).collect(),
            group_by: query.group_by,
            total: total.unwrap_or_default(),
            next_cursor: next_cursor.map(|place| BASE64URL_NOPAD.encode(&place)),
        })
    }
}

/// Where an earlier page ended. It only says where to go on among what the caller may see anyway, so it needs no mark.
fn place_of(cursor: &str, groups: usize) -> Result<Vec<String>> {
    let wrong = || invalid("the cursor is not one of this list");
    let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).map_err(|_| wrong())?;
    let place: Vec<String> = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    let is_good = place.len() == groups && groups > 0 && place.iter().all(|value| !value.contains('\0'));
    if is_good { Ok(place) } else { Err(wrong()) }
}
