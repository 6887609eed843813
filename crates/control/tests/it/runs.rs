//! One-shot runs: recorded before they are answered, cancelled with who waits.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_control::server::{Quota, RunQuery, Settings};
use sandstorm_provider::{ListFilter, OpContext};
use sandstorm_types::{
    ByteSize, Enforcement, ErrorKind, EventBody, LimitsPatch, RunId, RunSpec, Status, TenantId,
};

use crate::world::{World, eventually, names, settings};

/// The code is printed instead of run; see the world.
pub(crate) fn spec(code: &str) -> RunSpec {
    RunSpec { enforcement: Some(Enforcement::BestEffort), ..RunSpec::new("bash".parse().unwrap(), code) }
}

#[tokio::test]
async fn a_run_is_recorded_before_it_is_answered() {
    let world = World::new().await;
    let caller = world.caller();
    let result = world.control.run(&caller, spec("hello")).await.unwrap();
    assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, "hello"));
    let id: RunId = result.id.parse().unwrap();
    let view = world.control.run_view(&caller, id).await.unwrap();
    assert_eq!((view.status, view.language.as_str()), (Some(Status::Ok), "bash"));
    assert_eq!(view.result.unwrap().stdout, "hello");
    assert_eq!(names(&world, &caller, 3).await, ["execute:start", "execute:success", "execute:complete"]);
    let stranger = world.stranger().await;
    assert_eq!(world.control.run_view(&stranger, id).await.unwrap_err().kind(), ErrorKind::NotFound);
    eventually("its sandbox is gone", || async {
        let cx = OpContext::new(TenantId::LOCAL);
        world.provider.list(&cx, ListFilter::default()).count().await == 0
    })
    .await;
}

#[tokio::test]
async fn indentation_that_all_lines_share_is_removed_where_it_would_be_an_error() {
    let world = World::new().await;
    let code = "\n    import sys\n    if sys:\n        print(1)\n  ";
    let python = RunSpec { language: "python".parse().unwrap(), ..spec(code) };
    let result = world.control.run(&world.caller(), python).await.unwrap();
    assert_eq!(result.stdout, "\nimport sys\nif sys:\n    print(1)\n");
    assert_eq!(world.control.run(&world.caller(), spec(code)).await.unwrap().stdout, code);
}

#[tokio::test]
async fn events_come_as_they_happen_and_end_with_the_result() {
    let world = World::new().await;
    let caller = world.caller();
    let running = world.control.start_run(&caller, spec("some text")).await.unwrap();
    let events: Vec<_> = running.events.collect().await;
    assert!(matches!(events[0].body, EventBody::Start { .. }));
    assert!(matches!(&events[1].body, EventBody::Stdout(chunk) if chunk.data.as_bytes() == b"some text"));
    assert!(matches!(&events[2].body, EventBody::End(end) if end.success));
    assert_eq!(running.result.await.unwrap().unwrap().id, running.id.to_string());
}

#[tokio::test]
async fn a_run_that_is_streamed_is_told_whole() {
    let world = World::new().await;
    let caller = world.caller();
    // Far more than the limit, and than what ends a program without a listener.
    let code = "0123456789abcdef".repeat(16 << 10);
    let limits = LimitsPatch { output: Some(ByteSize::kib(16)), ..LimitsPatch::default() };
    let long = RunSpec { limits, ..spec(&code) };
    let running = world.control.start_run(&caller, long.clone()).await.unwrap();
    let events: Vec<_> = running.events.collect().await;
    let mut told = Vec::new();
    for event in &events {
        if let EventBody::Stdout(chunk) = &event.body {
            told.extend_from_slice(chunk.data.as_bytes());
        }
    }
    assert!(told == code.as_bytes(), "{} of {} bytes", told.len(), code.len());
    let Some(EventBody::End(end)) = events.last().map(|event| &event.body) else { panic!("it has an end") };
    assert!(end.status == Status::Ok && !end.is_cut(), "{end:?}");
    // What is kept of it is less, and says so.
    let result = running.result.await.unwrap().unwrap();
    assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, &code[..16 << 10]));
    assert!(result.truncated.stdout && !result.truncated.stderr);
    let kept = world.control.run_view(&caller, running.id).await.unwrap().result.unwrap();
    assert_eq!((kept.stdout.len(), kept.truncated.stdout), (16 << 10, true));
    // Without a listener the limit holds, and so does the end of what goes far beyond it.
    let answered = world.control.run(&caller, long).await.unwrap();
    assert_eq!((answered.status, answered.stdout.len()), (Status::Output, 16 << 10));
    assert!(answered.truncated.stdout);
}

#[tokio::test]
async fn a_run_that_is_given_up_while_it_begins_is_ended_on_record() {
    let world = World::new().await;
    let caller = world.caller();
    for _ in 0..10 {
        let mut start = Box::pin(world.control.run(&caller, spec("never heard")));
        assert!(futures_util::poll!(&mut start).is_pending());
        drop(start);
    }
    let running = RunQuery { running_only: true, ..RunQuery::default() };
    let list = |query: RunQuery| async { world.control.runs(&caller, query).await.unwrap().items.len() };
    eventually("all are on record", || async { list(RunQuery::default()).await == 10 }).await;
    eventually("nothing runs", || async { list(running.clone()).await == 0 }).await;
}

#[tokio::test]
async fn lists_and_limits() {
    let world = World::new().await;
    let caller = world.caller();
    for number in 0..3 {
        world.control.run(&caller, spec(&number.to_string())).await.unwrap();
    }
    let query = RunQuery { limit: Some(2), ..RunQuery::default() };
    let first = world.control.runs(&caller, query.clone()).await.unwrap();
    let next = RunQuery { cursor: first.next_cursor.clone(), ..query };
    let second = world.control.runs(&caller, next).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next_cursor), (2, 1, None));
    let mut large = spec("x");
    large.limits = LimitsPatch { memory: Some(ByteSize::gib(2)), ..LimitsPatch::default() };
    assert_eq!(world.control.run(&caller, large).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    let usage = world.control.usage(&caller).await.unwrap();
    assert_eq!((usage.runs, usage.sandboxes), (3, 0));
}

#[tokio::test]
async fn the_rate_of_runs_is_bounded() {
    let quota = Quota { runs_per_minute: Some(2), ..settings().quota };
    let world = World::with(Settings { quota, ..settings() }).await;
    let (caller, began) = (world.caller(), Instant::now());
    world.control.run(&caller, spec("1")).await.unwrap();
    world.control.run(&caller, spec("2")).await.unwrap();
    let error = world.control.run(&caller, spec("3")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quota);
    let wait = error.retry_after().unwrap();
    // Half a minute for one of two, less what the runs took.
    let half = Duration::from_secs(30);
    assert!(wait <= half && wait + began.elapsed() >= half, "{wait:?} after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_platform_failure_is_a_problem_and_no_result() {
    let world = World::new().await;
    let caller = world.caller();
    // Strict limits, which the provider in memory does not have.
    let strict = RunSpec { enforcement: Some(Enforcement::Strict), ..spec("x") };
    let running = world.control.start_run(&caller, strict).await.unwrap();
    let events: Vec<_> = running.events.collect().await;
    assert!(matches!(&events.last().unwrap().body, EventBody::End(end) if end.problem.is_some()));
    running.result.await.unwrap().unwrap_err();
    let view = world.control.run_view(&caller, running.id).await.unwrap();
    assert_eq!((view.status, view.result.is_none(), view.problem.is_some()), (None, true, true));
    // Ended ones stay as they are.
    assert!(world.control.cancel_run(&caller, running.id).await.unwrap().problem.is_some());
    assert_eq!(
        world.control.cancel_run(&caller, RunId::random()).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
}
