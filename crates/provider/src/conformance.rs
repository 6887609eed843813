//! The suite that every provider has to pass.
//!
//! Cases are chosen by the provider's capabilities: what it does not claim is skipped and said so, what it
//! claims has to hold. Programs in the cases are those of any small Linux system (`/bin/sh`, `/bin/cat`,
//! `/bin/echo`, `/bin/sleep`), so one suite judges the reference in memory, jails, containers and clouds.
//!
//! ```no_run
//! # async fn judge(provider: &dyn sandstorm_provider::Provider) {
//! let report = sandstorm_provider::conformance::run(provider).await;
//! assert!(report.passed(), "{report}");
//! # }
//! ```

mod archives;
mod background_and_attach;
mod cancel_create;
mod destroy_twice;
mod exec_channel;
mod exec_stdin;
mod exec_streams;
mod exec_tty;
mod files;
mod lifecycle;
mod limits;
mod live_fork;
mod network;
mod pause;
mod report;
mod signals;
mod snapshots;
mod trial;
mod watch;

use std::time::Duration;

use futures_util::future::BoxFuture;
use sandstorm_types::{Capabilities, Enforcement, LimitName, NetworkPolicy, SandboxSpec};
use tokio::time::Instant;

pub use self::report::{CaseReport, Outcome, Report};
use self::trial::{Trial, Verdict};
use crate::Provider;

/// A case that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A field of the capabilities by name.
type Need = (&'static str, fn(&Capabilities) -> bool);

/// One case of the suite.
struct Case {
    suite: &'static str,
    name: &'static str,
    /// Fields of the capabilities without which it is skipped.
    needs: &'static [Need],
    /// A limit that has to be enforced, without which it is skipped.
    limit: Option<LimitName>,
    run: for<'a> fn(&'a Trial<'a>) -> BoxFuture<'a, Verdict>,
}

/// The cases of a module: `case!(name, needs [fields], limit Name)`.
macro_rules! case {
    ($suite:literal, $name:ident, needs [$($field:ident),*]) => {
        case!(@ $suite, $name, [$($field),*], None)
    };
    ($suite:literal, $name:ident, needs [$($field:ident),*], limit $limit:ident) => {
        case!(@ $suite, $name, [$($field),*], Some(sandstorm_types::LimitName::$limit))
    };
    (@ $suite:literal, $name:ident, [$($field:ident),*], $limit:expr) => {
        $crate::conformance::Case {
            suite: $suite,
            name: stringify!($name),
            needs: &[$((stringify!($field), |can| can.$field)),*],
            limit: $limit,
            run: |trial| Box::pin($name(trial)),
        }
    };
}

use case;

/// All cases, in the order in which they run.
fn cases() -> impl Iterator<Item = &'static Case> {
    [
        lifecycle::CASES,
        exec_streams::CASES,
        exec_stdin::CASES,
        exec_tty::CASES,
        exec_channel::CASES,
        background_and_attach::CASES,
        signals::CASES,
        files::CASES,
        archives::CASES,
        watch::CASES,
        limits::CASES,
        network::CASES,
        pause::CASES,
        snapshots::CASES,
        live_fork::CASES,
        cancel_create::CASES,
        destroy_twice::CASES,
    ]
    .into_iter()
    .flatten()
}

/// Judges a provider with sandboxes that ask for as little as possible.
pub async fn run(provider: &dyn Provider) -> Report {
    run_cases(provider, "").await
}

/// Judges a provider by the cases whose `suite/name` starts with `prefix`.
pub async fn run_cases(provider: &dyn Provider, prefix: &str) -> Report {
    let network =
        if provider.capabilities().network_none { NetworkPolicy::None } else { NetworkPolicy::Open };
    let base = SandboxSpec { network, enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    run_with(provider, base, prefix).await
}

/// The same with sandboxes like `base`, for a provider that needs an image or other limits.
pub async fn run_with(provider: &dyn Provider, base: SandboxSpec, prefix: &str) -> Report {
    let can = provider.capabilities();
    let mut report = Report { provider: provider.info().name.clone(), cases: Vec::new() };
    for case in cases().filter(|case| format!("{}/{}", case.suite, case.name).starts_with(prefix)) {
        let start = Instant::now();
        let outcome = match lacking(case, &can) {
            Some(reason) => Outcome::Skipped(reason),
            None => judge(case, provider, &base).await,
        };
        report.cases.push(CaseReport { suite: case.suite, name: case.name, outcome, took: start.elapsed() });
    }
    report
}

fn lacking(case: &Case, can: &Capabilities) -> Option<String> {
    let need =
        case.needs.iter().find(|(_, has)| !has(can)).map(|(field, _)| format!("it does not claim {field}"));
    let limit = case.limit.filter(|limit| !can.limits.contains(*limit));
    need.or_else(|| limit.map(|limit| format!("it does not claim to limit {limit}")))
}

async fn judge(case: &Case, provider: &dyn Provider, base: &SandboxSpec) -> Outcome {
    let trial = Trial::new(provider, base);
    let verdict = tokio::time::timeout(PATIENCE, (case.run)(&trial)).await;
    let left = trial.clean_up().await;
    match (verdict, left) {
        (Err(_), _) => Outcome::Failed(format!("it was not done after {} s", PATIENCE.as_secs())),
        (Ok(Err(trial::Failure::Failed(reason))), _) => Outcome::Failed(reason),
        (Ok(Ok(())), Err(reason)) => Outcome::Failed(reason),
        (Ok(Ok(())), Ok(())) => Outcome::Passed,
        (Ok(Err(trial::Failure::Skipped(reason))), _) => Outcome::Skipped(reason),
    }
}
