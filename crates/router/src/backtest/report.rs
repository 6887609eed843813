//! All arms beside each other, and whether what is promised holds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::always::Always;
use super::arm::replay;
use super::figures::{Collected, Figures, Spread};
use super::options::{Options, Policy};
use super::policy::Routed;
use super::trace::{Mode, Trace, TraceError};
use super::world::World;

/// A back-test's outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub mode: Mode,
    pub days: usize,
    pub requests_per_day: u32,
    pub seeds: Vec<u64>,
    /// Providers of the trace that were left out because nobody knows their price.
    pub unpriced: Vec<String>,
    /// The provider that had the best median in hindsight, of those that were there on nine days of ten.
    pub best: String,
    /// The one with the lowest cost, likewise.
    pub cheapest: String,
    pub rows: Vec<Row>,
    pub verdicts: Vec<Verdict>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// Whether it is a policy of the router, or always one provider.
    pub routed: bool,
    /// Days on which it could be used; `None` for the router.
    pub days: Option<usize>,
    pub p50_ms: Spread,
    pub p95_ms: Spread,
    pub p99_ms: Spread,
    pub failures: Spread,
    pub extra_attempts: Spread,
    pub probes: Spread,
    pub usd_per_1000: Spread,
    /// Mean time above that of the best provider in hindsight; negative: better than any single one.
    pub regret_ms: Spread,
    /// By seed, in the order of the seeds.
    pub figures: Vec<Figures>,
}

/// Whether a promise holds, by the median over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub promise: String,
    pub holds: bool,
    pub found: f64,
    pub allowed: f64,
    /// With how many seeds it holds by itself.
    pub seeds: usize,
}

/// What one arm paid on each day, for each seed.
type Paid = Vec<Vec<Collected>>;

/// Replays a trace.
pub fn run(trace: &Trace, options: &Options) -> Result<Report, TraceError> {
    let world = World::new(trace, options)?;
    let requests = options.requests_per_day;
    let by_seed =
        |serve: &dyn Fn(u64) -> Vec<Collected>| options.seeds.iter().map(|&seed| serve(seed)).collect();
    let always = |name: &str| -> Paid {
        by_seed(&|seed| replay(&world, requests, &mut Always::new(name, seed, options)))
    };
    let routed = |policy: Policy| -> Paid {
        by_seed(&|seed| replay(&world, requests, &mut Routed::new(policy, seed, options)))
    };
    let routed: Vec<(Policy, Paid)> =
        Policy::ALL.into_iter().map(|policy| (policy, routed(policy))).collect();
    let days_of = |name: &str| world.days.iter().filter(|day| day.providers.contains_key(name)).count();
    // The first day is for learning and counts for nobody.
    let everything = |_: usize| true;
    let always: BTreeMap<&str, Vec<Figures>> = world
        .providers()
        .map(|name| (name, figures(&always(name), everything)))
        .filter(|(_, figures)| figures.iter().all(|figures| figures.requests > 0))
        .collect();
    let comparable = |name: &str| days_of(name) * 10 >= world.days.len() * 9;
    let least = |figure: &dyn Fn(&Figures) -> f64| {
        let median = |figures: &[Figures]| Spread::of(figures.iter().map(figure)).median;
        let arms = always.iter().filter(|(name, _)| comparable(name));
        arms.min_by(|(_, a), (_, b)| median(a).total_cmp(&median(b))).ok_or(TraceError::Empty(options.mode))
    };
    let (&best, best_figures) = least(&|figures| figures.p50_ms)?;
    let (&cheapest, cheapest_figures) = least(&|figures| figures.usd_per_1000)?;
    let (_, quickest) = least(&|figures| figures.mean_ms)?;
    let mut rows: Vec<Row> = routed
        .iter()
        .map(|(policy, paid)| row(policy.name(), None, &figures(paid, everything), quickest))
        .collect();
    let baseline = |(name, figures): (&&str, &Vec<Figures>)| {
        row(&format!("always {name}"), Some(days_of(name)), figures, quickest)
    };
    let mut baselines: Vec<Row> = always.iter().map(baseline).collect();
    baselines.sort_by(|a, b| a.p50_ms.median.total_cmp(&b.p50_ms.median));
    rows.extend(baselines);
    // Promises are judged on the days on which the provider was there that they compare with.
    let common = |policy: Policy, name: &str| {
        let paid = routed.iter().find(|(other, _)| *other == policy).map(|(_, paid)| paid);
        let there = |day: usize| world.days[day].providers.contains_key(name);
        paid.map(|paid| figures(paid, there)).unwrap_or_default()
    };
    let mut verdicts: Vec<Verdict> =
        routed.iter().map(|(policy, paid)| no_failures(*policy, &figures(paid, everything))).collect();
    verdicts.extend(as_fast(&common(Policy::Fastest, best), best_figures));
    verdicts.push(as_cheap(&common(Policy::Cheapest, cheapest), cheapest_figures));
    Ok(Report {
        mode: options.mode,
        days: world.days.len(),
        requests_per_day: requests,
        seeds: options.seeds.clone(),
        unpriced: world.unpriced.clone(),
        best: best.to_owned(),
        cheapest: cheapest.to_owned(),
        rows,
        verdicts,
    })
}

/// For each seed, of all days but the first that `keep` wants.
fn figures(paid: &Paid, keep: impl Fn(usize) -> bool) -> Vec<Figures> {
    let of = |days: &Vec<Collected>| {
        let kept = days.iter().enumerate().skip(1).filter(|(day, _)| keep(*day));
        Collected::figures(kept.map(|(_, collected)| collected))
    };
    paid.iter().map(of).collect()
}

fn row(name: &str, days: Option<usize>, figures: &[Figures], quickest: &[Figures]) -> Row {
    let spread = |figure: &dyn Fn(&Figures) -> f64| Spread::of(figures.iter().map(figure));
    Row {
        name: name.to_owned(),
        routed: days.is_none(),
        days,
        p50_ms: spread(&|figures| figures.p50_ms),
        p95_ms: spread(&|figures| figures.p95_ms),
        p99_ms: spread(&|figures| figures.p99_ms),
        failures: spread(&|figures| figures.failures.into()),
        extra_attempts: spread(&|figures| figures.extra_attempts.into()),
        probes: spread(&|figures| figures.probes.into()),
        usd_per_1000: spread(&|figures| figures.usd_per_1000),
        regret_ms: Spread::of(figures.iter().zip(quickest).map(|(ours, best)| ours.mean_ms - best.mean_ms)),
        figures: figures.to_vec(),
    }
}

/// Time of the best provider that the router may add to the median, and of the cheapest to the cost.
const MEDIAN_SLACK: f64 = 1.10;
const COST_SLACK: f64 = 1.02;

fn no_failures(policy: Policy, figures: &[Figures]) -> Verdict {
    let none = vec![0.0; figures.len()];
    judge(format!("{}: no failures", policy.name()), each(figures, |figures| figures.failures.into()), none)
}

fn as_fast(routed: &[Figures], best: &[Figures]) -> [Verdict; 2] {
    let (median, slow) = (|figures: &Figures| figures.p50_ms, |figures: &Figures| figures.p99_ms);
    let allowed = each(best, median).into_iter().map(|ms| ms * MEDIAN_SLACK).collect();
    [
        judge("fastest: p50 within 10 % of the best".to_owned(), each(routed, median), allowed),
        judge("fastest: p99 no worse than the best".to_owned(), each(routed, slow), each(best, slow)),
    ]
}

fn as_cheap(routed: &[Figures], cheapest: &[Figures]) -> Verdict {
    let cost = |figures: &Figures| figures.usd_per_1000;
    let allowed = each(cheapest, cost).into_iter().map(|usd| usd * COST_SLACK).collect();
    judge("cheapest: cost within 2 % of the cheapest".to_owned(), each(routed, cost), allowed)
}

fn judge(promise: String, found: Vec<f64>, allowed: Vec<f64>) -> Verdict {
    let seeds = found.iter().zip(&allowed).filter(|(found, allowed)| found <= allowed).count();
    let (found, allowed) = (Spread::of(found).median, Spread::of(allowed).median);
    Verdict { promise, holds: found <= allowed, found, allowed, seeds }
}

fn each(figures: &[Figures], figure: fn(&Figures) -> f64) -> Vec<f64> {
    figures.iter().map(figure).collect()
}
