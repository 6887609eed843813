//! Circuit breakers: who failed too often is not asked for a while, and then by few.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ErrorFamily;
use crate::{Health, Moment};

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRules {
    /// Opens after so many failures in a row.
    pub failures: u32,
    /// Opened for the first time it stays so for this long, each further time for twice as long.
    pub open: Duration,
    /// But never longer.
    pub longest: Duration,
    /// So many at once while it is half open.
    pub probes: u32,
    /// So many successes close it again.
    pub successes: u32,
}

impl BreakerRules {
    /// What suits a family: waiting heals a full place, not a wrong key.
    pub const fn of(family: ErrorFamily) -> Self {
        let seconds = Duration::from_secs;
        let (failures, open, longest) = match family {
            ErrorFamily::Auth | ErrorFamily::Billing => (1, seconds(60), seconds(1800)),
            ErrorFamily::Quota => (1, seconds(10), seconds(300)),
            ErrorFamily::Capacity => (3, seconds(5), seconds(60)),
            ErrorFamily::Timeout | ErrorFamily::Failure | ErrorFamily::Lost => {
                (3, seconds(15), seconds(1800))
            }
        };
        Self { failures, open, longest, probes: 1, successes: 2 }
    }
}

/// What a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open {
        retry_in: Duration,
    },
    /// `free`: how many more may try.
    HalfOpen {
        free: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        since: Moment,
        span: Duration,
    },
    /// `asked`: when the last probe began. One that never reports back is given up after the time that it was open for.
    HalfOpen {
        probing: u32,
        succeeded: u32,
        asked: Moment,
        span: Duration,
    },
}

/// Successes after which a trip is forgotten.
const FORGIVEN: u32 = 10;

/// The breaker of one provider and one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    rules: BreakerRules,
    state: State,
    /// How often it opened, one after the other.
    trips: u32,
    calm: u32,
}

impl Breaker {
    pub fn new(rules: BreakerRules) -> Self {
        Self { rules, state: State::Closed { failures: 0 }, trips: 0, calm: 0 }
    }

    pub fn state(&self, now: Moment) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { since, span } => match span.saturating_sub(now.since(since)) {
                Duration::ZERO => BreakerState::HalfOpen { free: self.rules.probes },
                retry_in => BreakerState::Open { retry_in },
            },
            State::HalfOpen { asked, span, .. } if now.since(asked) > span => {
                BreakerState::HalfOpen { free: self.rules.probes }
            }
            State::HalfOpen { probing, .. } => {
                BreakerState::HalfOpen { free: self.rules.probes.saturating_sub(probing) }
            }
        }
    }

    /// An attempt begins; `false`: it must not.
    pub fn begin(&mut self, now: Moment) -> bool {
        match (self.state(now), self.state) {
            (BreakerState::Closed, _) => true,
            (BreakerState::Open { .. } | BreakerState::HalfOpen { free: 0 }, _) => false,
            (BreakerState::HalfOpen { .. }, State::HalfOpen { probing, succeeded, asked, span }) => {
                let probing = if now.since(asked) > span { 1 } else { probing + 1 };
                self.state = State::HalfOpen { probing, succeeded, asked: now, span };
                true
            }
            (BreakerState::HalfOpen { .. }, State::Open { span, .. }) => {
                self.state = State::HalfOpen { probing: 1, succeeded: 0, asked: now, span };
                true
            }
            (BreakerState::HalfOpen { .. }, State::Closed { .. }) => true,
        }
    }

    pub fn succeeded(&mut self) {
        match &mut self.state {
            State::Closed { failures } => {
                *failures = 0;
                self.calm = self.calm.saturating_add(1);
                if self.calm >= FORGIVEN {
                    self.trips = 0;
                }
            }
            // Begun before it opened: late, and no news.
            State::Open { .. } => {}
            State::HalfOpen { probing, succeeded, .. } => {
                *probing = probing.saturating_sub(1);
                *succeeded += 1;
                if *succeeded >= self.rules.successes {
                    self.state = State::Closed { failures: 0 };
                    self.calm = 0;
                }
            }
        }
    }

    pub fn failed(&mut self, now: Moment) {
        match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                if *failures >= self.rules.failures {
                    self.open(now);
                }
            }
            State::Open { .. } => {}
            State::HalfOpen { .. } => self.open(now),
        }
    }

    /// An attempt ended that says nothing: its caller went away.
    pub fn abandoned(&mut self) {
        if let State::HalfOpen { probing, .. } = &mut self.state {
            *probing = probing.saturating_sub(1);
        }
    }

    fn open(&mut self, now: Moment) {
        let span = self.rules.open.saturating_mul(1 << self.trips.min(16)).min(self.rules.longest);
        self.trips = self.trips.saturating_add(1);
        self.calm = 0;
        self.state = State::Open { since: now, span };
    }
}

/// A breaker as it is kept over a restart: its rules are the program's.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedBreaker {
    pub(crate) provider: String,
    family: ErrorFamily,
    state: State,
    trips: u32,
    calm: u32,
}

/// The breakers of all providers. One that never failed has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Breakers {
    by_provider: BTreeMap<String, BTreeMap<ErrorFamily, Breaker>>,
}

impl Breakers {
    /// The worst that any family says.
    pub fn health(&self, provider: &str, now: Moment) -> Health {
        let mut worst = Health::Up;
        for (&family, breaker) in self.by_provider.get(provider).into_iter().flatten() {
            worst = match (breaker.state(now), worst) {
                (BreakerState::Open { retry_in }, Health::Open { retry_in: other, .. })
                    if other >= retry_in =>
                {
                    worst
                }
                (BreakerState::Open { retry_in }, _) => Health::Open { family, retry_in },
                (BreakerState::HalfOpen { .. }, Health::Open { .. }) => worst,
                // All who may try are trying.
                (BreakerState::HalfOpen { free: 0 }, _) => {
                    Health::Open { family, retry_in: Duration::from_secs(1) }
                }
                (BreakerState::HalfOpen { .. }, _) => Health::Probing { family },
                (BreakerState::Closed, _) => worst,
            };
        }
        worst
    }

    /// An attempt begins at `provider`; `false`: another one was quicker, and it must not.
    pub fn begin(&mut self, provider: &str, now: Moment) -> bool {
        let Some(families) = self.by_provider.get_mut(provider) else { return true };
        let may = |breaker: &Breaker| {
            !matches!(breaker.state(now), BreakerState::Open { .. } | BreakerState::HalfOpen { free: 0 })
        };
        families.values().all(may) && families.values_mut().all(|breaker| breaker.begin(now))
    }

    /// A sandbox was made. Whether it is not lost is found out by work in it.
    pub fn succeeded(&mut self, provider: &str) {
        let families = self.by_provider.get_mut(provider).into_iter().flatten();
        families
            .filter(|(family, _)| **family != ErrorFamily::Lost)
            .for_each(|(_, breaker)| breaker.succeeded());
    }

    /// Work in a sandbox came to its end.
    pub fn worked(&mut self, provider: &str) {
        let lost = self.by_provider.get_mut(provider).and_then(|all| all.get_mut(&ErrorFamily::Lost));
        if let Some(breaker) = lost {
            breaker.succeeded();
        }
    }

    /// Work in a sandbox failed for the provider's sake. The attempt that made it was a success, and stays one.
    pub fn work_failed(&mut self, provider: &str, family: ErrorFamily, now: Moment) {
        let families = self.by_provider.entry(provider.to_owned()).or_default();
        families.entry(family).or_insert_with(|| Breaker::new(BreakerRules::of(family))).failed(now);
    }

    /// All that are not as new, to be kept over a restart.
    pub(crate) fn save(&self) -> Vec<SavedBreaker> {
        let row = |provider: &String, (family, breaker): (&ErrorFamily, &Breaker)| SavedBreaker {
            provider: provider.clone(),
            family: *family,
            state: breaker.state,
            trips: breaker.trips,
            calm: breaker.calm,
        };
        let of_one = |(provider, all): (&String, &BTreeMap<ErrorFamily, Breaker>)| {
            all.iter().map(|breaker| row(provider, breaker)).collect::<Vec<_>>()
        };
        self.by_provider.iter().flat_map(of_one).collect()
    }

    pub(crate) fn load(saved: Vec<SavedBreaker>) -> Self {
        let mut by_provider = BTreeMap::<String, BTreeMap<ErrorFamily, Breaker>>::new();
        for SavedBreaker { provider, family, state, trips, calm } in saved {
            let breaker = Breaker { rules: BreakerRules::of(family), state, trips, calm };
            by_provider.entry(provider).or_default().insert(family, breaker);
        }
        Self { by_provider }
    }

    pub fn abandoned(&mut self, provider: &str) {
        self.each(provider, Breaker::abandoned);
    }

    pub fn failed(&mut self, provider: &str, family: ErrorFamily, now: Moment) {
        let families = self.by_provider.entry(provider.to_owned()).or_default();
        for (other, breaker) in families.iter_mut() {
            if *other != family {
                breaker.abandoned();
            }
        }
        families.entry(family).or_insert_with(|| Breaker::new(BreakerRules::of(family))).failed(now);
    }

    fn each(&mut self, provider: &str, change: impl Fn(&mut Breaker)) {
        self.by_provider.get_mut(provider).into_iter().flat_map(BTreeMap::values_mut).for_each(change);
    }
}

#[cfg(test)]
mod tests;
