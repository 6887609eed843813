//! The fuses of all budgets, each for its own tenant, label and window.
//!
//! What was spent is read from the ledger when a fuse is first needed, and kept up to date in memory. Where other servers
//! share the ledger it is read again after a while, with what is open elsewhere. A fuse that cannot be read lets nothing pass.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_catalog::CostEstimate;
use sandstorm_provider::{Error, Result};
use sandstorm_router::money::{Blown, During, Reservation, SpendFuse};
use sandstorm_store::{Spent, SpentBy, Store};
use sandstorm_types::{ErrorKind, Labels, Retry, TenantId, Timestamp, Usd};

use super::{Budget, Window};

/// How old what was read may be where others write too.
const FRESH: Duration = Duration::from_secs(2);
/// Fuses that are kept without asking whether anybody needs them.
const MANY: usize = 4096;

/// Which fuse.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FuseKey {
    budget: usize,
    tenant: TenantId,
    /// The value of the label that the budget is by.
    value: Option<String>,
    window: (Timestamp, Timestamp),
}

#[derive(Debug)]
struct Fuse {
    fuse: SpendFuse,
    read_at: Instant,
    /// Accounts of this server that hold a part of it, and what their entries in the ledger say.
    holders: usize,
    estimated: Usd,
}

#[derive(Debug)]
pub(super) struct Budgets {
    rules: Vec<Budget>,
    fuses: Mutex<HashMap<FuseKey, Fuse>>,
}

/// What one account has in one budget.
#[derive(Debug)]
pub(super) struct Share {
    key: FuseKey,
    reservation: Reservation,
    estimated: Usd,
}

impl Budgets {
    pub(super) fn new(rules: Vec<Budget>) -> Self {
        Self { rules, fuses: Mutex::default() }
    }

    /// The budgets that something counts for.
    pub(super) fn of(&self, tenant: TenantId, key: &str, labels: &Labels, at: Timestamp) -> Vec<FuseKey> {
        let counts = |(budget, rule): (usize, &Budget)| {
            if rule.tenant.is_some_and(|only| only != tenant)
                || rule.key.as_ref().is_some_and(|only| only != key)
            {
                return None;
            }
            let value = match &rule.label {
                None => None,
                Some((name, only)) => {
                    let value = labels.get(name)?;
                    if only.as_ref().is_some_and(|only| only != value) {
                        return None;
                    }
                    Some(value.to_owned())
                }
            };
            Some(FuseKey { budget, tenant, value, window: rule.window.around(at) })
        };
        self.rules.iter().enumerate().filter_map(counts).collect()
    }

    /// Sees to it that the fuses are known.
    pub(super) async fn read(&self, store: &Store, keys: &[FuseKey]) -> Result<()> {
        for key in keys {
            let known = self.fuses().get(key).map(|fuse| fuse.read_at);
            if known.is_some_and(|at| !store.is_shared() || at.elapsed() < FRESH) {
                continue;
            }
            let spent = store.spent(&self.spent_by(key)).await.map_err(|error| {
                let message = format!(
                    "the budget `{}` cannot be read, so nothing is begun",
                    self.rules[key.budget].name
                );
                Error::new(ErrorKind::Capacity, message)
                    .with_retry_after(Duration::from_secs(1))
                    .with_source(error)
            })?;
            self.learn(key, spent);
        }
        Ok(())
    }

    fn spent_by(&self, key: &FuseKey) -> SpentBy {
        let rule = &self.rules[key.budget];
        let label = rule.label.as_ref().zip(key.value.as_ref());
        SpentBy {
            tenant: key.tenant,
            key: rule.key.clone(),
            label: label.map(|((name, _), value)| (name.clone(), value.clone())),
            from: key.window.0,
            to: key.window.1,
        }
    }

    fn learn(&self, key: &FuseKey, spent: Spent) {
        let rule = &self.rules[key.budget];
        let mut fuses = self.fuses();
        if fuses.len() >= MANY {
            // Whatever nobody holds a part of can be read again.
            fuses.retain(|_, fuse| fuse.holders > 0);
        }
        let fuse = fuses.entry(key.clone()).or_insert_with(|| Fuse {
            fuse: SpendFuse::new(Some(rule.amount), rule.at_limit),
            read_at: Instant::now(),
            holders: 0,
            estimated: Usd::ZERO,
        });
        let elsewhere = spent.expected.saturating_sub(fuse.estimated);
        fuse.fuse.set_spent(spent.settled + elsewhere);
        fuse.read_at = Instant::now();
    }

    /// Keeps an estimate back in all of the budgets, or in none.
    pub(super) fn reserve(&self, keys: Vec<FuseKey>, estimate: &CostEstimate) -> Result<Vec<Share>> {
        let mut fuses = self.fuses();
        let mut shares: Vec<Share> = Vec::with_capacity(keys.len());
        let mut refused = None;
        for key in keys {
            let Some(fuse) = fuses.get_mut(&key) else {
                refused = Some(Error::new(ErrorKind::Capacity, "a budget was forgotten: try again"));
                break;
            };
            match fuse.fuse.before_create(estimate) {
                Ok(reservation) => {
                    fuse.holders += 1;
                    fuse.estimated += estimate.expected;
                    shares.push(Share { key, reservation, estimated: estimate.expected });
                }
                Err(blown) => {
                    refused = Some(self.refusal(&key, blown));
                    break;
                }
            }
        }
        let Some(refused) = refused else { return Ok(shares) };
        shares.into_iter().for_each(|share| settle(&mut fuses, share, Usd::ZERO));
        Err(refused)
    }

    /// The same for what lives already, whether there is money or not.
    pub(super) fn adopt(&self, keys: Vec<FuseKey>, estimated: Usd, so_far: Usd) -> Vec<Share> {
        let mut fuses = self.fuses();
        let adopt = |key: FuseKey| {
            let fuse = fuses.get_mut(&key)?;
            fuse.holders += 1;
            fuse.estimated += estimated;
            let reservation = fuse.fuse.adopt(estimated.max(so_far));
            Some(Share { key, reservation, estimated })
        };
        keys.into_iter().filter_map(adopt).collect()
    }

    /// While it lives. The budget whose end is nearest decides.
    pub(super) fn during(
        &self,
        shares: &mut [Share],
        so_far: Usd,
        per_second: Usd,
    ) -> (During, Option<String>) {
        let mut fuses = self.fuses();
        let mut soonest: Option<Duration> = None;
        for share in shares {
            let Some(fuse) = fuses.get_mut(&share.key) else { continue };
            match fuse.fuse.during(&mut share.reservation, so_far, per_second) {
                During::Continue { ask_again } => {
                    soonest = [soonest, ask_again].into_iter().flatten().min();
                }
                end @ (During::Stop | During::Pause) => return (end, Some(self.words(&share.key))),
            }
        }
        (During::Continue { ask_again: soonest }, None)
    }

    pub(super) fn settle(&self, shares: Vec<Share>, actual: Usd) {
        let mut fuses = self.fuses();
        shares.into_iter().for_each(|share| settle(&mut fuses, share, actual));
    }

    /// Something that is over cost more or less than it was settled with. A fuse that is not known is read when it is needed.
    pub(super) fn correct(&self, keys: &[FuseKey], by: Usd) {
        let mut fuses = self.fuses();
        for key in keys {
            if let Some(fuse) = fuses.get_mut(key) {
                let spent = (fuse.fuse.spent() + by).max(Usd::ZERO);
                fuse.fuse.set_spent(spent);
            }
        }
    }

    fn refusal(&self, key: &FuseKey, blown: Blown) -> Error {
        Error::new(ErrorKind::Billing, format!("{} is used up: {blown}", self.words(key)))
            .with_retry(Retry::Never)
    }

    /// Which budget it is, for people.
    fn words(&self, key: &FuseKey) -> String {
        let Budget { name, amount, window, .. } = &self.rules[key.budget];
        let of = match (&self.rules[key.budget].label, &key.value) {
            (Some((label, _)), Some(value)) => format!(" for {label}={value}"),
            _ => String::new(),
        };
        match window {
            Window::Ever => format!("the budget `{name}`{of} of {amount} USD"),
            window => format!("the budget `{name}`{of} of {amount} USD {}", window.words()),
        }
    }

    fn fuses(&self) -> MutexGuard<'_, HashMap<FuseKey, Fuse>> {
        self.fuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn settle(fuses: &mut HashMap<FuseKey, Fuse>, share: Share, actual: Usd) {
    let Some(fuse) = fuses.get_mut(&share.key) else { return };
    fuse.holders = fuse.holders.saturating_sub(1);
    fuse.estimated = fuse.estimated.saturating_sub(share.estimated);
    fuse.fuse.settle(share.reservation, actual);
}
