//! The server's own time: that of its lifetimes, idle times and pauses.
//!
//! It begins with the wall clock when the process does and goes on evenly from there: whoever sets the wall clock, by an hour
//! in either direction, moves no end of anything. Records and answers have the wall clock's time. What is read from them is
//! brought over by what the two clocks show at that moment.

use std::sync::OnceLock;
use std::time::Instant;

use sandstorm_types::Timestamp;

/// Now.
pub(super) fn now() -> Timestamp {
    static BEGAN: OnceLock<(Timestamp, Instant)> = OnceLock::new();
    let (wall, began) = *BEGAN.get_or_init(|| (Timestamp::now(), Instant::now()));
    wall.after(began.elapsed())
}

/// A moment of the wall clock as this clock counts it.
pub(super) fn of_wall(at: Timestamp) -> Timestamp {
    shifted(at, now(), Timestamp::now())
}

/// The same the other way round.
pub(super) fn to_wall(at: Timestamp) -> Timestamp {
    shifted(at, Timestamp::now(), now())
}

/// As far from `to` as it is from `from`.
fn shifted(at: Timestamp, to: Timestamp, from: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().saturating_add(to.millis().saturating_sub(from.millis())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_an_hour_away_stays_so_when_the_wall_clock_is_set() {
        let hour = Duration::from_secs(3600);
        let steady = Timestamp::from_millis(1_000_000);
        let wall = Timestamp::from_millis(9_000_000);
        for set in [wall, wall.after(hour), wall.before(hour)] {
            let end = shifted(set.after(hour), steady, set);
            assert_eq!(end, steady.after(hour));
            assert_eq!(shifted(end, set, steady), set.after(hour));
        }
    }
}
