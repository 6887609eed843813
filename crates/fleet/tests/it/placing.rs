//! Bad days of members, and what a caller sees of them: nothing, as long as one is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_provider::{CreateOptions, ListFilter, OpContext, Provider, Result, Sandbox};
use sandstorm_router::{Constraints, RouteRequest};
use sandstorm_types::{Enforcement, ErrorKind, SandboxSpec, TenantId};

use crate::moody::{Mood, Moody, fleet};

fn cx() -> OpContext {
    OpContext::new(TenantId::random())
}

/// One that memory can hold.
fn spec() -> SandboxSpec {
    SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() }
}

/// Tries `a` first, then `b`, then the rest.
fn in_order() -> RouteRequest {
    let order = vec!["a".to_owned(), "b".to_owned()];
    RouteRequest { constraints: Constraints { order, ..Constraints::default() }, ..RouteRequest::default() }
}

async fn place(fleet: &sandstorm_fleet::Fleet) -> Result<Sandbox> {
    fleet.place(&cx(), &spec(), &CreateOptions::default(), &in_order()).await
}

async fn held(one: &Moody) -> usize {
    one.inner.list(&cx(), ListFilter::default()).count().await
}

fn tried(sandbox: &Sandbox) -> Vec<(String, String)> {
    let placement = sandbox.placement.as_ref().expect("a fleet says where it is");
    placement.attempts.iter().map(|attempt| (attempt.provider.clone(), attempt.outcome.clone())).collect()
}

#[tokio::test]
async fn the_next_one_takes_it_and_everything_is_told() {
    let (fleet, all) = fleet(&[("a", Mood::Fails(ErrorKind::Provider)), ("b", Mood::Fine)]);
    let made = place(&fleet).await.unwrap();
    let placement = made.placement.as_ref().unwrap();
    assert_eq!(placement.info.name, "b");
    assert_eq!(tried(&made).last().unwrap(), &("b".to_owned(), "ok".to_owned()));
    assert_eq!(tried(&made)[0], ("a".to_owned(), ErrorKind::Provider.code().to_owned()));
    assert!(!placement.reason.is_empty());
    assert_eq!((held(&all[0]).await, held(&all[1]).await), (0, 1));
    fleet.destroy(&cx(), &made.id).await.unwrap();
    assert_eq!(held(&all[1]).await, 0);
}

#[tokio::test]
async fn what_was_made_in_spite_of_its_error_is_removed() {
    for mood in [Mood::Lies, Mood::Hangs] {
        let (fleet, all) = fleet(&[("a", mood), ("b", Mood::Fine)]);
        let made = place(&fleet).await.unwrap();
        assert_eq!(made.placement.as_ref().unwrap().info.name, "b", "{mood:?}");
        let began = Instant::now();
        while held(&all[0]).await > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "{mood:?} left something");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fleet.destroy(&cx(), &made.id).await.unwrap();
    }
}

#[tokio::test]
async fn whoever_gives_up_leaves_nothing_and_blames_nobody() {
    let (fleet, all) = fleet(&[("a", Mood::Hangs)]);
    let options = CreateOptions::default();
    let spec = spec();
    let cx_of_one = cx();
    let waiting = fleet.create(&cx_of_one, &spec, options.clone());
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    assert_eq!(held(&all[0]).await, 1);
    fleet.destroy(&cx(), &options.id).await.unwrap();
    assert_eq!(held(&all[0]).await, 0);
}

#[tokio::test]
async fn when_all_are_down_each_is_named_and_soon() {
    let down = Mood::Fails(ErrorKind::Capacity);
    let (fleet, _) = fleet(&[("a", down), ("b", down), ("c", down)]);
    let began = Instant::now();
    let error = place(&fleet).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5));
    for name in ["a", "b", "c"] {
        assert!(error.to_string().contains(name), "{error}");
    }
    // Later they are not even asked, until it is time to try again; and the answer says when.
    let mut last = error;
    for _ in 0..20 {
        last = place(&fleet).await.unwrap_err();
    }
    assert_eq!(last.kind(), ErrorKind::Capacity, "{last}");
    assert!(last.retry_after().is_some(), "{last}");
}

#[tokio::test]
async fn one_that_fails_for_the_request_is_the_answer() {
    let (fleet, all) = fleet(&[("a", Mood::Fails(ErrorKind::InvalidRequest)), ("b", Mood::Fine)]);
    let error = place(&fleet).await.unwrap_err();
    assert_eq!((error.kind(), all[1].asked()), (ErrorKind::InvalidRequest, 0));
}

/// With one of three failing at random no caller sees a failure, and the failing one is soon left alone.
#[tokio::test]
async fn a_thousand_requests_survive_a_moody_member() {
    let (fleet, all) = fleet(&[("a", Mood::FailsEvery(2)), ("b", Mood::Fine), ("c", Mood::Fine)]);
    let mut extra = 0;
    for _ in 0..1000 {
        let made = place(&fleet).await.unwrap();
        extra += tried(&made).len() - 1;
        fleet.destroy(&cx(), &made.id).await.unwrap();
    }
    assert!(extra < 300, "{extra} extra attempts");
    let asked: Vec<usize> = all.iter().map(|one| one.asked()).collect();
    assert_eq!(asked.iter().sum::<usize>(), 1000 + extra, "{asked:?}");
    for one in &all {
        assert_eq!(held(one).await, 0);
    }
}

#[tokio::test]
async fn a_sandbox_of_before_is_found_again() {
    let (first, all) = fleet(&[("a", Mood::Fine), ("b", Mood::Fine)]);
    let made = place(&first).await.unwrap();
    let members = all.iter().map(|one| {
        let entry = Arc::new(sandstorm_catalog::Catalog::embedded().get("local").unwrap().clone());
        sandstorm_fleet::Member::new(Arc::clone(one) as Arc<dyn Provider>, entry)
    });
    let second = sandstorm_fleet::Fleet::new(
        members.collect(),
        sandstorm_fleet::FleetSettings::default(),
        8,
        sandstorm_provider::Tasks::default(),
    );
    assert_eq!(second.get(&cx(), &made.id).await.unwrap().id, made.id);
    second.destroy(&cx(), &made.id).await.unwrap();
    assert_eq!(held(&all[0]).await + held(&all[1]).await, 0);
}
