//! Times and sizes, short enough for a column.

use std::time::Duration;

use sandstorm_types::Timestamp;

/// How long ago: `12s`, `3m`, `5h`, `2d`.
pub(super) fn age(then: Timestamp, now: Timestamp) -> String {
    span(now.since(then))
}

/// How long until: the same, or `-` when there is no such moment.
pub(super) fn left(end: Option<Timestamp>, now: Timestamp) -> String {
    end.map_or_else(|| "-".to_owned(), |end| span(end.since(now)))
}

fn span(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// `512`, `1.5K`, `20M`, `3.2G`: three digits at most before the unit.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    if count < 1024 {
        return count.to_string();
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_short() {
        for (count, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (20 << 20, "20M"),
            ((1 << 20) - 1, "1.0M"),
            (512 << 20, "512M"),
            (u64::MAX, "16384P"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn ages_grow_through_their_units() {
        let now = Timestamp::from_millis(1_000_000_000_000);
        let ago = |seconds| age(now.before(Duration::from_secs(seconds)), now);
        assert_eq!([ago(0), ago(99), ago(100), ago(7200), ago(200_000)], ["0s", "99s", "1m", "2h", "2d"]);
        assert_eq!(left(Some(now.after(Duration::from_secs(30))), now), "30s");
        assert_eq!(left(Some(now.before(Duration::from_secs(30))), now), "0s");
        assert_eq!(left(None, now), "-");
    }
}
