//! A new server over what an old one left.

use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_control::server::{NewExec, NewSandbox, Settings};
use sandstorm_provider::{CreateOptions, ListFilter, OpContext};
use sandstorm_store::{
    Audit, AuditKey, Decision, RunRow, SandboxChanges, SandboxRow, StoreConfig, Tampering, WallClock,
};
use sandstorm_types::{
    Enforcement, EventBody, Phase, RunId, SandboxId, SandboxSpec, State, Status, TenantId, Timestamp,
};

use crate::world::{World, all, eventually, plain, settings, shell};

fn audit() -> Audit {
    Audit {
        tenant: TenantId::LOCAL,
        principal: "<test>".to_owned(),
        action: "test".to_owned(),
        object: "test".to_owned(),
        decision: Decision::Allowed,
        request_id: String::new(),
        detail: None,
    }
}

#[tokio::test]
async fn what_lives_is_adopted_with_its_programs() {
    let world = World::new().await;
    let caller = world.caller();
    let ready = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let paused = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    world.control.pause_sandbox(&caller, paused).await.unwrap();
    let long = NewExec { background: true, stdin_stream: true, ..shell("echo one; read go; echo two") };
    let exec = world.control.exec(&caller, ready, long).await.unwrap().view.id;
    let world = world.restarted().await;
    assert_eq!(world.control.sandbox(&caller, ready).await.unwrap().phase, Phase::Running);
    assert_eq!(world.control.sandbox(&caller, paused).await.unwrap().phase, Phase::Paused);
    world.control.write_stdin(&caller, ready, exec, "\n".into()).await.unwrap();
    let events = all(world.control.attach(&caller, ready, exec, None).await.unwrap()).await;
    let output: Vec<u8> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Stdout(chunk) => Some(chunk.data.as_bytes()),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    assert_eq!(output, b"one\ntwo\n");
    let view = world.control.exec_view(&caller, ready, exec).await.unwrap();
    assert_eq!(view.status, Some(Status::Ok));
    assert_eq!(world.control.resume_sandbox(&caller, paused).await.unwrap().phase, Phase::Ready);
    let attached = world.control.exec(&caller, paused, shell("echo back")).await.unwrap();
    assert_eq!(world.control.finish(attached).await.unwrap().stdout, "back\n");
}

#[tokio::test]
async fn what_is_gone_fails_and_strangers_end() {
    let world = World::new().await;
    let caller = world.caller();
    let cx = OpContext::new(TenantId::LOCAL);
    let lost = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let long = NewExec { background: true, ..shell("sleep 60") };
    let exec = world.control.exec(&caller, lost, long).await.unwrap().view.id;
    let kept = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    // The server goes first, so that it does not see what happens then.
    world.control.drain(Duration::ZERO).await;
    world.provider.destroy(&cx, &lost).await.unwrap();
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    world.provider.create(&cx, &spec, CreateOptions::default()).await.unwrap();
    let world = world.restarted().await;
    let view = world.control.sandbox(&caller, lost).await.unwrap();
    assert_eq!(view.phase, Phase::Failed);
    assert_eq!(view.reason.as_deref(), Some("lost while the server was down"));
    assert_eq!(world.control.exec_view(&caller, lost, exec).await.unwrap().status, Some(Status::Killed));
    let events = all(world.control.attach(&caller, lost, exec, None).await.unwrap()).await;
    assert!(matches!(&events.last().unwrap().body, EventBody::End(end) if end.problem.is_some()));
    assert_eq!(world.provider.list(&cx, ListFilter::default()).count().await, 1);
    assert_eq!(world.control.sandbox(&caller, kept).await.unwrap().phase, Phase::Ready);
}

#[tokio::test]
async fn intents_without_acts_are_settled() {
    let world = World::new().await;
    let caller = world.caller();
    let now = Timestamp::now();
    let row = |state| SandboxRow {
        id: SandboxId::random(),
        tenant: TenantId::LOCAL,
        spec: SandboxSpec::default(),
        state,
        idle_timeout_ms: None,
        walls: None,
        provider: "memory".to_owned(),
        created_at: now,
        expires_at: None,
        ended_at: None,
        last_used_at: now,
        revision: 0,
    };
    let creating = row(State::Creating);
    world.store.insert_sandbox(&creating, None, &audit()).await.unwrap();
    // Another server's, on another provider, is none of our business.
    let foreign = SandboxRow { provider: "elsewhere".to_owned(), ..row(State::Creating) };
    world.store.insert_sandbox(&foreign, None, &audit()).await.unwrap();
    let run = RunRow {
        id: RunId::random(),
        tenant: TenantId::LOCAL,
        language: "bash".to_owned(),
        created_at: now,
        ended_at: None,
        status: None,
        result: None,
        problem: None,
        request_hash: None,
        entry: None,
    };
    world.store.insert_run(&run, &[], &audit()).await.unwrap();
    let world = world.restarted().await;
    assert_eq!(world.control.sandbox(&caller, creating.id).await.unwrap().phase, Phase::Failed);
    assert_eq!(world.control.sandbox(&caller, foreign.id).await.unwrap().phase, Phase::Creating);
    let run = world.control.run_view(&caller, run.id).await.unwrap();
    assert!(run.ended_at.is_some() && run.problem.is_some() && run.status.is_none());
}

#[tokio::test]
async fn timers_are_armed_again() {
    let world = World::new().await;
    let caller = world.caller();
    let short =
        sandstorm_control::server::NewSandbox { lifetime: Some(Duration::from_millis(600)), ..plain() };
    let id = world.control.create_sandbox(&caller, short).await.unwrap().id;
    let world = world.restarted().await;
    eventually("it paused at its end", || async {
        world.control.sandbox(&caller, id).await.unwrap().phase == Phase::Paused
    })
    .await;
}

const HOUR: Duration = Duration::from_secs(3600);

/// A server over what another left whose clock was ahead of ours by so many milliseconds, with one sandbox: when that ends by
/// the other clock, and its view now.
async fn after_another_clock(ahead: i64, ends_in: Duration, now: Timestamp) -> (World, SandboxId) {
    let world = World::new().await;
    let caller = world.caller();
    let long = NewSandbox { lifetime: Some(5 * HOUR), ..plain() };
    let id = world.control.create_sandbox(&caller, long).await.unwrap().id;
    world.control.drain(Duration::ZERO).await;
    let theirs = Timestamp::from_millis(now.millis() + ahead);
    let changes =
        SandboxChanges { expires_at: Some(Some(theirs.after(ends_in))), ..SandboxChanges::default() };
    world.store.update_sandbox(TenantId::LOCAL, id, changes, None).await.unwrap();
    world.store.note_clock(WallClock::now().set_by(ahead)).unwrap();
    (world.restarted().await, id)
}

#[tokio::test]
async fn a_clock_that_was_set_while_no_server_ran_moves_no_end() {
    let hour = 3_600_000;
    for ahead in [hour, -hour] {
        let now = Timestamp::now();
        let (world, id) = after_another_clock(ahead, HOUR / 2, now).await;
        let view = world.control.sandbox(&world.caller(), id).await.unwrap();
        assert_eq!(view.phase, Phase::Ready, "{ahead}");
        let ends = view.expires_at.unwrap();
        // As much earlier or later as it takes to start a server.
        assert!(ends.since(now) > HOUR / 4 && ends.since(now) < HOUR, "{ahead}: {ends:?}, {now:?}");
        // It is on record by the present clock, and that clock is noted: the next server moves nothing.
        let recorded = world.store.sandbox(TenantId::LOCAL, id).await.unwrap().unwrap().expires_at;
        assert_eq!(recorded, Some(ends), "{ahead}");
        let world = world.restarted().await;
        let again = world.control.sandbox(&world.caller(), id).await.unwrap();
        assert_eq!((again.phase, again.expires_at), (Phase::Ready, recorded), "{ahead}");
    }
}

/// After another boot no note tells how the clock was set. An end that was recorded by a clock far ahead is cut to the longest
/// lifetime, once: the next server reads the same end.
#[tokio::test]
async fn a_clock_that_no_note_tells_of_gives_the_longest_lifetime_at_most() {
    let world = World::new().await;
    let caller = world.caller();
    let longest = world.settings.longest_lifetime;
    let long = NewSandbox { lifetime: Some(5 * HOUR), ..plain() };
    let id = world.control.create_sandbox(&caller, long).await.unwrap().id;
    world.control.drain(Duration::ZERO).await;
    let now = Timestamp::now();
    let expires_at = Some(Some(now.after(365 * 24 * HOUR)));
    let changes = SandboxChanges { expires_at, ..SandboxChanges::default() };
    world.store.update_sandbox(TenantId::LOCAL, id, changes, None).await.unwrap();
    std::fs::remove_file(world.dir.path().join("clock")).unwrap();
    let world = world.restarted().await;
    let view = world.control.sandbox(&caller, id).await.unwrap();
    assert_eq!(view.phase, Phase::Ready);
    let ends = view.expires_at.unwrap();
    assert!(ends.since(now) > longest - HOUR && ends.since(now) < longest + HOUR, "{ends:?}, {now:?}");
    let recorded = world.store.sandbox(TenantId::LOCAL, id).await.unwrap().unwrap().expires_at;
    assert_eq!(recorded, Some(ends));
    let world = world.restarted().await;
    assert_eq!(world.control.sandbox(&caller, id).await.unwrap().expires_at, recorded);
}

/// Whoever can write the database can cut off what no anchor covers yet: so the server anchors what is new by the clock,
/// however few records come.
#[tokio::test]
async fn the_latest_records_of_the_audit_are_anchored_by_the_clock() {
    let settings = Settings { anchor_every: Duration::from_millis(50), ..settings() };
    let world = World::with(settings).await;
    let config = StoreConfig::in_directory(world.dir.path(), None, AuditKey::from_bytes([5; 32]));
    let verify = || world.store.verify_audit(&config.audit_key, &config.audit_anchor);
    for _ in 0..3 {
        let before = verify().await.unwrap().last;
        world.store.record_audit(&audit()).await.unwrap();
        eventually("it is anchored", async || {
            let report = verify().await.unwrap();
            assert_eq!(report.tampering, []);
            report.last > before && report.unanchored == 0
        })
        .await;
    }
    // What has been anchored is not anchored again.
    let lines = || std::fs::read_to_string(&config.audit_anchor).unwrap().lines().count();
    let before = lines();
    for _ in 0..5 {
        world.store.anchor_recent().await.unwrap();
    }
    assert_eq!(lines(), before);
    // And what is cut off now is missed.
    let last = verify().await.unwrap().last;
    let cut = format!("DELETE FROM audit WHERE seq = {last}");
    let head = format!(
        "UPDATE audit_heads SET seq = {0}, hash = (SELECT hash FROM audit WHERE seq = {0})",
        last - 1
    );
    for statement in [&*cut, "DELETE FROM audit_checkpoints", &head] {
        sandstorm_store::testing::meddle(&world.store, statement).await.unwrap();
    }
    let missed = Tampering::TruncatedTail { last: last - 1, expected: last };
    assert_eq!(verify().await.unwrap().tampering, [missed]);
}
