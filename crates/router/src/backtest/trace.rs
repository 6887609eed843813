//! A trace of daily figures, as CSV: `mode,date,provider,n,ok,min,p50,p95,p99,max`, times in milliseconds.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sandstorm_catalog::Date;
use serde::Serialize;
use thiserror::Error;

/// How the runs of a day were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One after the other.
    Sequential,
    /// Each a little after the last.
    Staggered,
    /// All at once.
    Burst,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Sequential, Self::Staggered, Self::Burst];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Staggered => "staggered",
            Self::Burst => "burst",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known =
            Self::ALL.into_iter().find(|mode| text.strip_suffix("_tti").unwrap_or(text) == mode.name());
        known.ok_or_else(|| format!("`{text}` is not a mode: there are sequential, staggered and burst"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TraceError {
    #[error("the first line has to be `{HEADER}`")]
    Header,
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("there is nothing of the mode {0}")]
    Empty(Mode),
}

const HEADER: &str = "mode,date,provider,n,ok,min,p50,p95,p99,max";

/// The figures of all days.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    modes: BTreeMap<Mode, BTreeMap<Date, BTreeMap<String, Day>>>,
}

/// One provider on one day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Day {
    /// Share of attempts that failed.
    pub(super) failure: f64,
    /// Milliseconds of those that did not, at shares 0, 0.5, 0.95, 0.99 and 1; `None`: all failed.
    pub(super) quantiles: Option<[f64; 5]>,
}

/// The shares that the columns stand for.
const SHARES: [f64; 5] = [0.0, 0.5, 0.95, 0.99, 1.0];

impl Day {
    /// The latency below which `share` of the day's runs lie: straight lines between the figures.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let values = self.quantiles?;
        let share = share.clamp(0.0, 1.0);
        let piece = SHARES.windows(2).position(|ends| share <= ends[1]).unwrap_or(SHARES.len() - 2);
        let part = (share - SHARES[piece]) / (SHARES[piece + 1] - SHARES[piece]);
        Some(values[piece] + part * (values[piece + 1] - values[piece]))
    }
}

impl Trace {
    pub(super) fn days(&self, mode: Mode) -> Result<&BTreeMap<Date, BTreeMap<String, Day>>, TraceError> {
        self.modes.get(&mode).filter(|days| !days.is_empty()).ok_or(TraceError::Empty(mode))
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line.trim_end()) != Some(HEADER) {
            return Err(TraceError::Header);
        }
        let mut trace = Self::default();
        for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |what: String| TraceError::Line { line: index + 1, what };
            let (mode, date, provider, day) = row(line.trim_end()).map_err(wrong)?;
            let days = trace.modes.entry(mode).or_default();
            if days.entry(date).or_default().insert(provider.clone(), day).is_some() {
                return Err(wrong(format!("{provider} is there twice on {date}")));
            }
        }
        Ok(trace)
    }
}

fn row(line: &str) -> Result<(Mode, Date, String, Day), String> {
    let cells: Vec<&str> = line.split(',').collect();
    let [mode, date, provider, n, ok, times @ ..] = cells.as_slice() else {
        return Err("too few columns".to_owned());
    };
    let count = |cell: &str| cell.parse::<u32>().map_err(|_| format!("`{cell}` is not a number of runs"));
    let (n, ok) = (count(n)?, count(ok)?);
    if n == 0 || ok > n || times.len() != SHARES.len() {
        return Err("the numbers do not fit together".to_owned());
    }
    let day = Day { failure: f64::from(n - ok) / f64::from(n), quantiles: quantiles(times, ok)? };
    let date = date.parse().map_err(|error| format!("{error}"))?;
    Ok((mode.parse()?, date, (*provider).to_owned(), day))
}

fn quantiles(cells: &[&str], ok: u32) -> Result<Option<[f64; 5]>, String> {
    if ok == 0 {
        return Ok(None);
    }
    let mut values = [0.0; 5];
    for (value, cell) in values.iter_mut().zip(cells) {
        *value = cell.parse::<f64>().map_err(|_| format!("`{cell}` is not a time"))?;
    }
    let fine = values.is_sorted() && values.iter().all(|value| value.is_finite() && *value >= 0.0);
    if fine { Ok(Some(values)) } else { Err("the times do not ascend".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_figures_and_draws_between_them() {
        let text = format!(
            "{HEADER}\nburst_tti,2026-03-01,a,10,8,100,200,290,330,340\nburst,2026-03-02,a,5,0,,,,,\n"
        );
        let trace: Trace = text.parse().unwrap();
        let days = trace.days(Mode::Burst).unwrap();
        let first = days.values().next().unwrap()["a"];
        assert!((first.failure - 0.2).abs() < 1e-9);
        let at = |share| first.quantile(share).unwrap();
        assert_eq!((at(0.0), at(0.25), at(0.5), at(0.725)), (100.0, 150.0, 200.0, 245.0));
        assert!((at(0.97) - 310.0).abs() < 1e-9 && (at(1.0) - 340.0).abs() < 1e-9);
        let second = days.values().nth(1).unwrap()["a"];
        assert_eq!((second.failure, second.quantile(0.5)), (1.0, None));
        assert_eq!(trace.days(Mode::Sequential), Err(TraceError::Empty(Mode::Sequential)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        assert_eq!("a,b\n".parse::<Trace>(), Err(TraceError::Header));
        for line in [
            "burst,2026-03-01,a,10,8,100",
            "burst,2026-03-01,a,10,11,1,2,3,4,5",
            "burst,2026-03-01,a,0,0,,,,,",
            "burst,2026-03-01,a,1,1,1,2,x,4,5",
            "burst,2026-03-01,a,1,1,1,3,2,4,5",
            "burst,yesterday,a,1,1,1,2,3,4,5",
            "often,2026-03-01,a,1,1,1,2,3,4,5",
        ] {
            let error = format!("{HEADER}\n{line}\n").parse::<Trace>().unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
        let twice = "burst,2026-03-01,a,1,1,1,2,3,4,5";
        let error = format!("{HEADER}\n{twice}\n{twice}\n").parse::<Trace>().unwrap_err();
        assert_eq!(error.to_string(), "line 3: a is there twice on 2026-03-01");
    }
}
