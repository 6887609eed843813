//! The map from security requirements to the tests that prove them,
//! `tests/requirements.toml`, and what keeps it honest: no requirement can be
//! left out, made softer, or proven by a test that does not run.

mod reference;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::report::Report;
use crate::tree::Tree;

const MAP: &str = "tests/requirements.toml";

/// Whether a MUST without proof fails the check or is only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    Lenient,
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Must,
    Should,
}

/// Absent means proven by the tests named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Its tests are still to come, or prove only a part.
    Pending,
    /// Decided against for now, with a reason.
    Deferred,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    level: Level,
    summary: String,
    #[serde(default)]
    tests: Vec<String>,
    status: Option<Status>,
    reason: Option<String>,
}

/// Ids `<letter>-01` to `<letter>-<last>`; all are MUST but those named.
struct Family {
    letter: char,
    last: u32,
    should: &'static [u32],
}

const FAMILIES: &[Family] = &[
    Family { letter: 'J', last: 52, should: &[6, 17, 18, 20, 27, 30, 31, 38, 51] },
    Family { letter: 'F', last: 12, should: &[12] },
    Family { letter: 'C', last: 5, should: &[5] },
    Family { letter: 'E', last: 15, should: &[12, 14] },
    Family { letter: 'N', last: 5, should: &[] },
    Family { letter: 'G', last: 17, should: &[] },
    Family { letter: 'A', last: 4, should: &[4] },
    Family { letter: 'W', last: 4, should: &[] },
    Family { letter: 'M', last: 6, should: &[6] },
];

impl Family {
    fn ids(&self) -> impl Iterator<Item = (String, Level)> {
        (1..=self.last).map(|number| {
            let level = if self.should.contains(&number) { Level::Should } else { Level::Must };
            (format!("{}-{number:02}", self.letter), level)
        })
    }
}

pub(crate) fn check(tree: &Tree, strictness: Strictness, report: &mut Report) {
    check_families(tree, FAMILIES, strictness, report);
}

fn check_families(tree: &Tree, families: &[Family], strictness: Strictness, report: &mut Report) {
    let Some(text) = tree.text(MAP) else {
        report.error(format!("{MAP} is missing"));
        return;
    };
    let mut entries: BTreeMap<String, Entry> = match toml::from_str(text) {
        Ok(entries) => entries,
        Err(error) => {
            report.error(format!("{MAP}: {error}"));
            return;
        }
    };
    let mut counts = Counts::default();
    for (id, level) in families.iter().flat_map(Family::ids) {
        let Some(entry) = entries.remove(&id) else {
            report.error(format!("{MAP}: {id} is missing"));
            continue;
        };
        if entry.level != level {
            report.error(format!("{MAP}: {id} has another level than the reference gives it"));
        }
        for problem in problems(tree, &entry) {
            report.error(format!("{MAP}: {id}: {problem}"));
        }
        if strictness == Strictness::Strict && level == Level::Must && entry.status.is_some() {
            report.error(format!("{MAP}: {id} is a MUST without full proof: {}", entry.summary));
        }
        counts.add(level, entry.status);
    }
    for id in entries.keys() {
        report.error(format!("{MAP}: {id} is no requirement of this repository"));
    }
    report.note(counts.line());
}

fn problems(tree: &Tree, entry: &Entry) -> Vec<String> {
    let mut problems = Vec::new();
    if entry.summary.trim().is_empty() {
        problems.push("no summary".to_owned());
    }
    let reason = entry.reason.as_deref().unwrap_or_default().trim();
    match entry.status {
        None if entry.tests.is_empty() => problems.push("neither tests nor a status".to_owned()),
        Some(Status::Deferred) if !explains(reason) => {
            problems.push("deferred without a reason that stands on its own".to_owned());
        }
        _ => {}
    }
    problems.extend(entry.tests.iter().filter_map(|test| reference::problem(tree, test)));
    problems
}

/// A sentence, not a pointer to a ticket that the reader may not be able to open.
fn explains(reason: &str) -> bool {
    let ticket = reason.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    reason.split_whitespace().count() >= 4 && !ticket
}

#[derive(Debug, Default)]
struct Counts {
    proven: usize,
    pending: [usize; 2],
    deferred: [usize; 2],
}

impl Counts {
    fn add(&mut self, level: Level, status: Option<Status>) {
        let level = usize::from(level == Level::Should);
        match status {
            None => self.proven += 1,
            Some(Status::Pending) => self.pending[level] += 1,
            Some(Status::Deferred) => self.deferred[level] += 1,
        }
    }

    fn line(&self) -> String {
        let ([pending_must, pending_should], [deferred_must, deferred_should]) =
            (self.pending, self.deferred);
        format!(
            "requirements: {} proven; pending: {pending_must} MUST, {pending_should} SHOULD; \
             deferred: {deferred_must} MUST, {deferred_should} SHOULD",
            self.proven
        )
    }
}

#[cfg(test)]
mod tests;
