//! What the pool tells of itself in numbers. Keys are told apart by what waits in them, which is one of a few words.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram};
use metrics::{gauge, histogram};

use super::key::Key;
use super::stock::{Entry, Stock, Why};

/// The numbers of every kind.
#[derive(Debug)]
pub(super) struct Figures {
    kinds: BTreeMap<String, Figure>,
}

/// The numbers of one kind.
struct Figure {
    ready: Gauge,
    filling: Gauge,
    target: Gauge,
    hits: Counter,
    misses: Counter,
    age: Histogram,
    fill: Histogram,
    fill_failures: Counter,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").finish_non_exhaustive()
    }
}

impl Figures {
    pub(super) fn new<'a>(zygotes: impl Iterator<Item = &'a str>) -> Self {
        describe();
        let figure = |kind: &str| {
            let kind = kind.to_owned();
            Figure {
                ready: gauge!("sandstorm_pool_ready", "kind" => kind.clone()),
                filling: gauge!("sandstorm_pool_filling", "kind" => kind.clone()),
                target: gauge!("sandstorm_pool_target", "kind" => kind.clone()),
                hits: counter!("sandstorm_pool_hits_total", "kind" => kind.clone()),
                misses: counter!("sandstorm_pool_misses_total", "kind" => kind.clone()),
                age: histogram!("sandstorm_pool_age_seconds", "kind" => kind.clone()),
                fill: histogram!("sandstorm_pool_fill_seconds", "kind" => kind.clone()),
                fill_failures: counter!("sandstorm_pool_fill_failures_total", "kind" => kind),
            }
        };
        let kinds = zygotes.chain([Key::BARE]).map(|kind| (kind.to_owned(), figure(kind))).collect();
        Self { kinds }
    }

    pub(super) fn hit(&self, kind: &str, age: Duration) {
        if let Some(figure) = self.kinds.get(kind) {
            figure.hits.increment(1);
            figure.age.record(age.as_secs_f64());
        }
    }

    pub(super) fn miss(&self, kind: &str) {
        if let Some(figure) = self.kinds.get(kind) {
            figure.misses.increment(1);
        }
    }

    pub(super) fn filled(&self, kind: &str, took: Duration) {
        if let Some(figure) = self.kinds.get(kind) {
            figure.fill.record(took.as_secs_f64());
        }
    }

    pub(super) fn fill_failed(&self, kind: &str) {
        if let Some(figure) = self.kinds.get(kind) {
            figure.fill_failures.increment(1);
        }
    }

    pub(super) fn evicted(&self, kind: &str, why: Why) {
        counter!("sandstorm_pool_evicted_total", "kind" => kind.to_owned(), "why" => why.name()).increment(1);
    }

    /// Says what is on the shelves.
    pub(super) fn show<E: Entry>(&self, stock: &Stock<Key, E>) {
        for (kind, figure) in &self.kinds {
            let (mut ready, mut filling, mut target) = (0, 0, 0);
            for (_, shelf) in stock.shelves().filter(|(key, _)| key.label() == kind) {
                ready += shelf.ready();
                filling += shelf.filling();
                target += shelf.granted();
            }
            figure.ready.set(ready as f64);
            figure.filling.set(filling as f64);
            figure.target.set(target as f64);
        }
    }
}

fn describe() {
    describe_gauge!("sandstorm_pool_ready", "Sandboxes that wait to be taken.");
    describe_gauge!("sandstorm_pool_filling", "Sandboxes that are being made ahead.");
    describe_gauge!("sandstorm_pool_target", "Sandboxes that there are to be ready.");
    describe_counter!("sandstorm_pool_hits_total", "Creations that took a sandbox that was ready.");
    describe_counter!("sandstorm_pool_misses_total", "Creations that had to make one.");
    describe_counter!("sandstorm_pool_evicted_total", "Sandboxes that ended unused.");
    describe_counter!("sandstorm_pool_fill_failures_total", "Sandboxes that could not be made ahead.");
    describe_histogram!("sandstorm_pool_age_seconds", "Age of a sandbox when it was taken.");
    describe_histogram!("sandstorm_pool_fill_seconds", "Time to make a sandbox ahead.");
}
