//! Runs that are answered with an earlier result.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_control::server::{Caller, Control, RunCacheLimits, Settings};
use sandstorm_types::{
    Enforcement, ErrorKind, EventBody, LimitsPatch, NetworkPolicy, RunId, RunResult, RunSpec, Status,
};

use crate::world::{World, names, settings};

/// The code is printed instead of run; see the world.
fn spec(code: &str) -> RunSpec {
    RunSpec {
        enforcement: Some(Enforcement::BestEffort),
        cache: true,
        ..RunSpec::new("bash".parse().unwrap(), code)
    }
}

async fn run(control: &Control, caller: &Caller, spec: RunSpec) -> RunResult {
    control.run(caller, spec).await.unwrap()
}

#[tokio::test]
async fn the_same_run_again_is_answered_with_the_earlier_result() {
    let world = World::new().await;
    let caller = world.caller();
    let first = run(&world.control, &caller, spec("hello")).await;
    assert_eq!((first.stdout.as_str(), &first.cached_from), ("hello", &None));
    let second = run(&world.control, &caller, spec("hello")).await;
    assert_eq!((second.status, second.stdout.as_str()), (Status::Ok, "hello"));
    assert_eq!(second.cached_from.as_deref(), Some(first.id.as_str()));
    assert_ne!(second.id, first.id);
    assert_eq!((second.metrics.cpu_ms, second.metrics.exec_ms), (0.0, 0.0));
    // It is a run like any other: a record, an audit record, events.
    let id: RunId = second.id.parse().unwrap();
    let view = world.control.run_view(&caller, id).await.unwrap();
    assert_eq!((view.status, view.result.unwrap().cached_from), (Some(Status::Ok), second.cached_from));
    let audit = world.store.audit(None, 0, 100).await.unwrap();
    let of_it = audit.iter().filter(|row| row.audit.object == second.id).count();
    assert_eq!(of_it, 1);
    let ran = ["execute:start", "execute:success", "execute:complete"];
    assert_eq!(names(&world, &caller, 6).await, [ran, ran].concat());
    let usage = world.control.usage(&caller).await.unwrap();
    assert_eq!((usage.runs, usage.cached_runs), (1, 1));
    // One that does not ask for it is carried out, and so is one that did not ask before.
    let third = run(&world.control, &caller, RunSpec { cache: false, ..spec("hello") }).await;
    assert_eq!(third.cached_from, None);
}

#[tokio::test]
async fn events_of_an_earlier_result_are_those_of_a_run() {
    let world = World::new().await;
    let caller = world.caller();
    run(&world.control, &caller, spec("some text")).await;
    let running = world.control.start_run(&caller, spec("some text")).await.unwrap();
    let events: Vec<_> = running.events.collect().await;
    assert!(matches!(events[0].body, EventBody::Start { .. }));
    assert!(matches!(&events[1].body, EventBody::Stdout(chunk) if chunk.data.as_bytes() == b"some text"));
    assert!(matches!(&events[2].body, EventBody::End(end) if end.success));
    assert!(running.result.await.unwrap().unwrap().cached_from.is_some());
}

#[tokio::test]
async fn another_tenant_never_gets_it() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    run(&world.control, &caller, spec("secret")).await;
    assert_eq!(run(&world.control, &stranger, spec("secret")).await.cached_from, None);
    let own = run(&world.control, &stranger, spec("secret")).await.cached_from.unwrap();
    world.control.run_view(&stranger, own.parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn one_byte_makes_another_run() {
    let world = World::new().await;
    let caller = world.caller();
    let mut base = spec("code");
    for name in ["a", "b", "data"] {
        base.files.insert(name.parse().unwrap(), "content".into());
    }
    base.args = vec!["a".into(), "b".into()];
    base.stdin = "in".into();
    base.env.insert("A".parse().unwrap(), "1".to_owned()).unwrap();
    run(&world.control, &caller, base.clone()).await;
    let mut others = vec![base.clone(); 9];
    others[0].code = "codf".into();
    others[1].files.insert("data".parse().unwrap(), "contenu".into());
    others[2].files.insert("datb".parse().unwrap(), "".into());
    others[3].args = vec!["b".into(), "a".into()];
    others[4].stdin = "im".into();
    others[5].env.insert("A".parse().unwrap(), "2".to_owned()).unwrap();
    others[6].limits = LimitsPatch { wall: Some(Duration::from_secs(19)), ..LimitsPatch::default() };
    others[7].enforcement = None;
    others[8].language = "python".parse().unwrap();
    for (index, other) in others.into_iter().enumerate() {
        let cached = run(&world.control, &caller, other).await.cached_from;
        // What is left out is filled in: best effort is what this server does.
        assert_eq!(cached.is_some(), index == 7, "change {index}");
    }
    assert!(run(&world.control, &caller, base).await.cached_from.is_some());
}

#[tokio::test]
async fn with_network_it_is_refused() {
    let world = World::new().await;
    let error = world
        .control
        .run(&world.caller(), RunSpec { network: NetworkPolicy::Open, ..spec("x") })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn what_fails_is_carried_out_again() {
    let world = World::new().await;
    let caller = world.caller();
    // `cat` of a file that is not there.
    let failing = RunSpec { args: vec!["/nowhere".into()], ..spec("x") };
    let first = run(&world.control, &caller, failing.clone()).await;
    assert_eq!(first.status, Status::Error);
    assert_eq!(run(&world.control, &caller, failing).await.cached_from, None);
    // The provider's own failure is nobody's result.
    let strict = RunSpec { enforcement: Some(Enforcement::Strict), ..spec("x") };
    world.control.run(&caller, strict.clone()).await.unwrap_err();
    world.control.run(&caller, strict).await.unwrap_err();
}

#[tokio::test]
async fn switched_off_everything_is_carried_out() {
    let off = RunCacheLimits { max_bytes: 0, ..RunCacheLimits::default() };
    let world = World::with(Settings { run_cache: off, ..settings() }).await;
    let caller = world.caller();
    run(&world.control, &caller, spec("x")).await;
    assert_eq!(run(&world.control, &caller, spec("x")).await.cached_from, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_run_once() {
    let world = Arc::new(World::new().await);
    let caller = world.caller();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (world, caller) = (Arc::clone(&world), caller.clone());
        tasks.spawn(async move { run(&world.control, &caller, spec("once")).await });
    }
    let results = tasks.join_all().await;
    let carried_out: Vec<_> = results.iter().filter(|result| result.cached_from.is_none()).collect();
    assert_eq!(carried_out.len(), 1);
    let from: HashSet<_> = results.iter().filter_map(|result| result.cached_from.as_deref()).collect();
    assert_eq!(from, HashSet::from([carried_out[0].id.as_str()]));
    assert!(results.iter().all(|result| result.stdout == "once"));
    let usage = world.control.usage(&caller).await.unwrap();
    assert_eq!((usage.runs, usage.cached_runs), (1, 19));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_for_one_that_was_given_up_goes_on() {
    let world = World::new().await;
    let caller = world.caller();
    let first = world.control.start_run(&caller, spec("mine")).await.unwrap();
    let giving_up = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(first);
    };
    let (second, ()) = tokio::join!(run(&world.control, &caller, spec("mine")), giving_up);
    assert_eq!(second.stdout, "mine");
}
