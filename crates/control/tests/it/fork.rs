//! Living sandboxes that go on in others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_control::server::{
    Caller, ExecWork, ForkView, NewContext, NewExec, NewFork, NewSandbox, Quota, SandboxQuery, Settings,
};
use sandstorm_provider::{ListFilter, OpContext, ProviderExt, Result, WatchOptions};
use sandstorm_types::{ContextId, EnvMap, ErrorKind, GuestPath, Labels, Phase, RunResult, SandboxId, Status};

use crate::kernel::KernelProvider;
use crate::world::{PATIENCE, World, eventually, exec, names, plain, settings, shell};

struct Place {
    world: World,
    kernels: Arc<KernelProvider>,
    caller: Caller,
    sandbox: SandboxId,
    context: ContextId,
}

async fn place() -> Place {
    place_with(settings()).await
}

async fn place_with(settings: Settings) -> Place {
    let kernels = Arc::new(KernelProvider::default());
    let world = World::on(Arc::clone(&kernels) as _, settings).await;
    let caller = world.caller();
    let labels = Labels::try_from(
        [("team".to_owned(), "a".to_owned())].into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    );
    let new = NewSandbox { labels: labels.unwrap(), lifetime: Some(Duration::from_secs(77)), ..plain() };
    let sandbox = world.control.create_sandbox(&caller, new).await.unwrap().id;
    let context = another(&world, sandbox).await;
    Place { world, kernels, caller, sandbox, context }
}

async fn another(world: &World, sandbox: SandboxId) -> ContextId {
    let new = NewContext { language: "python".parse().unwrap(), cwd: None, env: EnvMap::new() };
    world.control.create_context(&world.caller(), sandbox, new).await.unwrap().id
}

fn cell(context: ContextId, code: &str) -> NewExec {
    exec(ExecWork::Cell { context, code: code.to_owned() })
}

async fn run(world: &World, sandbox: SandboxId, context: ContextId, code: &str) -> RunResult {
    let caller = world.caller();
    let attached = world.control.exec(&caller, sandbox, cell(context, code)).await.unwrap();
    world.control.finish(attached).await.unwrap()
}

async fn value(world: &World, sandbox: SandboxId, context: ContextId, name: &str) -> String {
    let result = run(world, sandbox, context, &format!("get {name}")).await;
    result.results[0].data["text/plain"].as_str().unwrap().to_owned()
}

impl Place {
    async fn run(&self, code: &str) -> RunResult {
        run(&self.world, self.sandbox, self.context, code).await
    }

    async fn fork(&self, new: NewFork) -> Result<Vec<Result<ForkView>>> {
        self.world.control.fork_sandbox(&self.caller, self.sandbox, new).await
    }

    async fn fork_one(&self) -> ForkView {
        self.fork(NewFork::default()).await.unwrap().remove(0).unwrap()
    }

    async fn alive(&self) -> usize {
        let cx = OpContext::new(self.caller.tenant());
        self.world.provider.list(&cx, ListFilter::default()).count().await
    }
}

#[tokio::test]
async fn variables_and_files_go_on_and_each_one_is_its_own() {
    let place = place().await;
    let (world, cx) = (&place.world, OpContext::new(place.caller.tenant()));
    let second = another(world, place.sandbox).await;
    place.run("set x 1").await;
    run(world, place.sandbox, second, "set y 2").await;
    let file: GuestPath = "kept".parse().unwrap();
    world.provider.write_bytes(&cx, &place.sandbox, &file, "then".into()).await.unwrap();
    let fork = place.fork_one().await;
    assert_eq!((fork.sandbox.phase, fork.not_carried.as_slice()), (Phase::Ready, &[][..]));
    assert_eq!(fork.sandbox.spec.labels.get("team"), Some("a"));
    assert_eq!(fork.sandbox.spec.lifetime.after, Duration::from_secs(77));
    assert_eq!(fork.contexts.len(), 2);
    let of = |source| fork.contexts.iter().find(|(from, _)| *from == source).unwrap().1;
    let (first, other) = (of(place.context), of(second));
    assert!(first != place.context && other != second && first != other);
    let copy = fork.sandbox.id;
    assert_eq!(value(world, copy, first, "x").await, "1");
    assert_eq!(value(world, copy, other, "y").await, "2");
    // The count goes on, and each side has its own.
    let view = world.control.context(&place.caller, copy, first).await.unwrap();
    assert_eq!((view.state, view.execution_count), ("idle", 2));
    run(world, copy, first, "set x changed").await;
    place.run("set x 3").await;
    assert_eq!(value(world, copy, first, "x").await, "changed");
    assert_eq!(value(world, place.sandbox, place.context, "x").await, "3");
    world.provider.write_bytes(&cx, &place.sandbox, &file, "now".into()).await.unwrap();
    assert_eq!(world.provider.read_bytes(&cx, &copy, &file, 100).await.unwrap(), "then");
    // Without its source it lives on.
    world.control.delete_sandbox(&place.caller, place.sandbox).await.unwrap();
    assert_eq!(value(world, copy, first, "x").await, "changed");
    // Both were ready long before as much had happened.
    let told = names(world, &place.caller, 20).await;
    assert_eq!(told.iter().filter(|name| *name == "sandbox:ready").count(), 2, "{told:?}");
    let acts: Vec<_> = world.control.audit(&place.caller, None, 0, 1000).await.unwrap();
    for (act, wanted) in [("sandbox.fork", 1), ("context.fork", 2)] {
        assert_eq!(acts.iter().filter(|row| row.audit.action == act).count(), wanted, "{act}");
    }
}

#[tokio::test]
async fn many_at_once_are_all_different() {
    let place = place().await;
    place.run("set x 1").await;
    let labels = Some(Labels::default());
    let new = NewFork { count: 10, labels, lifetime: Some(Duration::from_secs(9)), allow_partial: false };
    let forks: Vec<_> = place.fork(new).await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(forks.len(), 10);
    for (n, fork) in forks.iter().enumerate() {
        assert_eq!((fork.sandbox.spec.labels.is_empty(), fork.contexts.len()), (true, 1));
        assert_eq!(fork.sandbox.spec.lifetime.after, Duration::from_secs(9));
        run(&place.world, fork.sandbox.id, fork.contexts[0].1, &format!("set x {n}")).await;
    }
    for (n, fork) in forks.iter().enumerate() {
        let found = value(&place.world, fork.sandbox.id, fork.contexts[0].1, "x").await;
        assert_eq!(found, n.to_string());
    }
    assert_eq!(value(&place.world, place.sandbox, place.context, "x").await, "1");
    // A fork can be forked.
    let deeper =
        place.world.control.fork_sandbox(&place.caller, forks[7].sandbox.id, NewFork::default()).await;
    let deeper = deeper.unwrap().remove(0).unwrap();
    assert_eq!(value(&place.world, deeper.sandbox.id, deeper.contexts[0].1, "x").await, "7");
}

#[tokio::test]
async fn a_busy_context_is_waited_for_and_what_comes_meanwhile_is_not_in_the_fork() {
    let place = place().await;
    let control = &place.world.control;
    let slow =
        control.exec(&place.caller, place.sandbox, cell(place.context, "wait\nset x 1")).await.unwrap();
    let fork = place.fork(NewFork::default());
    let later = async {
        // By then the fork is in line.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let attached =
            control.exec(&place.caller, place.sandbox, cell(place.context, "set x 2")).await.unwrap();
        place.kernels.open_gate();
        control.finish(attached).await.unwrap()
    };
    let (slow, fork, later) = tokio::join!(control.finish(slow), fork, later);
    assert_eq!((slow.unwrap().status, later.status), (Status::Ok, Status::Ok));
    let fork = fork.unwrap().remove(0).unwrap();
    assert_eq!(value(&place.world, fork.sandbox.id, fork.contexts[0].1, "x").await, "1");
    assert_eq!(value(&place.world, place.sandbox, place.context, "x").await, "2");
}

#[tokio::test]
async fn a_context_that_stays_busy_is_a_conflict_or_left_out() {
    let place = place().await;
    let control = &place.world.control;
    let slow = control.exec(&place.caller, place.sandbox, cell(place.context, "sleep 60000")).await.unwrap();
    let began = Instant::now();
    let refused = place.fork(NewFork::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("busy for too long"), "{refused}");
    assert!((4..PATIENCE.as_secs()).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(place.alive().await, 1, "what could not be forked left something");
    let partial = NewFork { allow_partial: true, ..NewFork::default() };
    let fork = place.fork(partial).await.unwrap().remove(0).unwrap();
    assert_eq!(fork.contexts, []);
    assert_eq!(fork.not_carried[0].what, format!("context {}", place.context));
    // Nobody who gave up keeps it from going on.
    control.interrupt_context(&place.caller, place.sandbox, place.context).await.unwrap();
    assert_eq!(control.finish(slow).await.unwrap().status, Status::Killed);
    assert_eq!(place.run("set x 1").await.status, Status::Ok);
    assert_eq!(place.fork_one().await.contexts.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_carried_refuses_in_words_or_is_named() {
    let place = place().await;
    let second = another(&place.world, place.sandbox).await;
    run(&place.world, place.sandbox, second, "set y 2").await;
    place.run("thread").await;
    let refused = place.fork(NewFork { count: 5, ..NewFork::default() }).await.unwrap_err();
    assert_eq!((refused.kind(), refused.message()), (ErrorKind::Conflict, "it has 1 threads"));
    assert_eq!(place.alive().await, 1, "a refused fork left something");
    let listed = place.world.control.sandboxes(&place.caller, SandboxQuery::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let partial = NewFork { allow_partial: true, ..NewFork::default() };
    let fork = place.fork(partial).await.unwrap().remove(0).unwrap();
    assert_eq!(fork.contexts.len(), 1);
    assert_eq!(value(&place.world, fork.sandbox.id, fork.contexts[0].1, "y").await, "2");
    let left = &fork.not_carried[0];
    assert_eq!(
        (left.what.clone(), left.why.as_str()),
        (format!("context {}", place.context), "it has 1 threads")
    );
    let kept = place.world.control.contexts(&place.caller, fork.sandbox.id).await.unwrap();
    assert_eq!(kept.len(), 1, "a context that was not carried is listed in the fork");
}

#[tokio::test]
async fn programs_terminals_watchers_and_lost_contexts_are_named() {
    let place = place().await;
    let control = &place.world.control;
    let background = NewExec { background: true, ..shell("sleep 60") };
    let program = control.exec(&place.caller, place.sandbox, background).await.unwrap().view.id;
    let tty = Some(sandstorm_provider::TtySize { rows: 24, cols: 80 });
    let terminal = NewExec { tty, ..shell("sleep 60") };
    let terminal = control.exec(&place.caller, place.sandbox, terminal).await.unwrap();
    let workspace = GuestPath::workspace();
    let watch =
        control.watch(&place.caller, place.sandbox, &workspace, WatchOptions::default()).await.unwrap();
    let lost = another(&place.world, place.sandbox).await;
    run(&place.world, place.sandbox, lost, "die").await;
    eventually("lost", || async {
        control.context(&place.caller, place.sandbox, lost).await.unwrap().state == "lost"
    })
    .await;
    let fork = place.fork_one().await;
    let left: Vec<_> = fork.not_carried.iter().map(|left| left.what.as_str()).collect();
    let wanted = [
        format!("exec {program}"),
        format!("exec {}", terminal.view.id),
        "watchers 1".to_owned(),
        format!("context {lost}"),
    ];
    for what in &wanted {
        assert!(left.contains(&what.as_str()), "{what} is not among {left:?}");
    }
    assert_eq!((left.len(), fork.contexts.len()), (4, 1));
    drop((terminal, watch));
    eventually("named no longer", || async { place.fork_one().await.not_carried.len() == 2 }).await;
}

#[tokio::test]
async fn who_may_not_gets_nothing() {
    let place = place().await;
    let control = &place.world.control;
    let stranger = place.world.stranger().await;
    let (foreign, absent) = (
        control.fork_sandbox(&stranger, place.sandbox, NewFork::default()).await.unwrap_err(),
        control.fork_sandbox(&stranger, SandboxId::random(), NewFork::default()).await.unwrap_err(),
    );
    assert_eq!((foreign.kind(), foreign.to_string()), (ErrorKind::NotFound, absent.to_string()));
    for count in [0, 101] {
        let refused = place.fork(NewFork { count, ..NewFork::default() }).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
    }
    let long = NewFork { lifetime: Some(Duration::from_secs(1 << 30)), ..NewFork::default() };
    assert_eq!(place.fork(long).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    control.pause_sandbox(&place.caller, place.sandbox).await.unwrap();
    assert_eq!(place.fork(NewFork::default()).await.unwrap_err().kind(), ErrorKind::Conflict);
    control.resume_sandbox(&place.caller, place.sandbox).await.unwrap();
    place.kernels.faults.unable.store(true, Ordering::SeqCst);
    let unable = place.fork(NewFork::default()).await.unwrap_err();
    assert_eq!(unable.reasons()[0].feature, "live_fork");
    assert_eq!(place.alive().await, 1);
}

#[tokio::test]
async fn quotas_hold_and_what_fails_on_the_way_is_told_in_its_place() {
    let settings = Settings { quota: Quota { sandboxes: 4, ..settings().quota }, ..settings() };
    let place = place_with(settings).await;
    let refused = place.fork(NewFork { count: 4, ..NewFork::default() }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Quota);
    assert_eq!(place.alive().await, 1, "a few were made of many that could not be");
    *place.kernels.faults.forks.lock().unwrap() = Some(2);
    let forks = place.fork(NewFork { count: 3, ..NewFork::default() }).await.unwrap();
    let made = forks.iter().filter(|fork| fork.is_ok()).count();
    assert_eq!((forks.len(), made, place.alive().await), (3, 2, 3));
    let failed = forks.iter().find_map(|fork| fork.as_ref().err()).unwrap();
    assert_eq!(failed.kind(), ErrorKind::Capacity);
    // One that failed does not count.
    *place.kernels.faults.forks.lock().unwrap() = None;
    place.fork_one().await;
    assert_eq!(place.fork(NewFork::default()).await.unwrap_err().kind(), ErrorKind::Quota);
}

#[tokio::test]
async fn who_gives_up_leaves_no_forks() {
    let place = place().await;
    let slow =
        place.world.control.exec(&place.caller, place.sandbox, cell(place.context, "wait")).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(100), place.fork(NewFork::default())).await;
    assert!(waiting.is_err());
    place.kernels.open_gate();
    place.world.control.finish(slow).await.unwrap();
    assert_eq!(place.run("set x 1").await.status, Status::Ok);
    eventually("nothing left", || async { place.alive().await == 1 }).await;
    assert_eq!(place.fork_one().await.contexts.len(), 1);
}

#[tokio::test]
async fn a_new_server_takes_forks_over() {
    let place = place().await;
    place.run("set x 1").await;
    let fork = place.fork_one().await;
    let (copy, context) = (fork.sandbox.id, fork.contexts[0].1);
    let never_used = place.fork_one().await;
    run(&place.world, copy, context, "set x 2").await;
    let Place { world, sandbox, context: source, .. } = place;
    let world = world.crashed().await;
    assert_eq!(value(&world, copy, context, "x").await, "2");
    assert_eq!(value(&world, sandbox, source, "x").await, "1");
    assert_eq!(value(&world, never_used.sandbox.id, never_used.contexts[0].1, "x").await, "1");
    let view = world.control.context(&world.caller(), copy, context).await.unwrap();
    assert_eq!(view.execution_count, 3);
}
