//! What providers elsewhere say that things used, which is what they ask money for.
//!
//! A bill is made out when a thing ends, by what was measured from here, and is marked as such. Once everything of it is gone
//! its provider is asked what it counted, and the bill is made of that. Where nobody tells, the mark stays.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_fleet::Fleet;
use sandstorm_provider::{Metered, OpContext};
use sandstorm_store::{LedgerBill, PartBill};
use sandstorm_types::{SandboxId, Timestamp};

use super::super::Inner;
use super::account::{Account, Tried, Used};

/// How long after the end, and after each time that nobody could tell, a provider is asked. What it takes to remove
/// something from a provider that is hard to reach fits in between.
const ASKED: [Duration; 9] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];
/// How long it has for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// More things than these are not waited for at once; the bills of the others keep their mark.
const MOST_WAITING: usize = 10_000;
/// By how much a provider may count more than went by here.
const SLACK: Duration = Duration::from_secs(1);

/// A part of a thing that is over, billed by what was measured from here.
#[derive(Debug, Clone)]
pub(in super::super) struct Part {
    number: u32,
    sandbox: SandboxId,
    bill: LedgerBill,
}

impl Part {
    /// The thing itself, which was there under this id.
    pub(in super::super) fn own(sandbox: SandboxId, bill: &LedgerBill) -> Option<Self> {
        let bill = Some(bill).filter(|bill| !bill.metered)?.clone();
        Some(Self { number: 0, sandbox, bill })
    }

    pub(in super::super) fn attempts(tried: &[Tried]) -> impl Iterator<Item = Self> + '_ {
        tried.iter().filter_map(|Tried { entry, sandbox }| {
            let bill = entry.bill.as_ref().filter(|bill| !bill.metered)?.clone();
            Some(Self { number: entry.part, sandbox: *sandbox, bill })
        })
    }
}

impl Account {
    /// Everything of a sandbox whose provider has not said yet what it counted.
    pub(in super::super) fn unsettled(&self, sandbox: SandboxId) -> Vec<Part> {
        let own = self.made_out().and_then(|bill| Part::own(sandbox, &bill));
        own.into_iter().chain(Part::attempts(&self.failed())).collect()
    }

    /// The bill by what its provider counted. `None`: that cannot be.
    fn billed_by(&self, part: &Part, counted: &[Metered]) -> Option<PartBill> {
        let Part { number, bill: before, .. } = part;
        let now = Timestamp::now();
        if counted.is_empty() && *number == 0 {
            return None;
        }
        let most = before.ended_at.since(self.entry().began_at) + SLACK;
        if !self.is_possible(counted, most) {
            tracing::warn!(
                object = self.entry().object,
                provider = before.provider,
                ?counted,
                "a provider counts more than can be"
            );
            return None;
        }
        self.spending.give_back(&before.provider, now, before.credit);
        let used: Vec<Used> = counted
            .iter()
            .map(|counted| Used {
                wall: counted.wall,
                cpu: counted.cpu,
                peak_memory: counted.peak_memory.as_u64(),
            })
            .collect();
        let after = self.bill_for(&before.provider, before.region.clone(), &used, true, now);
        let entry = self.entry();
        let keys = self.spending.budgets().of(self.tenant, &entry.key, &entry.labels, entry.began_at);
        self.spending.budgets().correct(&keys, after.total() - before.total());
        Some(PartBill { part: *number, bill: (!counted.is_empty()).then_some(after) })
    }

    /// What a provider says is hostile like everything else that it says. What it says of several is bounded together: they are
    /// attempts at one thing, one after the other.
    fn is_possible(&self, counted: &[Metered], most: Duration) -> bool {
        let demand = self.demand();
        let cpus = demand.cpus.milli().div_ceil(1000).max(1);
        let sum = |of: fn(&Metered) -> Duration| {
            counted.iter().map(of).fold(Duration::ZERO, Duration::saturating_add)
        };
        let memory = demand.memory.as_u64().saturating_mul(2);
        sum(|counted| counted.wall) <= most
            && sum(|counted| counted.cpu) <= most.saturating_mul(cpus)
            && counted.iter().all(|counted| counted.peak_memory.as_u64() <= memory)
    }
}

impl Inner {
    /// Asks providers what they counted for what is over, until they say it, and puts that in the ledger. Nobody waits for it.
    pub(in super::super) fn settle_costs(self: &Arc<Self>, account: &Arc<Account>, parts: Vec<Part>) {
        let Some(fleet) = self.runner.fleet.clone().filter(|_| !parts.is_empty()) else { return };
        // Each that waits has a share in this.
        let waiting = Arc::clone(&self.spending.unsettled);
        if Arc::strong_count(&waiting) > MOST_WAITING {
            tracing::warn!(
                object = account.entry().object,
                "its bill stays as it was measured from here: too many wait"
            );
            return;
        }
        let (inner, account) = (Arc::clone(self), Arc::clone(account));
        self.tasks.start("settle costs", async move {
            inner.ask_and_settle(&fleet, &account, parts).await;
            drop(waiting);
        });
    }

    async fn ask_and_settle(&self, fleet: &Fleet, account: &Account, mut parts: Vec<Part>) {
        let (tenant, entry) = (account.tenant, account.entry());
        let mut told = Vec::new();
        for pause in ASKED {
            tokio::time::sleep(pause).await;
            let mut left = Vec::new();
            for part in parts {
                let cx = OpContext::new(tenant).with_timeout(PATIENCE);
                match fleet.metered_at(&cx, &part.bill.provider, &part.sandbox).await {
                    Ok(Some(counted)) => told.extend(account.billed_by(&part, &counted)),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(object = entry.object, %error, "nobody can tell yet what was counted");
                        left.push(part);
                    }
                }
            }
            if !told.is_empty() {
                match self.store.settle_bills(tenant, entry.began_at, &entry.object, &told).await {
                    Ok(()) => told.clear(),
                    Err(error) => tracing::warn!(object = entry.object, %error, "a bill is stored later"),
                }
            }
            if left.is_empty() && told.is_empty() {
                return;
            }
            parts = left;
        }
        tracing::warn!(object = entry.object, "its bill stays as it was measured from here");
    }
}
