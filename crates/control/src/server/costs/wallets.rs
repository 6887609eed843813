//! What is left of providers' free credits.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sandstorm_catalog::{Credit, Credits};
use sandstorm_store::{Result, Store};
use sandstorm_types::{Timestamp, Usd};

use super::super::usage::month_of;
use super::prices::Prices;

/// One for each provider that gives any.
#[derive(Debug, Default)]
pub(super) struct Wallets(Mutex<HashMap<String, Wallet>>);

#[derive(Debug)]
struct Wallet {
    credit: Credit,
    /// What it is filled with, and the month for which it was, where it is filled every month.
    monthly: Option<(Usd, Timestamp)>,
}

impl Wallets {
    /// Reads from the ledger what is left. A provider that gives credits every month is not asked about those that it gave
    /// once.
    pub(super) async fn fill(&self, store: &Store, prices: &Prices, now: Timestamp) -> Result<()> {
        for (place, entry) in prices.places() {
            let Credits { once, monthly } = entry.credits();
            let (given, from) = match (monthly, once) {
                (Some(monthly), _) => (monthly, month_of(now)),
                (None, Some(once)) => (once, Timestamp::from_millis(0)),
                (None, None) => continue,
            };
            let used = store.credit_used(place, from).await?;
            let wallet = Wallet {
                credit: Credit::new(given.saturating_sub(used)),
                monthly: monthly.map(|given| (given, from)),
            };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place.to_owned(), wallet);
        }
        Ok(())
    }

    /// Hands the credit of a provider to `pay`, which may use it up.
    pub(super) fn with<T>(&self, provider: &str, now: Timestamp, pay: impl FnOnce(&mut Credit) -> T) -> T {
        let mut wallets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(wallet) = wallets.get_mut(provider) else { return pay(&mut Credit::default()) };
        if let Some((given, month)) = &mut wallet.monthly
            && *month != month_of(now)
        {
            *month = month_of(now);
            wallet.credit = Credit::new(*given);
        }
        pay(&mut wallet.credit)
    }

    /// The same without using anything up.
    pub(super) fn look(&self, provider: &str, now: Timestamp) -> Credit {
        self.with(provider, now, |credit| *credit)
    }
}
