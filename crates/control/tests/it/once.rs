//! What is sent twice with an idempotency key is done once, whatever the client and the server live to see.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_control::server::{
    Answer, Answered, Caller, Claim, Control, ExecWork, Found, Keyed, NewContext, NewExec, NewFork,
    NewSnapshot, Once, OneContext, OneExec, OneFork, OneRun, OneSandbox, OneSnapshot, OneStart, RunQuery,
    SandboxQuery, SnapshotQuery, SnapshotView,
};
use sandstorm_provider::{Error, ReadRange, Result};
use sandstorm_store::testing::{look, meddle};
use sandstorm_types::{
    EnvMap, ErrorKind, ExecId, LimitsPatch, RunId, SandboxId, Status, TenantId, Timestamp,
};

use crate::kernel::KernelProvider;
use crate::runs::spec;
use crate::world::{PATIENCE, World, eventually, exec, plain, settings, shell};

const ROUTE: &str = "POST /x";

/// Work that is done by nothing that is on record.
struct Fake<F>(F);

impl<F: Future<Output = Result<Answer>> + Send + 'static> Once for Fake<F> {
    type Made = Answer;
    type Place = ();

    fn place(&self, _: &Claim) {}

    async fn make(self, _: &Control, _: &Caller, _: Option<&Arc<Claim>>) -> Result<Answer> {
        self.0.await
    }

    async fn find(_: &Control, _: &Caller, (): &(), _: &Claim, _: Option<&Error>) -> Result<Found<Answer>> {
        Ok(Found::Nothing)
    }
}

fn keyed<'a>(route: &'a str, key: &'a str) -> Keyed<'a> {
    Keyed { route, key, body_hash: [1; 32] }
}

fn answer(body: impl Into<String>) -> Answer {
    let body = Bytes::from(body.into());
    Answer { status: 201, content_type: "application/json".to_owned(), body }
}

/// Asks with one key and always the same body; `shown` is what the answer says.
async fn ask<W: Once>(
    world: &World,
    work: W,
    shown: impl FnOnce(W::Made) -> String + Send + 'static,
) -> Answered {
    let write = move |made| answer(shown(made));
    Box::pin(world.control.once(&world.caller(), keyed(ROUTE, "key"), work, write)).await.unwrap()
}

fn text(answered: &Answered) -> &str {
    str::from_utf8(&answered.answer.as_ref().unwrap().body).unwrap()
}

/// As if the server had been killed before it kept the answer: only the claim is left.
async fn forget_the_answer(world: &World) {
    let forget = "UPDATE idempotency SET status = NULL, content_type = NULL, body = NULL";
    assert_eq!(meddle(&world.store, forget).await.unwrap(), 1);
}

/// As if the server had been killed between the claim and its work.
async fn claim(world: &World, bits: u128) {
    let (at, object) = (Timestamp::now(), format!("{bits:032x}"));
    world.store.begin_idempotent(TenantId::LOCAL, ROUTE, "key", &[1; 32], &object, at).await.unwrap();
}

/// A file of a sandbox in which its programs leave marks.
struct Marks(SandboxId);

impl Marks {
    fn leave(&self, and_then: &str) -> NewExec {
        shell(&format!("echo mark >> /workspace/marks; {and_then}"))
    }

    async fn count(&self, world: &World) -> usize {
        let path = "/workspace/marks".parse().unwrap();
        let read = world.control.read_file(&world.caller(), self.0, &path, ReadRange::default()).await;
        let Ok((_, pieces)) = read else { return 0 };
        let pieces: Vec<_> = pieces.map(Result::unwrap).collect().await;
        pieces.iter().map(|piece| piece.iter().filter(|byte| **byte == b'\n').count()).sum()
    }
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_answer() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let control = &world.control;
    let count = Arc::new(AtomicUsize::new(0));
    let work = || {
        let count = Arc::clone(&count);
        Fake(async move {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(answer("made"))
        })
    };
    let same = |made| made;
    // One in flight is waited for.
    let both = tokio::join!(
        control.once(&caller, keyed(ROUTE, "key"), work(), same),
        control.once(&caller, keyed(ROUTE, "key"), work(), same),
    );
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    assert!(first.replayed != second.replayed);
    assert_eq!(first.answer.unwrap(), second.answer.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let other = Keyed { body_hash: [2; 32], ..keyed(ROUTE, "key") };
    let other = control.once(&caller, other, work(), same).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Conflict);
    // Another route and another tenant have nothing to do with it.
    assert!(!control.once(&caller, keyed("POST /y", "key"), work(), same).await.unwrap().replayed);
    assert!(!control.once(&stranger, keyed(ROUTE, "key"), work(), same).await.unwrap().replayed);
    for bad in ["", "a b", "é", &"x".repeat(256)] {
        let error = control.once(&caller, keyed(ROUTE, bad), work(), same).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn what_began_nothing_can_be_tried_again() {
    let world = World::new().await;
    let same = |made: Answer| String::from_utf8(made.body.to_vec()).unwrap();
    let full = Fake(async { Err(Error::new(ErrorKind::Capacity, "full")) });
    assert_eq!(ask(&world, full, same).await.answer.unwrap_err().kind(), ErrorKind::Capacity);
    let fine = ask(&world, Fake(async { Ok(answer("made")) }), same).await;
    assert!(!fine.replayed);
    assert_eq!(text(&fine), "made");
}

#[tokio::test]
async fn an_answer_that_is_too_long_to_keep_comes_from_the_record() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    let work = || OneExec { sandbox, new: marks.leave("echo said") };
    let long = |outcome: sandstorm_control::Outcome| outcome.result.stdout.repeat(1 << 20);
    let first = ask(&world, work(), long).await;
    assert_eq!(text(&first).len(), 5 << 20, "the first client has all of it");
    let kept = "SELECT CAST(COUNT(*) AS TEXT) AS value FROM idempotency WHERE body IS NOT NULL";
    assert_eq!(look(&world.store, kept).await.unwrap(), ["0"]);
    let short = |outcome: sandstorm_control::Outcome| outcome.result.stdout;
    let again = ask(&world, work(), short).await;
    assert_eq!((text(&again), again.replayed), ("said\n", true));
    assert_eq!(look(&world.store, kept).await.unwrap(), ["1"]);
    assert_eq!(marks.count(&world).await, 1);
}

#[tokio::test]
async fn a_program_whose_client_left_is_not_started_again() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    let work = || OneExec { sandbox, new: marks.leave("sleep 300") };
    let said = |outcome: sandstorm_control::Outcome| format!("{:?}", outcome.result.status);
    {
        let mut asking = Box::pin(ask(&world, work(), said));
        tokio::select! {
            _ = &mut asking => panic!("it sleeps"),
            () = eventually("the program runs", || async { marks.count(&world).await == 1 }) => {}
        }
    }
    let again = tokio::time::timeout(PATIENCE, ask(&world, work(), said)).await.unwrap();
    assert!(again.replayed);
    assert_eq!(text(&again), "Killed");
    assert_eq!(text(&ask(&world, work(), said).await), "Killed");
    assert_eq!(marks.count(&world).await, 1);
}

#[tokio::test]
async fn a_program_that_is_to_be_kept_is_waited_for() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    let work = || {
        let program = marks.leave("sleep 1; echo done");
        OneExec { sandbox, new: NewExec { keep_on_disconnect: true, ..program } }
    };
    let said = |outcome: sandstorm_control::Outcome| outcome.result.stdout;
    {
        let mut asking = Box::pin(ask(&world, work(), said));
        tokio::select! {
            _ = &mut asking => panic!("it waits"),
            () = eventually("the program runs", || async { marks.count(&world).await == 1 }) => {}
        }
    }
    let again = tokio::time::timeout(PATIENCE, ask(&world, work(), said)).await.unwrap();
    assert_eq!((text(&again), again.replayed), ("done\n", true));
    assert_eq!(marks.count(&world).await, 1);
}

#[tokio::test]
async fn a_program_is_not_started_again_by_the_next_server() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    let work = |marks: &Marks| OneExec { sandbox, new: marks.leave("echo done") };
    let said =
        |outcome: sandstorm_control::Outcome| format!("{} {}", outcome.result.id, outcome.result.stdout);
    let first = ask(&world, work(&marks), said).await;
    let first = text(&first).to_owned();
    forget_the_answer(&world).await;
    let world = world.crashed().await;
    let again = ask(&world, work(&marks), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), first);
    assert_eq!(marks.count(&world).await, 1);
}

#[tokio::test]
async fn a_background_program_is_not_started_again_by_the_next_server() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    let work =
        |marks: &Marks| OneStart { sandbox, new: NewExec { background: true, ..marks.leave("sleep 300") } };
    let said = |view: sandstorm_control::server::ExecView| format!("{} {:?}", view.id, view.status);
    let first = ask(&world, work(&marks), said).await;
    let first = text(&first).to_owned();
    assert!(first.ends_with("None"), "{first}");
    eventually("the program runs", || async { marks.count(&world).await == 1 }).await;
    forget_the_answer(&world).await;
    let world = world.crashed().await;
    let again = ask(&world, work(&marks), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), first, "it runs on");
    assert_eq!(marks.count(&world).await, 1);
}

#[tokio::test]
async fn a_program_that_was_lost_with_its_server_is_told_to_be() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    // Begun on record, and unknown to whoever has the sandbox: as far as the next server can tell it ran.
    let (known, lost) = (ExecId::random(), ExecId::from_bits(77));
    let new = NewExec { id: Some(known), ..shell("true") };
    world.control.exec_to_end(&world.caller(), sandbox, new).await.unwrap();
    let begun = format!(
        "UPDATE execs SET id = '{lost}', ended_at = NULL, status = NULL, result = NULL WHERE id = '{known}'"
    );
    assert_eq!(meddle(&world.store, &begun).await.unwrap(), 1);
    claim(&world, lost.bits()).await;
    let world = world.crashed().await;
    let work = || OneExec { sandbox, new: marks.leave("true") };
    let said = |outcome: sandstorm_control::Outcome| outcome.result.id;
    for _ in 0..2 {
        let again = tokio::time::timeout(PATIENCE, ask(&world, work(), said)).await.unwrap();
        assert!(again.replayed);
        let problem = again.answer.unwrap_err();
        assert_eq!(problem.kind(), ErrorKind::Provider);
        assert!(problem.message().contains("lost with the server"), "{problem}");
    }
    assert_eq!(marks.count(&world).await, 0);
}

#[tokio::test]
async fn what_was_claimed_and_never_began_is_done_as_what_was_claimed() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let marks = Marks(sandbox);
    let bits = RunId::random().bits();
    claim(&world, bits).await;
    let world = world.crashed().await;
    let work = OneExec { sandbox, new: marks.leave("true") };
    let done = ask(&world, work, |outcome| outcome.result.id).await;
    assert!(!done.replayed);
    assert_eq!(text(&done), ExecId::from_bits(bits).to_string());
    assert_eq!(marks.count(&world).await, 1);
}

#[tokio::test]
async fn what_is_too_old_to_be_on_record_is_not_done_again() {
    let rules = settings();
    let short = sandstorm_control::server::Retention { runs: Duration::from_secs(60), ..rules.retention };
    let world = World::with(sandstorm_control::server::Settings { retention: short, ..rules }).await;
    claim(&world, 7).await;
    let old = format!("UPDATE idempotency SET begun_at = begun_at - {}", 61_000);
    assert_eq!(meddle(&world.store, &old).await.unwrap(), 1);
    let work = OneRun(spec("x"));
    let refused = world.control.once(&world.caller(), keyed(ROUTE, "key"), work, |_| answer("done")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(world.control.runs(&world.caller(), RunQuery::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_run_is_not_done_again() {
    let world = World::new().await;
    let said =
        |outcome: sandstorm_control::Outcome| format!("{} {}", outcome.result.id, outcome.result.stdout);
    let first = ask(&world, OneRun(spec("once")), said).await;
    let first = text(&first).to_owned();
    forget_the_answer(&world).await;
    // By this server, as when the store did not take the answer, and by the next one.
    let again = ask(&world, OneRun(spec("once")), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), first);
    forget_the_answer(&world).await;
    let world = world.crashed().await;
    let again = ask(&world, OneRun(spec("once")), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), first);
    assert_eq!(world.control.runs(&world.caller(), RunQuery::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_run_that_was_under_way_when_its_server_ended_is_told_to_be_lost() {
    let world = World::new().await;
    let first = ask(&world, OneRun(spec("lost")), |outcome| outcome.result.id).await;
    let id = text(&first).to_owned();
    forget_the_answer(&world).await;
    // The record of a run has its beginning first.
    let begun = "UPDATE runs SET ended_at = NULL, status = NULL, result = NULL";
    assert_eq!(meddle(&world.store, begun).await.unwrap(), 1);
    let world = world.crashed().await;
    for _ in 0..2 {
        let again = ask(&world, OneRun(spec("lost")), |outcome| outcome.result.id).await;
        assert!(again.replayed);
        let problem = again.answer.unwrap_err();
        assert_eq!(problem.kind(), ErrorKind::Provider);
        assert!(problem.message().contains("the server ended"), "{problem}");
    }
    let runs = world.control.runs(&world.caller(), RunQuery::default()).await.unwrap().items;
    assert_eq!(runs.iter().map(|run| run.id.to_string()).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn a_run_whose_client_left_is_answered_with_its_end() {
    let world = World::new().await;
    for round in 0..10 {
        let key = format!("key{round}");
        let asked = |key| {
            let work = OneRun(spec("never heard"));
            let write = |outcome: sandstorm_control::Outcome| answer(outcome.result.id);
            let (control, caller) = (world.control.clone(), world.caller());
            async move { control.once(&caller, keyed(ROUTE, key), work, write).await.unwrap() }
        };
        let mut first = Box::pin(asked(key.as_str()));
        assert!(futures_util::poll!(&mut first).is_pending());
        drop(first);
        let again = tokio::time::timeout(PATIENCE, asked(key.as_str())).await.unwrap();
        let runs = world.control.runs(&world.caller(), RunQuery::default()).await.unwrap().items;
        assert_eq!(runs.len(), round + 1);
        assert!(runs[0].ended_at.is_some());
        // It ended with its client, maybe before there was a result.
        match &again.answer {
            Ok(_) => assert_eq!(text(&again), runs[0].id.to_string()),
            Err(problem) => {
                assert_eq!((problem.kind(), again.replayed), (ErrorKind::Cancelled, true), "{problem}");
                assert_eq!(runs[0].problem.as_deref(), Some(problem.message()));
            }
        }
    }
}

#[tokio::test]
async fn what_never_had_a_sandbox_frees_the_key() {
    let world = World::new().await;
    // More than anybody may have: it is refused before anything is on record.
    let mut large = spec("x");
    large.limits = LimitsPatch { processes: Some(1_000_000), ..LimitsPatch::default() };
    let refused = ask(&world, OneRun(large), |outcome| outcome.result.id).await;
    assert!(refused.answer.is_err() && !refused.replayed);
    let left = look(&world.store, "SELECT key AS value FROM idempotency").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

async fn sandboxes(world: &World) -> Vec<SandboxId> {
    let query = SandboxQuery { include_ended: true, ..SandboxQuery::default() };
    let page = world.control.sandboxes(&world.caller(), query).await.unwrap();
    page.items.into_iter().map(|view| view.id).collect()
}

#[tokio::test]
async fn a_sandbox_is_made_once_whoever_left() {
    let world = World::new().await;
    let mut leaves = Box::pin(ask(&world, OneSandbox(plain()), |view| view.id.to_string()));
    assert!(futures_util::poll!(&mut leaves).is_pending());
    drop(leaves);
    let made = ask(&world, OneSandbox(plain()), |view| view.id.to_string()).await;
    let id = text(&made).to_owned();
    forget_the_answer(&world).await;
    let world = world.crashed().await;
    let again = ask(&world, OneSandbox(plain()), |view| view.id.to_string()).await;
    assert!(again.replayed);
    assert_eq!(text(&again), id);
    assert_eq!(sandboxes(&world).await.iter().map(ToString::to_string).collect::<Vec<_>>(), [id]);
    // It was made, whatever became of it since.
    forget_the_answer(&world).await;
    world.control.delete_sandbox(&world.caller(), text(&again).parse().unwrap()).await.unwrap();
    let gone = ask(&world, OneSandbox(plain()), |view| format!("{} {:?}", view.id, view.phase)).await;
    assert!(gone.replayed);
    assert_eq!(text(&gone), format!("{} Terminated", text(&again)));
    assert_eq!(sandboxes(&world).await.len(), 1);
}

#[tokio::test]
async fn a_sandbox_that_was_lost_before_it_was_ready_is_made_anew() {
    let world = World::new().await;
    let made = ask(&world, OneSandbox(plain()), |view| view.id.to_string()).await;
    let lost = text(&made).to_owned();
    forget_the_answer(&world).await;
    let unready = "UPDATE sandboxes SET state = 'creating'";
    assert_eq!(meddle(&world.store, unready).await.unwrap(), 1);
    assert_eq!(meddle(&world.store, "DELETE FROM transitions WHERE to_state = 'ready'").await.unwrap(), 1);
    let world = world.crashed().await;
    let anew = ask(&world, OneSandbox(plain()), |view| view.id.to_string()).await;
    assert!(!anew.replayed);
    assert_ne!(text(&anew), lost);
    let caller = world.caller();
    let living = world.control.sandboxes(&caller, SandboxQuery::default()).await.unwrap().items;
    assert_eq!(living.iter().map(|view| view.id.to_string()).collect::<Vec<_>>(), [text(&anew)]);
}

#[tokio::test]
async fn a_snapshot_is_made_once_and_anew_where_its_maker_was_lost() {
    let world = World::new().await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    let work = || OneSnapshot { sandbox, new: NewSnapshot { name: Some("golden".to_owned()) } };
    let said = |view: SnapshotView| format!("{} {:?} {:?}", view.id, view.name, view.left_out);
    let made = ask(&world, work(), said).await;
    forget_the_answer(&world).await;
    let again = ask(&world, work(), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), text(&made));
    let count = async |world: &World| {
        let all = world.control.snapshots(&world.caller(), SnapshotQuery::default()).await.unwrap();
        all.items.len()
    };
    assert_eq!(count(&world).await, 1);
    forget_the_answer(&world).await;
    let half = "UPDATE snapshots SET state = 'making', name = NULL";
    assert_eq!(meddle(&world.store, half).await.unwrap(), 1);
    let world = world.crashed().await;
    let anew = ask(&world, work(), said).await;
    assert!(!anew.replayed);
    assert_ne!(text(&anew), text(&made));
    assert_eq!(count(&world).await, 1, "what was never whole is not shown");
}

/// A sandbox with an interpreter, in a world that has them.
async fn with_context() -> (World, SandboxId) {
    let world = World::on(Arc::new(KernelProvider::default()), settings()).await;
    let sandbox = world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id;
    (world, sandbox)
}

fn python() -> NewContext {
    NewContext { language: "python".parse().unwrap(), cwd: None, env: EnvMap::new() }
}

#[tokio::test]
async fn a_context_is_made_once() {
    let (world, sandbox) = with_context().await;
    let work = || OneContext { sandbox, new: python() };
    let mut leaves = Box::pin(ask(&world, work(), |view| view.id.to_string()));
    assert!(futures_util::poll!(&mut leaves).is_pending());
    drop(leaves);
    let made = ask(&world, work(), |view| view.id.to_string()).await;
    forget_the_answer(&world).await;
    let again = ask(&world, work(), |view| view.id.to_string()).await;
    assert!(again.replayed);
    assert_eq!(text(&again), text(&made));
    assert_eq!(world.control.contexts(&world.caller(), sandbox).await.unwrap().len(), 1);
    // One that never spoke is no context: what takes its place is another.
    forget_the_answer(&world).await;
    let mute = "UPDATE contexts SET position = 0, exec = 'exec_aaaaaaaaaaaaaaaaaaaaaaaaaa'";
    assert_eq!(meddle(&world.store, mute).await.unwrap(), 1);
    let world = world.crashed().await;
    let anew = ask(&world, work(), |view| view.id.to_string()).await;
    assert!(!anew.replayed);
    assert_ne!(text(&anew), text(&made));
    assert_eq!(world.control.contexts(&world.caller(), sandbox).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cell_is_not_run_again() {
    let (world, sandbox) = with_context().await;
    let context = world.control.create_context(&world.caller(), sandbox, python()).await.unwrap().id;
    let cell = |code: &str| exec(ExecWork::Cell { context, code: code.to_owned() });
    let said =
        |outcome: sandstorm_control::Outcome| format!("{} {:?}", outcome.result.id, outcome.result.status);
    let work = || OneExec { sandbox, new: cell("set x 1") };
    let first = ask(&world, work(), said).await;
    forget_the_answer(&world).await;
    let again = ask(&world, work(), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), text(&first));
    let view = world.control.context(&world.caller(), sandbox, context).await.unwrap();
    assert_eq!(view.execution_count, 1);
    assert!(text(&again).ends_with(&format!("{:?}", Status::Ok)), "{}", text(&again));
}

#[tokio::test]
async fn forks_are_made_once_all_or_none() {
    let (world, source) = with_context().await;
    world.control.create_context(&world.caller(), source, python()).await.unwrap();
    let work = || OneFork { source, new: NewFork { count: 3, ..NewFork::default() } };
    let said = |forks: Vec<Result<sandstorm_control::server::ForkView>>| {
        let forks = forks.into_iter().map(|fork| {
            let fork = fork.unwrap();
            format!("{} {:?} {:?}", fork.sandbox.id, fork.contexts, fork.not_carried)
        });
        forks.collect::<Vec<_>>().join("\n")
    };
    let mut leaves = Box::pin(ask(&world, work(), said));
    assert!(futures_util::poll!(&mut leaves).is_pending());
    drop(leaves);
    let made = ask(&world, work(), said).await;
    let made = text(&made).to_owned();
    assert_eq!(made.lines().count(), 3);
    forget_the_answer(&world).await;
    let again = ask(&world, work(), said).await;
    assert!(again.replayed);
    assert_eq!(text(&again), made);
    assert_eq!(sandboxes(&world).await.len(), 4);
    // One that did not come to be ready before the server ended: the others are not what was asked for.
    forget_the_answer(&world).await;
    let lost = made.split(' ').next().unwrap();
    let unready = format!("DELETE FROM transitions WHERE to_state = 'ready' AND sandbox = '{lost}'");
    assert_eq!(meddle(&world.store, &unready).await.unwrap(), 1);
    world.control.delete_sandbox(&world.caller(), lost.parse().unwrap()).await.unwrap();
    let anew = ask(&world, work(), said).await;
    assert!(!anew.replayed);
    let living = world.control.sandboxes(&world.caller(), SandboxQuery::default()).await.unwrap().items;
    let living: Vec<String> = living.into_iter().map(|view| view.id.to_string()).collect();
    assert_eq!(living.len(), 4, "the source and three: {living:?}");
    assert!(text(&anew).lines().all(|line| living.iter().any(|id| line.starts_with(id.as_str()))));
}

#[tokio::test]
async fn forks_of_which_one_is_forgotten_are_neither_ended_nor_made_again() {
    let (world, source) = with_context().await;
    let work = || OneFork { source, new: NewFork { count: 2, ..NewFork::default() } };
    let said = |forks: Vec<Result<sandstorm_control::server::ForkView>>| {
        forks.into_iter().map(|fork| fork.unwrap().sandbox.id.to_string()).collect::<Vec<_>>().join(" ")
    };
    let made = ask(&world, work(), said).await;
    let (forgotten, lives) = text(&made).split_once(' ').unwrap();
    forget_the_answer(&world).await;
    // It was ready, ended, and its record was removed as old ones are.
    world.control.delete_sandbox(&world.caller(), forgotten.parse().unwrap()).await.unwrap();
    let remove = format!("DELETE FROM sandboxes WHERE id = '{forgotten}'");
    assert_eq!(meddle(&world.store, &remove).await.unwrap(), 1);
    let write = move |made| answer(said(made));
    let again = Box::pin(world.control.once(&world.caller(), keyed(ROUTE, "key"), work(), write)).await;
    let unknown = again.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Conflict, "{unknown}");
    let living = world.control.sandboxes(&world.caller(), SandboxQuery::default()).await.unwrap().items;
    let living: Vec<String> = living.into_iter().map(|view| view.id.to_string()).collect();
    assert_eq!(living.len(), 2, "the source and the other fork: {living:?}");
    assert!(living.iter().any(|id| id == lives), "{living:?}");
}
