//! A report as Markdown, for people.

use std::fmt::Write as _;

use super::figures::Spread;
use super::report::{Report, Row};

impl Report {
    /// Every arm and every promise in two tables.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "{}: {} days, {} requests a day, {} seeds; medians, with the lowest and highest seed in brackets.\n\
             Best provider in hindsight: {}; cheapest: {}.\n",
            self.mode,
            self.days,
            self.requests_per_day,
            self.seeds.len(),
            self.best,
            self.cheapest
        );
        if !self.unpriced.is_empty() {
            let _ = writeln!(text, "Left out, since their price is not known: {}.", self.unpriced.join(", "));
        }
        text += "\n| arm | days | p50 ms | p95 ms | p99 ms | failures | extra attempts | probes | USD per 1,000 | regret ms |\n";
        text += "|---|---|---|---|---|---|---|---|---|---|\n";
        self.rows.iter().for_each(|row| text += &line(row));
        text += "\n| promise | found | allowed | seeds | |\n|---|---|---|---|---|\n";
        for verdict in &self.verdicts {
            let mark = if verdict.holds { "holds" } else { "**does not hold**" };
            let (found, allowed) = (digits(verdict.found), digits(verdict.allowed));
            let seeds = format!("{} of {}", verdict.seeds, self.seeds.len());
            let _ = writeln!(text, "| {} | {found} | {allowed} | {seeds} | {mark} |", verdict.promise);
        }
        text
    }
}

fn line(row: &Row) -> String {
    let days = row.days.map(|days| days.to_string()).unwrap_or_default();
    let cells = [
        spread(row.p50_ms),
        spread(row.p95_ms),
        spread(row.p99_ms),
        spread(row.failures),
        spread(row.extra_attempts),
        spread(row.probes),
        spread(row.usd_per_1000),
        spread(row.regret_ms),
    ];
    format!("| {} | {days} | {} |\n", row.name, cells.join(" | "))
}

fn spread(spread: Spread) -> String {
    let (median, low, high) = (digits(spread.median), digits(spread.low), digits(spread.high));
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

/// Whole numbers where there are many digits, four places for what is less than one.
fn digits(value: f64) -> String {
    if value == 0.0 || value.abs() >= 1.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            (digits(0.0), digits(123.4), digits(0.16251)),
            ("0".into(), "123".into(), "0.1625".into())
        );
        assert_eq!(spread(Spread { median: 20.0, low: 10.0, high: 30.0 }), "20 (10 to 30)");
        assert_eq!(spread(Spread { median: 20.1, low: 20.0, high: 20.2 }), "20");
    }
}
