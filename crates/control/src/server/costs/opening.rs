//! Before a run or sandbox is made: what it will cost, and whether there is money for it.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_catalog::{Demand, Span};
use sandstorm_provider::{Error, Result};
use sandstorm_router::money::{AtLimit, SpendFuse};
use sandstorm_store::{EntryKind, LedgerEntry, Store};
use sandstorm_types::{ErrorKind, Labels, Limits, Retry, Timestamp, Usd};

use super::super::Caller;
use super::prices::Estimates;
use super::{Account, Spending};

/// Something that is about to be made.
#[derive(Debug)]
pub(in super::super) struct Opening<'a> {
    pub(in super::super) kind: EntryKind,
    pub(in super::super) object: String,
    pub(in super::super) labels: Labels,
    pub(in super::super) limits: &'a Limits,
    /// How long it can live.
    pub(in super::super) longest: Duration,
    pub(in super::super) max_cost: Option<Usd>,
    pub(in super::super) at: Timestamp,
}

/// What is kept back to begin with: what most take. More is kept back while it lives.
const RUN: Duration = Duration::from_secs(5);
const SANDBOX: Duration = Duration::from_secs(10);

impl Spending {
    /// Keeps back what it is expected to cost. Refused: there is no money for it, or nobody can tell.
    pub(in super::super) async fn open(
        self: &Arc<Self>,
        store: &Store,
        caller: &Caller,
        opening: Opening<'_>,
    ) -> Result<Arc<Account>> {
        let Opening { kind, object, labels, limits, longest, max_cost, at } = opening;
        let usual = if kind == EntryKind::Run { RUN } else { SANDBOX };
        let span = Span { low: Duration::ZERO, expected: usual.min(longest), high: longest };
        let estimate = self.prices().estimate(&Demand::of(limits), span);
        let fuses = self.budgets().of(caller.tenant, &caller.key, &labels, at);
        let own = max_cost.map(|most| within(most, estimate.as_ref())).transpose()?;
        let shares = match (&estimate, fuses.is_empty()) {
            (_, true) => Vec::new(),
            (Some(estimate), false) => {
                // On the heap: few have a budget that was not read yet.
                Box::pin(self.budgets().read(store, &fuses)).await?;
                self.budgets().reserve(fuses, &estimate.dearest)?
            }
            (None, false) => return Err(without_a_price()),
        };
        let entry = LedgerEntry {
            object,
            part: 0,
            kind,
            key: caller.key.clone(),
            labels,
            provider: self.provider.clone(),
            region: None,
            cpu_milli: u64::from(limits.cpus.milli()),
            memory_bytes: limits.memory.as_u64(),
            began_at: at,
            estimate: estimate.unwrap_or_default().dearest.expected,
            max_cost,
            bill: None,
        };
        let account = Arc::new(Account::new(caller.tenant, entry, Arc::clone(self), shares, own));
        if account.is_limited() && !self.prices().are_nothing() {
            self.look_after(&account, span.expected / 2);
        }
        Ok(account)
    }
}

fn within(
    most: Usd,
    estimate: Option<&Estimates>,
) -> Result<(SpendFuse, sandstorm_router::money::Reservation)> {
    let estimate = estimate.ok_or_else(without_a_price)?;
    let mut fuse = SpendFuse::new(Some(most), AtLimit::Stop);
    // Whoever chooses the place leaves out what would be too dear.
    let reservation = fuse.before_create(&estimate.cheapest).map_err(|blown| {
        let message = format!(
            "`max_cost` is too little: about {} USD would be needed, and {most} are allowed",
            blown.wanted
        );
        Error::new(ErrorKind::Billing, message).with_retry(Retry::Never)
    })?;
    Ok((fuse, reservation))
}

fn without_a_price() -> Error {
    let message = "there is a budget, and no provider here has a price: nobody can tell whether it is kept";
    Error::new(ErrorKind::Billing, message).with_retry(Retry::Never)
}
