//! How many sandboxes a provider bears at once, found out by asking: one more while it goes well, a third less when it is too
//! much.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;

/// The bounds of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyRules {
    pub first: u32,
    pub least: u32,
    /// What the operator or the provider's quota allows; never more.
    pub most: Option<u32>,
}

impl Default for ConcurrencyRules {
    fn default() -> Self {
        Self { first: 20, least: 1, most: None }
    }
}

/// How an attempt ended, as far as this is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Fine,
    /// Refused because there was too much at once.
    Overloaded,
    /// For some other reason.
    Otherwise,
}

/// A refusal tells of the load of a moment; a second one within this time tells of the same.
const SAME_NEWS: Duration = Duration::from_secs(1);
const LESS: f64 = 0.7;

/// The limit of one provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ConcurrencyLimit {
    rules: ConcurrencyRules,
    limit: f64,
    in_use: u32,
    cut: Option<Moment>,
}

impl ConcurrencyLimit {
    pub fn new(rules: ConcurrencyRules) -> Self {
        let mut new = Self { rules, limit: 0.0, in_use: 0, cut: None };
        new.set(rules.first.into());
        new
    }

    /// With what was learned before a restart.
    pub(crate) fn resumed(rules: ConcurrencyRules, limit: u32) -> Self {
        let mut new = Self::new(rules);
        new.set(limit.into());
        new
    }

    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    pub fn begin(&mut self) {
        self.in_use = self.in_use.saturating_add(1);
    }

    /// An attempt has shown what it shows; its sandbox may still be there.
    pub fn learned(&mut self, ended: Ended, now: Moment) {
        let news = self.cut.is_none_or(|cut| now.since(cut) > SAME_NEWS);
        match ended {
            // Only who is near the limit shows that there could be more.
            Ended::Fine if f64::from(self.in_use) >= self.limit * 0.8 => {
                self.set(self.limit + 1.0 / self.limit)
            }
            Ended::Overloaded if news => {
                self.cut = Some(now);
                // Less than were there, not less than might have been.
                self.set(self.limit.min(f64::from(self.in_use)) * LESS);
            }
            Ended::Fine | Ended::Overloaded | Ended::Otherwise => {}
        }
    }

    /// A sandbox is gone.
    pub fn end(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    fn set(&mut self, limit: f64) {
        let least = f64::from(self.rules.least.max(1));
        let most = self.rules.most.map_or(f64::from(u32::MAX), f64::from).max(least);
        self.limit = limit.clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_finds_what_a_provider_bears() {
        let bears = 50;
        let mut limit = ConcurrencyLimit::new(ConcurrencyRules::default());
        let mut seen = Vec::new();
        for second in 0..3000_u64 {
            while limit.in_use() < limit.limit() {
                limit.begin();
                let ended = if limit.in_use() > bears { Ended::Overloaded } else { Ended::Fine };
                limit.learned(ended, Moment::from_secs(2 * second));
            }
            (0..limit.in_use()).for_each(|_| limit.end());
            seen.push(limit.limit());
        }
        let late = &seen[1000..];
        assert!(late.iter().all(|limit| (30..=bears + 2).contains(limit)), "{:?}", late.iter().minmax());
    }

    trait MinMax {
        fn minmax(self) -> (u32, u32);
    }

    impl<'a, I: Iterator<Item = &'a u32> + Clone> MinMax for I {
        fn minmax(self) -> (u32, u32) {
            (self.clone().copied().min().unwrap(), self.copied().max().unwrap())
        }
    }

    #[test]
    fn a_burst_of_refusals_is_one_piece_of_news() {
        let mut limit = ConcurrencyLimit::new(ConcurrencyRules::default());
        (0..20).for_each(|_| limit.begin());
        (0..20).for_each(|_| limit.learned(Ended::Overloaded, Moment::from_secs(9)));
        assert_eq!(limit.limit(), 14);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(events in prop::collection::vec((0_u8..5, 0_u64..4), 0..300)) {
            let rules = ConcurrencyRules { first: 5, least: 2, most: Some(9) };
            let (mut limit, mut now) = (ConcurrencyLimit::new(rules), 0);
            for (event, wait) in events {
                now += wait;
                match event {
                    0 | 1 => limit.begin(),
                    2 => limit.end(),
                    3 => limit.learned(Ended::Fine, Moment::from_secs(now)),
                    _ => limit.learned(Ended::Overloaded, Moment::from_secs(now)),
                }
                prop_assert!((2..=9).contains(&limit.limit()));
            }
        }
    }
}
