//! Everything that was learned, by place and class.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::belief::Belief;
use super::memory::Memory;
use crate::Moment;

/// Runs that behave alike, such as all of one template and size. The caller chooses the words.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadClass(String);

impl WorkloadClass {
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for WorkloadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whom an outcome is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmKey {
    pub provider: String,
    #[serde(default)]
    pub region: Option<String>,
    #[serde(default)]
    pub class: WorkloadClass,
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    pub key: ArmKey,
    pub result: OutcomeResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OutcomeResult {
    /// Time until the sandbox could be used.
    Ready {
        #[serde(with = "duration::seconds")]
        after: Duration,
    },
    /// Time until it was known to have failed, where that was measured.
    Failed {
        #[serde(with = "duration::optional_seconds", default)]
        after: Option<Duration>,
    },
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Place {
    all: Arm,
    classes: BTreeMap<WorkloadClass, Arm>,
}

/// A saved [`Knowledge`]: one row for each arm. JSON has no maps with such keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    provider: String,
    region: Option<String>,
    /// `None` is all classes together.
    class: Option<WorkloadClass>,
    arm: Arm,
}

/// Classes of one place that are kept apart; callers name them, so there has to be an end.
const MOST_CLASSES: usize = 64;

/// What is known of every place.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Knowledge {
    memory: Memory,
    places: BTreeMap<(String, Option<String>), Place>,
}

impl Knowledge {
    pub fn new(memory: Memory) -> Self {
        Self { memory, places: BTreeMap::new() }
    }

    pub fn observe(&mut self, outcome: &Outcome, now: Moment) {
        let ArmKey { provider, region, class } = &outcome.key;
        let place = self.places.entry((provider.clone(), region.clone())).or_default();
        record(&mut place.all, outcome.result, now, &self.memory);
        if place.classes.len() < MOST_CLASSES || place.classes.contains_key(class) {
            record(place.classes.entry(class.clone()).or_default(), outcome.result, now, &self.memory);
        }
    }

    /// Whether there ever was an outcome, however long ago.
    pub fn has_seen(&self, provider: &str, region: Option<&str>) -> bool {
        self.places.contains_key(&(provider.to_owned(), region.map(str::to_owned)))
    }

    /// What to expect there; without outcomes, what one expects of anybody.
    pub fn belief(&self, key: &ArmKey, now: Moment) -> Belief {
        let prior = Belief::prior();
        let Some(place) = self.places.get(&(key.provider.clone(), key.region.clone())) else { return prior };
        let pooled = Belief::of(&place.all, &prior, now, &self.memory);
        match place.classes.get(&key.class) {
            // With one class the pool is that class, and nothing of it may count twice.
            Some(arm) if place.classes.len() > 1 => Belief::of(arm, &pooled, now, &self.memory),
            Some(arm) => Belief::of(arm, &prior, now, &self.memory),
            None => pooled,
        }
    }

    /// To be kept over a restart.
    pub fn save(&self) -> serde_json::Value {
        let rows: Vec<Row> = self
            .places
            .iter()
            .flat_map(|((provider, region), place)| {
                let classes = place.classes.iter().map(|(class, arm)| (Some(class.clone()), arm));
                let arms = std::iter::once((None, &place.all)).chain(classes);
                let row = move |(class, arm): (Option<WorkloadClass>, &Arm)| {
                    let (provider, region) = (provider.clone(), region.clone());
                    Row { provider, region, class, arm: arm.clone() }
                };
                arms.map(row).collect::<Vec<_>>()
            })
            .collect();
        serde_json::to_value(rows).unwrap_or_default()
    }

    /// What [`save`](Self::save) gave, by a clock that shows `now`, as far as it is about providers that are known.
    pub fn load(
        memory: Memory,
        saved: serde_json::Value,
        now: Moment,
        known: impl Fn(&str) -> bool,
    ) -> Result<Self, serde_json::Error> {
        let mut knowledge = Self::new(memory);
        let rows = serde_json::from_value::<Vec<Row>>(saved)?;
        if rows.iter().any(|row| !row.arm.is_sound(now)) {
            return Err(serde::de::Error::custom("it holds numbers that cannot be"));
        }
        for Row { provider, region, class, arm } in rows.into_iter().filter(|row| known(&row.provider)) {
            let place = knowledge.places.entry((provider, region)).or_default();
            match class {
                None => place.all = arm,
                Some(class) if place.classes.len() < MOST_CLASSES => {
                    place.classes.insert(class, arm);
                }
                Some(_) => {}
            }
        }
        Ok(knowledge)
    }
}

fn record(arm: &mut Arm, result: OutcomeResult, now: Moment, memory: &Memory) {
    match result {
        OutcomeResult::Ready { after } => arm.succeeded(now, after, memory),
        OutcomeResult::Failed { after } => arm.failed(now, after, memory),
    }
}

#[cfg(test)]
mod tests;
