//! While runs and sandboxes live: who has to be looked at when, and what becomes of who has no money left.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use sandstorm_catalog::Credit;
use sandstorm_fleet::Fleet;
use sandstorm_provider::{Error, OpContext, ProviderInfo, Result, Sandbox};
use sandstorm_router::money::During;
use sandstorm_store::{
    Audit, Decision, LedgerBill, LedgerEntry, OpenEntry, SandboxRow, Store, TransitionRow,
};
use sandstorm_types::{ErrorKind, Retry, SandboxId, State, Timestamp, Transition, Usd};
use tokio::sync::Notify;

use super::super::Inner;
use super::super::failure::stored;
use super::Costs;
use super::account::{Account, Tried};
use super::budgets::Budgets;
use super::prices::Prices;
use super::wallets::Wallets;

/// After an end that could not be brought about.
const AGAIN: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_secs(60);

/// Everything about money that this server knows.
#[derive(Debug)]
pub(in super::super) struct Spending {
    prices: Prices,
    /// Set where there is a choice of places.
    fleet: Option<Arc<Fleet>>,
    budgets: Budgets,
    wallets: Wallets,
    credits: bool,
    /// Where things are made unless somebody says otherwise.
    pub(super) provider: String,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Account>>>,
    looks: Mutex<BTreeMap<(Instant, u64), Weak<Account>>>,
    numbers: AtomicU64,
    changed: Notify,
    /// Shared by everything whose provider has not said yet what it counted.
    pub(super) unsettled: Arc<()>,
}

impl Spending {
    pub(in super::super) fn new(costs: &Costs, provider: &str, fleet: Option<Arc<Fleet>>) -> Arc<Self> {
        Arc::new(Self {
            prices: Prices::new(costs, provider, fleet.as_deref()),
            fleet,
            budgets: Budgets::new(costs.budgets.clone()),
            wallets: Wallets::default(),
            credits: costs.credits,
            provider: provider.to_owned(),
            sandboxes: Mutex::default(),
            looks: Mutex::default(),
            numbers: AtomicU64::new(0),
            changed: Notify::new(),
            unsettled: Arc::default(),
        })
    }

    pub(super) fn prices(&self) -> &Prices {
        &self.prices
    }

    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    pub(super) fn credit(&self, provider: &str, now: Timestamp) -> Credit {
        self.wallets.look(provider, now)
    }

    pub(super) fn pay<T>(&self, provider: &str, now: Timestamp, pay: impl FnOnce(&mut Credit) -> T) -> T {
        self.wallets.with(provider, now, pay)
    }

    /// Has an account looked at.
    pub(super) fn look_after(&self, account: &Arc<Account>, span: Duration) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let at = Instant::now() + span;
        self.looks().insert((at, number), Arc::downgrade(account));
        self.changed.notify_one();
    }

    /// The account of a sandbox whose beginning is on record.
    pub(in super::super) fn keep(&self, id: SandboxId, account: Arc<Account>) {
        self.sandboxes().insert(id, account);
    }

    pub(in super::super) fn of_sandbox(&self, id: SandboxId) -> Option<Arc<Account>> {
        self.sandboxes().get(&id).cloned()
    }

    /// A sandbox was made somewhere. Gives what is to be recorded of attempts that failed.
    pub(in super::super) fn placed(&self, made: &Sandbox) -> Vec<Tried> {
        let (Some(account), Some(placement)) = (self.of_sandbox(made.id), &made.placement) else {
            return Vec::new();
        };
        let region = placement.info.region.clone().or_else(|| made.region.clone());
        account.placed(&placement.info.name, region, &placement.attempts)
    }

    /// What is to be recorded of the attempts of a sandbox that came about nowhere.
    pub(in super::super) fn failed_attempts(&self, id: SandboxId) -> Vec<LedgerEntry> {
        let failed = self.of_sandbox(id).map(|account| account.failed()).unwrap_or_default();
        failed.into_iter().map(|tried| tried.entry).collect()
    }

    /// Whether what is used there is measured by ourselves.
    pub(super) fn is_here(&self, provider: &str) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.is_here(provider))
    }

    /// Gives back what was taken from the credit of a provider.
    pub(super) fn give_back(&self, provider: &str, now: Timestamp, amount: Usd) {
        self.wallets.with(provider, now, |credit| *credit = Credit::new(credit.left() + amount));
    }

    /// What was measured of a sandbox.
    pub(in super::super) fn measured(&self, id: SandboxId, cpu: Duration, peak_memory: u64) {
        if let Some(account) = self.of_sandbox(id) {
            account.sees(cpu, peak_memory);
        }
    }

    /// The bill of a sandbox that is about to end.
    pub(in super::super) fn bill(&self, row: &SandboxRow) -> Option<LedgerBill> {
        self.of_sandbox(row.id).map(|account| account.bill(row.state != State::Creating))
    }

    /// A sandbox changed its state.
    pub(in super::super) fn saw(&self, row: &SandboxRow) {
        if row.state.is_final() {
            let account = self.sandboxes().remove(&row.id);
            if let Some(account) = account {
                // As it is on record: the step that ended it took the same.
                account.settle(account.bill(true).total());
            }
            return;
        }
        let Some(account) = self.of_sandbox(row.id) else { return };
        match row.state {
            State::Paused => account.pauses(),
            State::Ready if !account.is_awake() => {
                account.goes_on();
                if account.is_limited() && !self.prices.are_nothing() {
                    self.look_after(&account, Duration::ZERO);
                }
            }
            _ => {}
        }
    }

    /// `Billing` unless there is money for a paused sandbox to go on.
    pub(in super::super) fn may_go_on(&self, id: SandboxId) -> Result<()> {
        let Some(account) = self.of_sandbox(id).filter(|account| account.is_limited()) else { return Ok(()) };
        match account.look() {
            (During::Continue { .. }, _) => Ok(()),
            (_, which) => {
                let message = format!("{} is used up", which.unwrap_or_default());
                Err(Error::new(ErrorKind::Billing, message).with_retry(Retry::Never))
            }
        }
    }

    /// Reads what an earlier server left: credits that were used.
    pub(in super::super) async fn begin(&self, store: &Store) -> Result<()> {
        if self.credits {
            stored(self.wallets.fill(store, &self.prices, Timestamp::now()).await)?;
        }
        Ok(())
    }

    /// Takes over the account of a sandbox that an earlier server made.
    pub(in super::super) async fn adopt(
        self: &Arc<Self>,
        store: &Store,
        row: &SandboxRow,
        holder: &ProviderInfo,
        open: OpenEntry,
        life: &[TransitionRow],
    ) -> Result<()> {
        let OpenEntry { tenant, entry } = open;
        let fuses = self.budgets.of(tenant, &entry.key, &entry.labels, entry.began_at);
        self.budgets.read(store, &fuses).await?;
        let (awake, is_awake) = awake_in(life, Timestamp::now());
        let shares = self.budgets.adopt(fuses, entry.estimate, entry.estimate);
        let own = entry.max_cost.map(|most| {
            let mut fuse =
                sandstorm_router::money::SpendFuse::new(Some(most), sandstorm_router::money::AtLimit::Stop);
            let reservation = fuse.adopt(entry.estimate.min(most));
            (fuse, reservation)
        });
        let account = Account::new(tenant, entry, Arc::clone(self), shares, own).with_time(awake, is_awake);
        let account = Arc::new(account);
        account.placed(&holder.name, holder.region.clone(), &[]);
        if account.is_limited() && is_awake && !self.prices.are_nothing() {
            self.look_after(&account, Duration::ZERO);
        }
        self.keep(row.id, account);
        Ok(())
    }

    /// The account whose moment has come, or how long to wait.
    fn next(&self) -> Result<Weak<Account>, Duration> {
        let mut looks = self.looks();
        let Some(first) = looks.first_entry() else { return Err(NAP) };
        let wait = first.key().0.saturating_duration_since(Instant::now());
        if wait.is_zero() { Ok(first.remove()) } else { Err(wait) }
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Account>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looks(&self) -> MutexGuard<'_, BTreeMap<(Instant, u64), Weak<Account>>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a sandbox was not paused, and whether it is now.
fn awake_in(life: &[TransitionRow], now: Timestamp) -> (Duration, bool) {
    let (mut awake, mut since) = (Duration::ZERO, life.first().map(|first| first.at));
    for step in life {
        match (&step.to, since) {
            (State::Paused, Some(from)) => {
                awake += step.at.since(from);
                since = None;
            }
            (State::Ready, None) => since = Some(step.at),
            _ => {}
        }
    }
    (awake + since.map_or(Duration::ZERO, |from| now.since(from)), since.is_some())
}

impl Inner {
    /// Looks at everything that has a limit, each at its time.
    pub(in super::super) async fn watch_spending(self: Arc<Self>) {
        loop {
            let account = match self.spending.next() {
                Ok(account) => account,
                Err(wait) => {
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.spending.changed.notified() => {}
                    }
                    continue;
                }
            };
            let Some(account) = account.upgrade() else { continue };
            if !account.is_awake() || !account.is_limited() {
                continue;
            }
            match account.look() {
                (During::Continue { ask_again }, _) => {
                    if let Some(span) = ask_again {
                        self.spending.look_after(&account, span);
                    }
                }
                (end, which) => self.out_of_money(&account, end == During::Pause, which.unwrap_or_default()),
            }
        }
    }

    /// Ends or pauses what has no money left.
    fn out_of_money(self: &Arc<Self>, account: &Arc<Account>, pause: bool, which: String) {
        let (tenant, object) = (account.tenant, account.entry().object.clone());
        tracing::info!(%tenant, %object, which, "a budget is used up");
        if account.stop(&which) {
            return;
        }
        let Ok(id) = object.parse::<SandboxId>() else { return };
        let (inner, account) = (Arc::clone(self), Arc::clone(account));
        self.tasks.finish("end of a budget", async move {
            let action = if pause { "sandbox.pause" } else { "sandbox.stop" };
            let audit = Audit {
                tenant,
                principal: "<budget>".to_owned(),
                action: action.to_owned(),
                object: id.to_string(),
                decision: Decision::Allowed,
                request_id: String::new(),
                detail: Some(serde_json::json!({ "budget": which })),
            };
            let ended = if pause && inner.pauses(tenant, id) {
                let cx = OpContext::new(tenant);
                inner.transition(&cx, id, Transition::Pause, Some(&audit)).await.map(drop)
            } else {
                inner.stop_for_money(tenant, id, &which, &audit).await
            };
            if let Err(error) = ended {
                tracing::warn!(sandbox = %id, %error, "a sandbox without money could not be ended and will be tried again");
                inner.spending.look_after(&account, AGAIN);
            }
        });
    }

    /// Whether whoever holds a sandbox can pause it.
    fn pauses(&self, tenant: sandstorm_types::TenantId, id: SandboxId) -> bool {
        self.sandboxes.get(tenant, id).is_some_and(|living| self.can(&living.row()).pause)
    }

    async fn stop_for_money(
        self: &Arc<Self>,
        tenant: sandstorm_types::TenantId,
        id: SandboxId,
        which: &str,
        audit: &Audit,
    ) -> Result<()> {
        stored(self.store.record_audit(audit).await)?;
        if let Some(living) = self.sandboxes.get(tenant, id) {
            // What it used last is on its bill too.
            self.sample(&living).await;
        }
        self.fail_sandbox(tenant, id, &format!("stopped: {which} is used up")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_it_was_paused_is_not_counted() {
        let sandbox = SandboxId::random();
        let step = |at: i64, to: State| TransitionRow {
            sandbox,
            revision: at,
            from: None,
            to,
            at: Timestamp::from_millis(at),
        };
        let mut life = vec![step(100, State::Creating), step(200, State::Ready), step(900, State::Pausing)];
        let now = Timestamp::from_millis(10_000);
        assert_eq!(awake_in(&life, now), (Duration::from_millis(9900), true));
        life.push(step(1000, State::Paused));
        assert_eq!(awake_in(&life, now), (Duration::from_millis(900), false));
        life.extend([step(5000, State::Resuming), step(6000, State::Ready)]);
        assert_eq!(awake_in(&life, now), (Duration::from_millis(4900), true));
        assert_eq!(awake_in(&[], now), (Duration::ZERO, false));
    }
}
