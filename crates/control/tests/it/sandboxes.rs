//! Sandboxes: made, found, listed, ended; quotas and admission.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_control::server::{
    EventBodyView, EventFilter, NewExec, NewSandbox, Quota, SandboxQuery, Settings,
};
use sandstorm_provider::{ExecSignal, ListFilter, OpContext};
use sandstorm_types::{ByteSize, ErrorKind, LimitsPatch, OnEnd, Phase, RunSpec, SandboxId, TenantId};

use crate::world::{PATIENCE, World, eventually, name, names, plain, settings, shell, soon_enough};

async fn living(world: &World) -> usize {
    let cx = OpContext::new(TenantId::LOCAL);
    world.provider.list(&cx, ListFilter::default()).count().await
}

#[tokio::test]
async fn a_life_is_told_in_order() {
    let world = World::new().await;
    let caller = world.caller();
    let view = world.control.create_sandbox(&caller, plain()).await.unwrap();
    assert_eq!(view.phase, Phase::Ready);
    assert_eq!(view.spec.limits.memory, ByteSize::mib(64));
    assert_eq!(world.control.pause_sandbox(&caller, view.id).await.unwrap().phase, Phase::Paused);
    assert_eq!(world.control.pause_sandbox(&caller, view.id).await.unwrap().phase, Phase::Paused);
    let refused = world.control.exec(&caller, view.id, shell("true")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.message().contains(&format!("sandstorm sandbox resume {}", view.id)), "{refused}");
    assert_eq!(world.control.resume_sandbox(&caller, view.id).await.unwrap().phase, Phase::Ready);
    assert_eq!(world.control.resume_sandbox(&caller, view.id).await.unwrap().phase, Phase::Ready);
    world.control.delete_sandbox(&caller, view.id).await.unwrap();
    world.control.delete_sandbox(&caller, view.id).await.unwrap();
    assert_eq!(world.control.sandbox(&caller, view.id).await.unwrap().phase, Phase::Terminated);
    assert_eq!(living(&world).await, 0);
    // A stream of one sandbox that ended holds everything and ends.
    let filter = EventFilter { sandbox: Some(view.id), after: Some(0) };
    let events: Vec<_> =
        world.control.events(&caller, filter).await.unwrap().map(|e| name(&e)).collect().await;
    let states = ["creating", "ready", "pausing", "paused", "resuming", "ready", "terminating", "terminated"];
    assert_eq!(events, states.map(|state| format!("sandbox:{state}")));
    let late = EventFilter { sandbox: Some(view.id), after: None };
    assert_eq!(world.control.events(&caller, late).await.unwrap().count().await, 0);
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let (foreign, absent) = (id, SandboxId::random());
    let control = &world.control;
    for (one, other) in [
        (
            control.sandbox(&stranger, foreign).await.map(drop),
            control.sandbox(&stranger, absent).await.map(drop),
        ),
        (control.delete_sandbox(&stranger, foreign).await, control.delete_sandbox(&stranger, absent).await),
        (
            control.exec(&stranger, foreign, shell("true")).await.map(drop),
            control.exec(&stranger, absent, shell("true")).await.map(drop),
        ),
        (
            control.pause_sandbox(&stranger, foreign).await.map(drop),
            control.pause_sandbox(&stranger, absent).await.map(drop),
        ),
        (
            control.extend_sandbox(&stranger, foreign, Duration::from_secs(9)).await.map(drop),
            control.extend_sandbox(&stranger, absent, Duration::from_secs(9)).await.map(drop),
        ),
        (
            control.contexts(&stranger, foreign).await.map(drop),
            control.contexts(&stranger, absent).await.map(drop),
        ),
        (
            control.metrics(&stranger, foreign, None, None).await.map(drop),
            control.metrics(&stranger, absent, None, None).await.map(drop),
        ),
        (
            control.connect(&stranger, foreign, 80).await.map(drop),
            control.connect(&stranger, absent, 80).await.map(drop),
        ),
    ] {
        let (one, other) = (one.unwrap_err(), other.unwrap_err());
        assert_eq!(one.kind(), ErrorKind::NotFound);
        assert_eq!(one.to_string(), other.to_string());
    }
    assert!(control.sandboxes(&stranger, SandboxQuery::default()).await.unwrap().items.is_empty());
    assert_eq!(names(&world, &stranger, 0).await, Vec::<String>::new());
    assert_eq!(control.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.control.create_sandbox(&caller, plain()).await.unwrap().id);
    }
    world.control.delete_sandbox(&caller, made[0]).await.unwrap();
    let query = SandboxQuery { limit: Some(2), ..SandboxQuery::default() };
    let first = world.control.sandboxes(&caller, query.clone()).await.unwrap();
    assert_eq!(first.items.len(), 2);
    let cursor = first.next_cursor.clone();
    let next = SandboxQuery { cursor: cursor.clone(), ..query.clone() };
    let second = world.control.sandboxes(&caller, next.clone()).await.unwrap();
    assert_eq!(second.next_cursor, None);
    let mut seen: Vec<_> = first.items.iter().chain(&second.items).map(|view| view.id).collect();
    seen.sort();
    let mut wanted = made[1..].to_vec();
    wanted.sort();
    assert_eq!(seen, wanted);
    // Of another tenant, or with other filters, the cursor is worth nothing.
    assert!(world.control.sandboxes(&stranger, next.clone()).await.is_err());
    let other = SandboxQuery { include_ended: true, ..next };
    assert!(world.control.sandboxes(&caller, other).await.is_err());
    let ended = SandboxQuery { phases: vec![Phase::Terminated], ..SandboxQuery::default() };
    assert_eq!(world.control.sandboxes(&caller, ended).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn running_is_shown_and_filtered() {
    let world = World::new().await;
    let caller = world.caller();
    let busy = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let idle = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let mut long = shell("sleep 60");
    long.background = true;
    world.control.exec(&caller, busy, long).await.unwrap();
    let of = |phase: Phase| SandboxQuery { phases: vec![phase], limit: Some(1), ..SandboxQuery::default() };
    let running = world.control.sandboxes(&caller, of(Phase::Running)).await.unwrap();
    assert_eq!(running.items.iter().map(|view| view.id).collect::<Vec<_>>(), [busy]);
    let ready = world.control.sandboxes(&caller, of(Phase::Ready)).await.unwrap();
    assert_eq!(ready.items.iter().map(|view| view.id).collect::<Vec<_>>(), [idle]);
    assert_eq!(world.control.sandbox(&caller, busy).await.unwrap().execs_running, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_against_a_crowd() {
    let quota = Quota { sandboxes: 7, ..settings().quota };
    let world = Arc::new(World::with(Settings { quota, ..settings() }).await);
    let caller = world.caller();
    let creates = (0..100).map(|_| world.control.create_sandbox(&caller, plain()));
    let results = futures_util::future::join_all(creates).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 7);
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Quota);
        assert!(error.retry_after().is_some());
    }
    assert_eq!(living(&world).await, 7);
}

/// One whose packages are installed first.
fn with_packages() -> NewSandbox {
    let requirements = [("python".parse().unwrap(), vec!["six".parse().unwrap()])];
    NewSandbox { requirements: requirements.into(), ..plain() }
}

fn c() -> RunSpec {
    RunSpec { language: "c".parse().unwrap(), ..crate::runs::spec("int main(void) { return 0; }") }
}

#[tokio::test]
async fn what_is_installed_and_compiled_for_a_tenant_is_within_its_quota() {
    let most = Quota { memory_bytes: 64 << 30, cpu_milli: 64_000, ..settings().quota };
    for quota in [Quota { memory_bytes: 1 << 30, ..most }, Quota { cpu_milli: 2500, ..most }] {
        let world = World::installing(Settings { quota, ..settings() }).await;
        let caller = world.caller();
        let beside = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
        let created = world.control.create_sandbox(&caller, with_packages()).await.unwrap_err();
        assert_eq!(created.kind(), ErrorKind::Quota, "{created}");
        assert!(created.retry_after().is_some());
        let ran = world.control.run(&caller, c()).await.unwrap_err();
        assert_eq!(ran.kind(), ErrorKind::Quota, "{ran}");
        // What was refused holds nothing, and who needs neither finds room.
        let second = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
        for id in [beside, second] {
            world.control.delete_sandbox(&caller, id).await.unwrap();
        }
        // Alone they get what the quota has, and not what they never could have. Nothing can be installed and compiled here.
        let created = world.control.create_sandbox(&caller, with_packages()).await.unwrap_err();
        let ran = world.control.run(&caller, c()).await.unwrap_err();
        for error in [created, ran] {
            assert!(!matches!(error.kind(), ErrorKind::Quota | ErrorKind::Capacity), "{error}");
        }
    }
}

#[tokio::test]
async fn memory_is_promised_once() {
    let full = async |admission_wait| {
        let settings = Settings {
            admission_memory: ByteSize::mib(128),
            admission_wait,
            admission_queue: 1,
            ..settings()
        };
        let world = World::with(settings).await;
        let caller = world.caller();
        let first = world.control.create_sandbox(&caller, plain()).await.unwrap();
        let second = world.control.create_sandbox(&caller, plain()).await.unwrap();
        // Paused ones still count.
        world.control.pause_sandbox(&caller, second.id).await.unwrap();
        (world, caller, first)
    };
    let (world, caller, _) = full(Duration::from_millis(300)).await;
    let refused = world.control.create_sandbox(&caller, plain()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    assert!(refused.retry_after().is_some());
    // Whoever waits long enough gets what another gives back.
    let (world, caller, first) = full(PATIENCE).await;
    let (waiting, ()) = tokio::join!(world.control.create_sandbox(&caller, plain()), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.control.delete_sandbox(&caller, first.id).await.unwrap();
    });
    assert_eq!(waiting.unwrap().phase, Phase::Ready);
}

#[tokio::test]
async fn more_than_the_ceiling_is_refused() {
    let world = World::new().await;
    let caller = world.caller();
    let limits = LimitsPatch { memory: Some(ByteSize::gib(2)), ..LimitsPatch::default() };
    let error = world.control.create_sandbox(&caller, NewSandbox { limits, ..plain() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("memory"), "{error}");
    let forever = NewSandbox { lifetime: Some(Duration::from_secs(86_401)), ..plain() };
    assert_eq!(
        world.control.create_sandbox(&caller, forever).await.unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
    assert_eq!(names(&world, &caller, 0).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_creation_that_nobody_waits_for_leaves_nothing() {
    let world = World::new().await;
    let caller = world.caller();
    for _ in 0..20 {
        let mut create = Box::pin(world.control.create_sandbox(&caller, plain()));
        assert!(futures_util::poll!(&mut create).is_pending());
        drop(create);
    }
    eventually("nothing is left", || async {
        let query = SandboxQuery { include_ended: true, ..SandboxQuery::default() };
        let all = world.control.sandboxes(&caller, query).await.unwrap().items;
        living(&world).await == 0
            && all.iter().all(|view| matches!(view.phase, Phase::Failed | Phase::Terminated))
    })
    .await;
}

#[tokio::test]
async fn lifetimes_end_as_asked() {
    let world = World::new().await;
    let caller = world.caller();
    let lives = async |span, then| {
        let new = NewSandbox { lifetime: Some(span), on_end: Some(then), ..plain() };
        world.control.create_sandbox(&caller, new).await.unwrap().id
    };
    let (extended, span) = soon_enough(async |span| {
        let id = lives(span, OnEnd::Delete).await;
        world.control.extend_sandbox(&caller, id, Duration::from_secs(600)).await.is_ok().then_some(id)
    })
    .await;
    // These were made after it, and have as long as it had.
    let paused = lives(span, OnEnd::Pause).await;
    let deleted = lives(span, OnEnd::Delete).await;
    let phase = |id| {
        let (control, caller) = (world.control.clone(), caller.clone());
        async move { control.sandbox(&caller, id).await.unwrap().phase }
    };
    eventually("one paused and one deleted", || async {
        phase(paused).await == Phase::Paused && phase(deleted).await == Phase::Terminated
    })
    .await;
    assert_eq!(phase(extended).await, Phase::Ready);
    // Resuming gives a lifetime anew.
    let before = sandstorm_types::Timestamp::now();
    let resumed = world.control.resume_sandbox(&caller, paused).await.unwrap();
    assert_eq!(resumed.phase, Phase::Ready);
    assert!(resumed.expires_at.unwrap() > before);
    eventually("paused again", || async { phase(paused).await == Phase::Paused }).await;
}

#[tokio::test]
async fn idle_ones_rest_and_busy_ones_do_not() {
    let ((world, caller, busy, program), span) = soon_enough(async |span| {
        let world = World::with(Settings { idle_timeout: Some(span), ..settings() }).await;
        let caller = world.caller();
        let busy = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
        let long = NewExec { background: true, ..shell("sleep 600") };
        let program = world.control.exec(&caller, busy, long).await.ok()?.view.id;
        Some((world, caller, busy, program))
    })
    .await;
    // Made after the other, whose time is over when this one's is.
    let idle = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let phase = |id| {
        let (control, caller) = (world.control.clone(), caller.clone());
        async move { control.sandbox(&caller, id).await.unwrap().phase }
    };
    eventually("the idle one paused", || async { phase(idle).await == Phase::Paused }).await;
    assert_eq!(phase(busy).await, Phase::Running);
    world.control.signal(&caller, busy, program, ExecSignal::Kill).await.unwrap();
    eventually("the busy one rests after its work", || async { phase(busy).await == Phase::Paused }).await;

    let settings = Settings { idle_timeout: Some(span), paused_for: span, ..settings() };
    let world = World::with(settings).await;
    let caller = world.caller();
    let idle = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    eventually("a paused one is given up", || async {
        world.control.sandbox(&caller, idle).await.unwrap().phase == Phase::Terminated
    })
    .await;
}

#[tokio::test]
async fn listeners_hear_everything_once() {
    let world = World::new().await;
    let caller = world.caller();
    let stream = world.control.events(&caller, EventFilter::default()).await.unwrap();
    let listening = tokio::time::timeout(PATIENCE, stream.take(40).collect::<Vec<_>>());
    let making = async {
        for _ in 0..20 {
            world.control.create_sandbox(&caller, plain()).await.unwrap();
        }
    };
    let (heard, ()) = tokio::join!(listening, making);
    let heard = heard.unwrap();
    let numbers: Vec<u64> = heard.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<u64>>());
    assert!(heard.iter().all(|event| matches!(event.body, EventBodyView::State { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_has_one_sandbox_however_many_ask() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let asks = (0..10).map(|_| world.control.name_sandbox(&caller, "session", "a b/../c", plain()));
    let results: Vec<_> =
        futures_util::future::join_all(asks).await.into_iter().map(Result::unwrap).collect();
    let id = results[0].0.id;
    for round in 0..20 {
        let name = format!("round {round}");
        let asks = (0..8).map(|_| world.control.name_sandbox(&caller, "session", &name, plain()));
        let made = futures_util::future::join_all(asks).await;
        let ids: std::collections::BTreeSet<_> = made.into_iter().map(|made| made.unwrap().0.id).collect();
        assert_eq!(ids.len(), 1);
        world.control.delete_sandbox(&caller, *ids.first().unwrap()).await.unwrap();
    }
    assert!(results.iter().all(|(view, _)| view.id == id && view.phase == Phase::Ready));
    assert_eq!(results.iter().filter(|(_, created)| *created).count(), 1);
    assert!(world.control.named_sandbox(&stranger, "session", "a b/../c").await.unwrap().is_none());
    assert!(world.control.named_sandbox(&caller, "other", "a b/../c").await.unwrap().is_none());
    assert_eq!(world.control.named_sandboxes(&caller, "session").await.unwrap().len(), 1);
    world.control.delete_sandbox(&caller, id).await.unwrap();
    assert!(world.control.named_sandbox(&caller, "session", "a b/../c").await.unwrap().is_none());
    let (again, created) = world.control.name_sandbox(&caller, "session", "a b/../c", plain()).await.unwrap();
    assert!(created && again.id != id);
    world.control.forget_name(&caller, "session", "a b/../c").await.unwrap();
    assert!(world.control.named_sandboxes(&caller, "session").await.unwrap().is_empty());
    assert_eq!(world.control.sandbox(&caller, again.id).await.unwrap().phase, Phase::Ready);
}
