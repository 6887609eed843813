//! When to try again, and when to give up.

use std::time::Duration;

/// How often one call is tried, the first time included.
pub(crate) const MOST_TRIES: u32 = 4;
/// A server that asks for more than this is busy in a way that waiting does not help.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Connections in a row that brought nothing before a stream is given up. Together they wait about a minute: longer
/// than a server takes to be replaced.
pub(crate) const MOST_FAILURES: u32 = 15;

/// How long to wait before try number `tries + 1` of a call that was refused, or `None` to give up.
pub(crate) fn before_retry(tries: u32, status: u16, asked: Option<Duration>) -> Option<Duration> {
    if tries >= MOST_TRIES || !matches!(status, 429 | 503) {
        return None;
    }
    let wait = asked.unwrap_or_else(|| backoff(tries));
    (wait <= LONGEST_WAIT).then_some(wait)
}

/// How long to wait after this many failures in a row: twice as long each time, up to five seconds.
pub(crate) fn backoff(failures: u32) -> Duration {
    let millis = 100_u64 << failures.min(6);
    Duration::from_millis(millis.min(5000))
}

/// Between half of `wait` and all of it, so that clients which lost one server do not return as one crowd.
pub(crate) fn spread(wait: Duration) -> Duration {
    let mut byte = [u8::MAX];
    // Without randomness everybody waits the full time; nothing depends on it.
    let _ = getrandom::fill(&mut byte);
    wait / 2 + wait / 2 * u32::from(byte[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_servers_are_asked_again_but_not_for_ever() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(before_retry(1, 429, second), second);
        assert_eq!(before_retry(MOST_TRIES - 1, 503, second), second);
        assert_eq!(before_retry(MOST_TRIES, 503, second), None);
        assert_eq!(before_retry(1, 503, Some(Duration::from_secs(3600))), None);
        assert_eq!(before_retry(1, 503, None), Some(backoff(1)));
        for status in [400, 401, 404, 409, 500, 502] {
            assert_eq!(before_retry(1, status, second), None, "{status}");
        }
    }

    #[test]
    fn waits_grow_to_a_bound_and_are_spread_below_it() {
        let waits: Vec<_> = (0..MOST_FAILURES).map(backoff).collect();
        assert!(waits.is_sorted() && waits[0] < waits[4], "{waits:?}");
        assert_eq!(waits.last(), Some(&Duration::from_secs(5)));
        for _ in 0..100 {
            let spread = spread(Duration::from_secs(4));
            assert!(spread >= Duration::from_secs(2) && spread <= Duration::from_secs(4), "{spread:?}");
        }
    }
}
