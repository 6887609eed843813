//! Figures that are too old to be believed without a look.

use std::fmt;

use serde::Serialize;

use crate::{Confidence, Date, Dated, PriceModel, ProviderEntry};

/// One figure that somebody should look up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    pub provider: String,
    /// The group of figures, as the file calls it.
    pub figure: &'static str,
    pub as_of: Option<Date>,
    pub age_days: Option<u64>,
    pub source: String,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, figure, source, .. } = self;
        match (self.as_of, self.age_days) {
            (Some(day), Some(age)) => {
                write!(f, "the {figure} of {provider}: as of {day}, {age} days old (from {source})")
            }
            _ => write!(f, "the {figure} of {provider}: without a date (from {source})"),
        }
    }
}

impl ProviderEntry {
    /// Figures about money that are older than `max_age_days` on `today`, or of unknown age. Rates of owned hardware and
    /// prices that are missing altogether do not age.
    pub fn stale(&self, today: Date, max_age_days: u64) -> Vec<Stale> {
        let mut found = Vec::new();
        let mut look = |figure: &'static str, as_of: Option<Date>, source: &str, confidence: Confidence| {
            let age_days = as_of.map(|day| today.days_since(day));
            // The operator's own word without a date is taken as it is.
            let ages = as_of.is_some() || confidence != Confidence::Operator;
            if ages && age_days.is_none_or(|age| age > max_age_days) {
                let (provider, source) = (self.id.clone(), source.to_owned());
                found.push(Stale { provider, figure, as_of, age_days, source });
            }
        };
        fn parts<T>(dated: &Dated<T>) -> (Option<Date>, &str, Confidence) {
            (dated.as_of, &dated.source, dated.confidence)
        }
        if !matches!(self.price.figure, PriceModel::Owned { .. } | PriceModel::Unknown {}) {
            let (as_of, source, confidence) = parts(&self.price);
            look("price", as_of, source, confidence);
        }
        for (figure, dated) in [
            ("billing", self.billing.as_ref().map(parts)),
            ("credits", self.credits.as_ref().map(parts)),
            ("quotas", self.quotas.as_ref().map(parts)),
            ("extras", self.extras.as_ref().map(parts)),
        ] {
            if let Some((as_of, source, confidence)) = dated {
                look(figure, as_of, source, confidence);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::Catalog;

    fn stale(provider: &str, today: &str) -> Vec<String> {
        let entry = Catalog::embedded().get(provider).unwrap();
        entry.stale(today.parse().unwrap(), 90).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_old_price_is_warned_about_by_date() {
        assert_eq!(stale("daytona", "2026-08-01"), [] as [&str; 0]);
        let warned = stale("daytona", "2026-11-15");
        assert!(
            warned[0].starts_with("the price of daytona: as of 2026-05-25, 174 days old (from "),
            "{warned:?}"
        );
    }

    #[test]
    fn a_price_without_a_date_is_always_warned_about() {
        let warned = stale("isorun", "2026-01-01");
        assert!(warned[0].starts_with("the price of isorun: without a date (from "), "{warned:?}");
    }

    #[test]
    fn hardware_of_ones_own_does_not_age() {
        assert_eq!(stale("local", "2046-01-01"), [] as [&str; 0]);
    }
}
