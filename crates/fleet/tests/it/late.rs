//! Members that come late, and creations beside slow ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_catalog::Catalog;
use sandstorm_fleet::{Connect, Fleet, FleetSettings, Late, Member};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{CreateOptions, Error, ListFilter, OpContext, Provider, ProviderInfo, Tasks};
use sandstorm_router::failover::HedgeRules;
use sandstorm_types::{Enforcement, ErrorKind, SandboxSpec, TenantId};

use crate::moody::{Mood, fleet_with};

fn cx() -> OpContext {
    OpContext::new(TenantId::random())
}

fn spec() -> SandboxSpec {
    SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_late_is_used_from_then_on() {
    let tries = Arc::new(AtomicUsize::new(0));
    let connect: Connect = Box::new(move || {
        let turn = tries.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match turn {
                0 | 1 => Err(Error::new(ErrorKind::Provider, "nobody is at home")),
                _ => Ok(Arc::new(MemoryProvider::named("late")) as Arc<dyn Provider>),
            }
        })
    });
    let tasks = Tasks::default();
    let info = ProviderInfo { name: "late".to_owned(), kind: "memory".to_owned(), region: None };
    let late = Late::reach(info, connect, &tasks);
    let entry = Arc::new(Catalog::embedded().get("local").unwrap().clone());
    let member = Member::new(Arc::new(late.clone()), entry);
    let fleet = Fleet::new(vec![member], FleetSettings::default(), 7, tasks);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = fleet.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("nobody is at home"), "{error}");
    assert!(!error.to_string().contains("template_host"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Capacity, "it may be there soon");
    assert!(fleet.list(&cx(), ListFilter::default()).next().await.unwrap().is_err());
    assert!(late.wait(Duration::from_secs(10)).await);
    let made = fleet.create(&cx(), &spec(), CreateOptions::default()).await.unwrap();
    assert_eq!(made.placement.unwrap().info.name, "late");
}

#[tokio::test(start_paused = true)]
async fn a_slow_creation_is_joined_by_another_and_the_loser_is_destroyed() {
    let settings = FleetSettings {
        patience: Duration::from_secs(3600),
        hedge: Some(HedgeRules::default()),
        ..FleetSettings::default()
    };
    let (fleet, all) = fleet_with(settings, &[("a", Mood::Hangs), ("b", Mood::Fine)]);
    let routing = sandstorm_types::Routing {
        objective: Some(sandstorm_types::Objective::Fastest),
        order: vec!["a".to_owned()],
        ..Default::default()
    };
    let options = CreateOptions { routing: Some(Box::new(routing)), ..CreateOptions::default() };
    let made = fleet.create(&cx(), &spec(), options).await.unwrap();
    let placement = made.placement.unwrap();
    let tried: Vec<_> =
        placement.attempts.iter().map(|one| (one.provider.as_str(), one.outcome.as_str())).collect();
    assert_eq!(tried, [("a", "hedged"), ("b", "ok")]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(all[0].inner.list(&cx(), ListFilter::default()).count().await, 0);
    assert_eq!(all[1].inner.list(&cx(), ListFilter::default()).count().await, 1);
}

#[tokio::test(start_paused = true)]
async fn members_that_nobody_uses_are_probed_and_nothing_is_left() {
    let settings = FleetSettings { probe: spec(), ..FleetSettings::default() };
    let (fleet, all) = fleet_with(settings, &[("a", Mood::Fine), ("b", Mood::Fine)]);
    fleet.start_probing();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked: usize = all.iter().map(|one| one.asked()).sum();
    assert!((1..=32).contains(&asked), "{asked} probes in ten minutes");
    for one in &all {
        assert_eq!(one.inner.list(&cx(), ListFilter::default()).count().await, 0);
    }
}
