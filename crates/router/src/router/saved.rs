//! What a router learned, to be kept over a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::Router;
use crate::failover::{Breakers, ConcurrencyLimit, SavedBreaker};
use crate::{Knowledge, Moment, SteadyClock};

/// Changed with the form of anything in it: another one is not read.
const VERSION: u32 = 1;
/// Providers, regions, classes and families are few; a file with more of them is not ours.
const MOST_ROWS: usize = 10_000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    /// By the clock that all moments in it are of.
    at: Moment,
    knowledge: Value,
    breakers: Vec<SavedBreaker>,
    /// How many sandboxes a provider was found to bear.
    limits: BTreeMap<String, u32>,
}

/// Why nothing can be made of what was saved.
#[derive(Debug, Error)]
pub enum NotResumed {
    #[error("it is of version {found}, and {VERSION} is read")]
    Version { found: u64 },
    #[error("it has more in it than a router learns")]
    TooMuch,
    #[error("it cannot be read")]
    Damaged(#[from] serde_json::Error),
}

impl Router {
    /// What it learned so far.
    pub fn save(&self) -> Value {
        let saved = Saved {
            version: VERSION,
            at: self.clock.last(),
            knowledge: self.knowledge.save(),
            breakers: self.breakers.save(),
            limits: self.limits.iter().map(|(provider, limit)| (provider.clone(), limit.limit())).collect(),
        };
        serde_json::to_value(saved).unwrap_or_default()
    }

    /// Goes on from what another one learned and saved `away` ago, which fades by that time like everything else. What is
    /// about providers that are not known any more is left out.
    pub fn resume(
        self,
        saved: Value,
        away: Duration,
        known: impl Fn(&str) -> bool,
    ) -> Result<Self, NotResumed> {
        let found = saved.get("version").and_then(Value::as_u64).unwrap_or(0);
        if found != u64::from(VERSION) {
            return Err(NotResumed::Version { found });
        }
        let Saved { at, knowledge, mut breakers, limits, .. } = serde_json::from_value(saved)?;
        let rows = knowledge.as_array().map_or(0, Vec::len);
        if rows.max(breakers.len()).max(limits.len()) > MOST_ROWS {
            return Err(NotResumed::TooMuch);
        }
        let knowledge = Knowledge::load(self.settings.memory, knowledge, at, &known)?;
        breakers.retain(|breaker| known(&breaker.provider));
        let rules = self.settings.concurrency;
        let limit = |(provider, limit)| (provider, ConcurrencyLimit::resumed(rules, limit));
        let limits = limits.into_iter().filter(|(provider, _)| known(provider)).map(limit).collect();
        let breakers = Breakers::load(breakers);
        Ok(Self { clock: SteadyClock::from(at.after(away)), knowledge, breakers, limits, ..self })
    }
}
