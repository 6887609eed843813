//! What things cost: entries of the ledger, and budgets that nobody goes past.
//!
//! A run or sandbox has an [`Account`] from before it is made until after it ended. Opening one keeps its estimated cost back
//! in every budget that it counts for, or refuses; the account is looked at while the thing lives, and keeps more back as it
//! goes on; closing it makes the bill. The entry and its bill are written with the records of the thing itself.

mod account;
mod budgets;
mod during;
mod keeping;
mod metering;
mod opening;
mod prices;
mod report;
mod wallets;

use std::sync::Arc;

use sandstorm_catalog::{Catalog, FeeRules};
use sandstorm_types::{TenantId, Timestamp, Usd};

pub use report::{CostGroup, CostQuery, CostReport};
pub use sandstorm_router::money::AtLimit;

pub(super) use account::{Account, Used};
pub(super) use during::Spending;
pub(super) use metering::Part;
pub(super) use opening::Opening;

/// What the operator decides about money.
#[derive(Debug, Clone)]
pub struct Costs {
    /// Prices, with the operator's own figures. Those of a fleet are the fleet's.
    pub catalog: Arc<Catalog>,
    pub fees: FeeRules,
    /// Whether the free credits that the catalogue tells of are there to be used.
    pub credits: bool,
    pub budgets: Vec<Budget>,
}

impl Default for Costs {
    /// Prices as they are known, nothing added, no limit.
    fn default() -> Self {
        Self {
            catalog: Arc::new(Catalog::embedded().clone()),
            fees: FeeRules::default(),
            credits: false,
            budgets: Vec::new(),
        }
    }
}

/// What may be spent. Each tenant is counted by itself, and so is each value of a label whose value is not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub name: String,
    /// Only this tenant; every one unless given.
    pub tenant: Option<TenantId>,
    /// Only what this key asks for, by its public id.
    pub key: Option<String>,
    /// Only what has this label, by name and perhaps value.
    pub label: Option<(String, Option<String>)>,
    pub amount: Usd,
    pub window: Window,
    pub at_limit: AtLimit,
}

/// How long a budget lasts; by the clock of UTC. What began in a window counts there, however long it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    Hour,
    Day,
    Month,
    Ever,
}

impl Window {
    /// From when to before when the window lasts that a moment lies in.
    pub(super) fn around(self, at: Timestamp) -> (Timestamp, Timestamp) {
        let steps_of = |millis: i64| {
            let from = at.millis().div_euclid(millis) * millis;
            (Timestamp::from_millis(from), Timestamp::from_millis(from.saturating_add(millis)))
        };
        match self {
            Self::Hour => steps_of(3_600_000),
            Self::Day => steps_of(86_400_000),
            Self::Month => {
                let from = super::usage::month_of(at);
                // No month is longer, and no two are shorter.
                let next = from.after(std::time::Duration::from_secs(32 * 86_400));
                (from, super::usage::month_of(next))
            }
            Self::Ever => (Timestamp::from_millis(0), Timestamp::from_millis(i64::MAX)),
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Hour => "an hour",
            Self::Day => "a day",
            Self::Month => "a month",
            Self::Ever => "in all",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_the_calendar() {
        let at: Timestamp = "2028-02-29T23:59:59.999Z".parse().unwrap();
        let around = |window: Window| {
            let (from, to) = window.around(at);
            (from.to_string(), to.to_string())
        };
        let shown = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(around(Window::Hour), shown("2028-02-29T23:00:00.000Z", "2028-03-01T00:00:00.000Z"));
        assert_eq!(around(Window::Day), shown("2028-02-29T00:00:00.000Z", "2028-03-01T00:00:00.000Z"));
        assert_eq!(around(Window::Month), shown("2028-02-01T00:00:00.000Z", "2028-03-01T00:00:00.000Z"));
        let (from, to) = Window::Month.around("2026-12-31T12:00:00.000Z".parse().unwrap());
        assert_eq!(
            (from.to_string(), to.to_string()),
            shown("2026-12-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z")
        );
    }
}
