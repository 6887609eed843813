//! What would have happened: the same for every arm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_catalog::{Catalog, Date, Overrides, PriceModel, ProviderEntry, ProviderOverride, Usage, Usd};
use sandstorm_types::{Capabilities, Isolation, LimitSet};

use super::options::Options;
use super::trace::{Day, Trace, TraceError};
use crate::prediction::millis;
use crate::{Candidate, Moment, Random};

/// Who draws: requests and probes of one moment do not share their luck.
#[derive(Debug, Clone, Copy)]
pub(super) enum Drawn {
    Request(u32),
    Probe(u32),
}

/// The days of one mode, with the providers that can be used on each.
pub(super) struct World {
    pub(super) days: Vec<WorldDay>,
    entries: BTreeMap<String, Arc<ProviderEntry>>,
    /// Providers of the trace that have no price.
    pub(super) unpriced: Vec<String>,
    options: Options,
}

pub(super) struct WorldDay {
    pub(super) date: Date,
    pub(super) providers: BTreeMap<String, Day>,
    pub(super) candidates: Vec<Candidate>,
}

impl World {
    pub(super) fn new(trace: &Trace, options: &Options) -> Result<Self, TraceError> {
        let days = trace.days(options.mode)?;
        let mut entries = BTreeMap::new();
        let mut unpriced = Vec::new();
        for name in days.values().flat_map(BTreeMap::keys) {
            if entries.contains_key(name) || unpriced.contains(name) {
                continue;
            }
            match priced(name, options.unpriced_hour) {
                Some(entry) => drop(entries.insert(name.clone(), Arc::new(entry))),
                None => unpriced.push(name.clone()),
            }
        }
        let day = |(date, rows): (&Date, &BTreeMap<String, Day>)| {
            let known =
                |(name, day): (&String, &Day)| entries.contains_key(name).then(|| (name.clone(), *day));
            let providers: BTreeMap<_, _> = rows.iter().filter_map(known).collect();
            let candidates = providers.keys().map(|name| candidate(name, &entries[name])).collect();
            WorldDay { date: *date, providers, candidates }
        };
        let days = days.iter().map(day).collect();
        Ok(Self { days, entries, unpriced, options: options.clone() })
    }

    pub(super) fn providers(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// When the request or probe of this number happens; requests are spread evenly over the day.
    pub(super) fn moment(&self, day: &WorldDay, number: u32) -> Moment {
        let spacing = Duration::from_secs(86_400) / self.options.requests_per_day.max(1);
        let start = u64::try_from(day.date.start().millis()).unwrap_or(0).saturating_mul(1000);
        Moment::from_micros(start).after(spacing.saturating_mul(number))
    }

    /// What an attempt there takes in milliseconds; `None`: it fails.
    pub(super) fn attempt(&self, seed: u64, day: &WorldDay, provider: &str, drawn: Drawn) -> Option<f64> {
        let figures = day.providers.get(provider)?;
        let (kind, number) = match drawn {
            Drawn::Request(number) => (0, number),
            Drawn::Probe(number) => (1, number),
        };
        let date = day.date.start().millis().unsigned_abs();
        let mut random = Random::of(&[seed, kind, date, number.into(), hash(provider)]);
        let (fails, share) = (random.share() < figures.failure, random.share());
        if fails { None } else { figures.quantile(share) }
    }

    /// What a sandbox costs that was there for so long. Time in which it is made or fails is billed as well: not every
    /// provider does, but it is the same in every arm.
    pub(super) fn cost(&self, provider: &str, ms: f64) -> Usd {
        let (wall, options) = (millis(ms), &self.options);
        let cpu =
            wall.as_micros() * u128::from(options.demand.cpus.milli()) * u128::from(options.cpu_permille);
        let cpu = Duration::from_micros(u64::try_from(cpu / 1_000_000).unwrap_or(u64::MAX));
        let usage = Usage::of(&options.demand, wall, cpu);
        let charge = self.entries.get(provider).and_then(|entry| entry.charge(&usage).ok());
        charge.map(|charge| charge.total()).unwrap_or_default()
    }
}

fn priced(name: &str, hour: Option<Usd>) -> Option<ProviderEntry> {
    let listed = Catalog::embedded().get(name).filter(|entry| entry.price.figure.is_known());
    if let Some(entry) = listed {
        return Some(entry.clone());
    }
    let price = PriceModel::Owned { vcpu_hour: hour?, gib_hour: Usd::ZERO };
    let assumed =
        ProviderOverride { like: Some("local".into()), price: Some(price), ..ProviderOverride::default() };
    let overrides = Overrides { providers: [(name.to_owned(), assumed)].into() };
    Catalog::embedded().with(&overrides).ok()?.get(name).cloned()
}

/// Able to do anything: this is about time and money.
fn candidate(name: &str, entry: &Arc<ProviderEntry>) -> Candidate {
    let capabilities =
        Capabilities { isolation: Isolation::MicroVm, limits: LimitSet::all(), ..Capabilities::default() };
    Candidate::new(name, capabilities, Arc::clone(entry))
}

/// FNV-1a: the same on every machine and in every version, which the standard library's does not promise.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
