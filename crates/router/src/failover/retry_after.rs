//! Providers that asked to be left alone for a while (`Retry-After`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Moment;

/// Nobody is believed who asks for more.
const LONGEST: Duration = Duration::from_secs(3600);

/// Who is held, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holds {
    by_provider: BTreeMap<String, (Moment, Duration)>,
}

impl Holds {
    /// The longer of two holds counts.
    pub fn hold(&mut self, provider: &str, span: Duration, now: Moment) {
        let span = span.min(LONGEST);
        if self.held_for(provider, now).is_none_or(|left| span > left) {
            self.by_provider.insert(provider.to_owned(), (now, span));
        }
    }

    /// How much longer it is to be left alone.
    pub fn held_for(&self, provider: &str, now: Moment) -> Option<Duration> {
        let (since, span) = self.by_provider.get(provider)?;
        Some(span.saturating_sub(now.since(*since))).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_hold_counts_and_none_is_for_ever() {
        let (mut holds, seconds) = (Holds::default(), Duration::from_secs);
        holds.hold("a", seconds(30), Moment::from_secs(0));
        holds.hold("a", seconds(5), Moment::from_secs(10));
        assert_eq!(holds.held_for("a", Moment::from_secs(10)), Some(seconds(20)));
        assert_eq!(holds.held_for("a", Moment::from_secs(30)), None);
        assert_eq!(holds.held_for("b", Moment::from_secs(0)), None);
        holds.hold("a", seconds(1_000_000), Moment::from_secs(40));
        assert_eq!(holds.held_for("a", Moment::from_secs(40)), Some(LONGEST));
    }
}
