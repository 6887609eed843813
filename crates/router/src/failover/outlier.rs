//! Outlier ejection: who does much worse than the others sits out for a while, but never all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Moment;

/// When somebody is ejected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutlierRules {
    /// Nobody is judged by fewer outcomes.
    pub volume: f64,
    /// How much smaller the share of successes is than the middle one of all.
    pub gap: f64,
    /// At most this share of all sits out at once, and always fewer than all.
    pub most: f64,
    /// The first time for this long, each further time for as much more.
    pub span: Duration,
    pub longest: Duration,
    /// After this time an outcome counts half.
    pub half_life: Duration,
}

impl Default for OutlierRules {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            volume: 5.0,
            gap: 0.3,
            most: 0.5,
            span: seconds(30),
            longest: seconds(300),
            half_life: seconds(120),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Record {
    successes: f64,
    failures: f64,
    last: Moment,
    ejected: Option<(Moment, Duration)>,
    times: u32,
}

impl Record {
    fn age(&mut self, now: Moment, half_life: Duration) {
        let share = (-now.since(self.last).as_secs_f64() / half_life.as_secs_f64().max(1e-9)).exp2();
        self.successes *= share;
        self.failures *= share;
        self.last = now;
    }

    fn volume(&self) -> f64 {
        self.successes + self.failures
    }

    fn share(&self) -> f64 {
        self.successes / self.volume()
    }

    fn out_for(&self, now: Moment) -> Option<Duration> {
        let (since, span) = self.ejected?;
        Some(span.saturating_sub(now.since(since))).filter(|left| !left.is_zero())
    }
}

/// Who sits out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outliers {
    rules: OutlierRules,
    records: BTreeMap<String, Record>,
}

impl Outliers {
    pub fn new(rules: OutlierRules) -> Self {
        Self { rules, records: BTreeMap::new() }
    }

    /// How much longer somebody sits out.
    pub fn out_for(&self, provider: &str, now: Moment) -> Option<Duration> {
        self.records.get(provider)?.out_for(now)
    }

    pub fn observe(&mut self, provider: &str, success: bool, now: Moment) {
        let half_life = self.rules.half_life;
        let record = self.records.entry(provider.to_owned()).or_default();
        record.age(now, half_life);
        if success {
            record.successes += 1.0;
        } else {
            record.failures += 1.0;
            self.judge(provider, now);
        }
    }

    fn judge(&mut self, provider: &str, now: Moment) {
        let OutlierRules { volume, gap, most, span, longest, .. } = self.rules;
        let judged = |record: &&Record| record.volume() >= volume;
        let mut shares: Vec<f64> = self.records.values().filter(judged).map(Record::share).collect();
        shares.sort_by(f64::total_cmp);
        // The upper one of two in the middle: of two providers the better one is the measure.
        let Some(&middle) = shares.get(shares.len() / 2) else { return };
        let out = self.records.values().filter(|record| record.out_for(now).is_some()).count();
        let places = ((self.records.len() as f64 * most) as usize).min(self.records.len().saturating_sub(1));
        let Some(record) = self.records.get_mut(provider) else { return };
        let bad = record.volume() >= volume && record.share() < middle - gap;
        if bad && record.out_for(now).is_none() && out < places {
            record.times = record.times.saturating_add(1);
            record.ejected = Some((now, span.saturating_mul(record.times).min(longest)));
            // It comes back to be judged anew.
            (record.successes, record.failures) = (0.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_secs(seconds)
    }

    #[test]
    fn the_bad_one_of_three_sits_out_and_comes_back() {
        let mut outliers = Outliers::default();
        for n in 0..10 {
            outliers.observe("a", true, at(n));
            outliers.observe("b", true, at(n));
            outliers.observe("c", n % 2 == 0, at(n));
        }
        assert!(outliers.out_for("c", at(10)).is_some());
        assert_eq!((outliers.out_for("a", at(10)), outliers.out_for("b", at(10))), (None, None));
        assert_eq!(outliers.out_for("c", at(60)), None);
    }

    #[test]
    fn alone_or_all_bad_nobody_sits_out() {
        let mut alone = Outliers::default();
        (0..20).for_each(|n| alone.observe("a", false, at(n)));
        assert_eq!(alone.out_for("a", at(20)), None);
        let mut all = Outliers::default();
        (0..20).for_each(|n| ["a", "b", "c"].iter().for_each(|name| all.observe(name, false, at(n))));
        assert!(["a", "b", "c"].iter().all(|name| all.out_for(name, at(20)).is_none()));
    }

    proptest! {
        #[test]
        fn never_everybody(events in prop::collection::vec((0_usize..4, any::<bool>(), 0_u64..5), 0..300)) {
            let names = ["a", "b", "c", "d"];
            let (mut outliers, mut now) = (Outliers::default(), 0);
            for (who, success, wait) in events {
                now += wait;
                outliers.observe(names[who], success, at(now));
                let known = outliers.records.len();
                let out = names.iter().filter(|name| outliers.out_for(name, at(now)).is_some()).count();
                prop_assert!(out * 2 <= known && out < known);
            }
        }
    }
}
