//! What a fleet learned, after a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_catalog::Catalog;
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{CreateOptions, OpContext, Provider, Tasks};
use sandstorm_router::{Decision, Ranked};
use sandstorm_types::{Enforcement, Routing, SandboxSpec, TenantId};

use crate::moody::{Mood, fleet};

fn cx() -> OpContext {
    OpContext::new(TenantId::LOCAL)
}

fn spec() -> SandboxSpec {
    SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() }
}

/// A fleet of healthy members that keeps what it learns in a file.
fn begun(file: &Path, names: &[&str]) -> (Arc<Fleet>, Tasks) {
    let entry = Arc::new(Catalog::embedded().get("local").unwrap().clone());
    let member = |name: &&str| Member::new(Arc::new(MemoryProvider::named(name)), Arc::clone(&entry));
    let tasks = Tasks::default();
    let fleet = Fleet::new(names.iter().map(member).collect(), FleetSettings::default(), 7, tasks.clone());
    fleet.keep_in(file.to_owned());
    (fleet, tasks)
}

/// Asks for `a` first.
async fn use_it(fleet: &Fleet, times: usize) {
    for _ in 0..times {
        let order = Routing { order: vec!["a".to_owned()], ..Routing::default() };
        let options = CreateOptions { routing: Some(Box::new(order)), ..CreateOptions::default() };
        let made = fleet.create(&cx(), &spec(), options).await.unwrap();
        fleet.destroy(&cx(), &made.id).await.unwrap();
    }
}

fn of<'a>(decision: &'a Decision, name: &str) -> &'a Ranked {
    decision.ranked.iter().find(|ranked| ranked.provider == name).unwrap()
}

#[tokio::test]
async fn after_a_restart_the_same_is_expected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("learned.json");
    let (first, tasks) = begun(&file, &["a", "b"]);
    use_it(&first, 40).await;
    let before = first.explain(&spec(), None);
    tasks.stop().await;
    let (second, _tasks) = begun(&file, &["a", "b"]);
    let after = second.explain(&spec(), None);
    let names = |decision: &Decision| -> Vec<String> {
        decision.ranked.iter().map(|ranked| ranked.provider.clone()).collect()
    };
    assert_eq!(names(&after), names(&before));
    for name in ["a", "b"] {
        let (before, after) = (of(&before, name).prediction, of(&after, name).prediction);
        for (before, after) in [
            (before.ready_ms.expected, after.ready_ms.expected),
            (before.p50_ms, after.p50_ms),
            (before.p99_ms, after.p99_ms),
            (before.failure, after.failure),
            (before.samples, after.samples),
        ] {
            assert!((before - after).abs() <= 0.02 * before.abs().max(0.01), "{name}: {before} and {after}");
        }
    }
    assert!(before.ranked.iter().any(|ranked| ranked.prediction.samples > 5.0), "something was learned");
}

#[tokio::test]
async fn who_was_left_alone_is_left_alone_after_a_restart() {
    let moods = [("a", Mood::Fails(sandstorm_types::ErrorKind::Provider)), ("b", Mood::Fine)];
    let (first, _) = fleet(&moods);
    use_it(&first, 10).await;
    assert!(!first.survey(&cx()).await[0].health.may_be_asked());
    let (second, all) = fleet(&moods);
    second.resume(first.learned(), Duration::from_secs(1)).unwrap();
    use_it(&second, 5).await;
    assert_eq!(all[0].asked(), 0);
    // Time went by while nobody was there to see it.
    let (third, all) = fleet(&moods);
    third.resume(first.learned(), Duration::from_secs(7200)).unwrap();
    assert!(third.survey(&cx()).await[0].health.may_be_asked());
    assert_eq!(all[0].asked(), 0);
}

#[tokio::test]
async fn what_is_known_of_members_that_are_gone_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("learned.json");
    let (first, tasks) = begun(&file, &["a"]);
    use_it(&first, 5).await;
    tasks.stop().await;
    let (second, _tasks) = begun(&file, &["b"]);
    assert!(!second.learned().to_string().contains("\"a\""));
    assert!(of(&second.explain(&spec(), None), "b").prediction.samples < 0.5);
}

#[tokio::test]
async fn garbage_and_other_versions_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("learned.json");
    let (first, tasks) = begun(&file, &["a"]);
    use_it(&first, 5).await;
    tasks.stop().await;
    let good = std::fs::read_to_string(&file).unwrap();
    let cut = &good[..good.len() / 2];
    for bad in [
        "",
        "garbage",
        "[]",
        "{}",
        "{\"saved_at_ms\": 1}",
        cut,
        &good.replace("\"version\":1", "\"version\":0"),
        &good.replace("\"version\":1", "\"version\":99"),
        &good.replace("\"factor\":", "\"factor\":-"),
        &good.replace("\"successes\":", "\"successes\":-"),
    ] {
        assert_ne!(bad, good);
        std::fs::write(&file, bad).unwrap();
        let (fleet, tasks) = begun(&file, &["a"]);
        assert!(of(&fleet.explain(&spec(), None), "a").prediction.samples < 0.5, "{bad}");
        use_it(&fleet, 5).await;
        // And it is well again.
        tasks.stop().await;
        let (fleet, _tasks) = begun(&file, &["a"]);
        assert!(of(&fleet.explain(&spec(), None), "a").prediction.samples > 1.0, "{bad}");
    }
}
