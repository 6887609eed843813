//! Contexts and their cells.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_control::server::{Attached, ExecWork, NewContext, NewExec, NewSandbox};
use sandstorm_types::{ContextId, EnvMap, ErrorKind, EventBody, LimitsPatch, RunResult, SandboxId, Status};

use crate::kernel::KernelProvider;
use crate::world::{PATIENCE, World, all, eventually, exec, plain, settings};

struct Place {
    world: World,
    kernels: Arc<KernelProvider>,
    sandbox: SandboxId,
    context: ContextId,
}

async fn place() -> Place {
    place_in(plain()).await
}

async fn place_in(wanted: NewSandbox) -> Place {
    let kernels = Arc::new(KernelProvider::default());
    let world = World::on(Arc::clone(&kernels) as _, settings()).await;
    let caller = world.caller();
    let sandbox = world.control.create_sandbox(&caller, wanted).await.unwrap().id;
    let new = NewContext { language: "python".parse().unwrap(), cwd: None, env: EnvMap::new() };
    let context = world.control.create_context(&caller, sandbox, new).await.unwrap();
    assert_eq!((context.state, context.execution_count), ("idle", 0));
    Place { world, kernels, sandbox, context: context.id }
}

impl Place {
    fn cell(&self, code: &str) -> NewExec {
        exec(ExecWork::Cell { context: self.context, code: code.to_owned() })
    }

    async fn begin(&self, new: NewExec) -> Attached {
        self.world.control.exec(&self.world.caller(), self.sandbox, new).await.unwrap()
    }

    async fn run(&self, code: &str) -> RunResult {
        self.world.control.finish(self.begin(self.cell(code)).await).await.unwrap()
    }

    async fn state(&self) -> &'static str {
        self.world.control.context(&self.world.caller(), self.sandbox, self.context).await.unwrap().state
    }
}

#[tokio::test]
async fn variables_live_from_cell_to_cell() {
    let place = place().await;
    // What all lines of a cell are indented by is none of the interpreter's business.
    place.run("  set y 1\n  set x 42").await;
    let result = place.run("print hello\nget x").await;
    assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, "hello\n"));
    assert_eq!(result.results[0].data["text/plain"], "42");
    assert!(result.results[0].main);
    let result = place.run("raise").await;
    assert_eq!((result.status, result.error.unwrap().name.as_str()), (Status::Error, "Oops"));
    let caller = place.world.caller();
    let view = place.world.control.context(&caller, place.sandbox, place.context).await.unwrap();
    assert_eq!((view.state, view.execution_count), ("idle", 3));
}

#[tokio::test]
async fn events_of_a_cell_are_numbered_and_kept() {
    let place = place().await;
    let caller = place.world.caller();
    let attached = place.begin(place.cell("set x é\nprint one\nget x\nprint two\nraise")).await;
    let id = attached.view.id;
    assert_eq!(attached.view.context, Some(place.context));
    let events = all(attached).await;
    let kinds: Vec<_> = events
        .iter()
        .map(|event| match event.body {
            EventBody::Start { .. } => "start",
            EventBody::Stdout(_) => "stdout",
            EventBody::Stderr(_) => "stderr",
            EventBody::Result(_) => "result",
            EventBody::Error(_) => "error",
            EventBody::End(_) => "end",
        })
        .collect();
    assert_eq!(kinds, ["start", "stdout", "result", "stdout", "error", "end"]);
    assert!(events.iter().zip(0..).all(|(event, number)| event.seq == number));
    let control = &place.world.control;
    assert_eq!(all(control.attach(&caller, place.sandbox, id, None).await.unwrap()).await, events);
    assert_eq!(all(control.attach(&caller, place.sandbox, id, Some(3)).await.unwrap()).await, events[4..]);
    // Also after a restart, from what was stored.
    let Place { world, sandbox, .. } = place;
    let world = world.restarted().await;
    assert_eq!(all(world.control.attach(&caller, sandbox, id, None).await.unwrap()).await, events);
}

#[tokio::test]
async fn cells_run_one_at_a_time_in_order() {
    let place = place().await;
    let first = place.begin(place.cell("wait\nprint first\nset x 1")).await;
    let second = place.begin(place.cell("get x\nset x 2")).await;
    let third = place.begin(place.cell("get x")).await;
    assert_eq!(place.state().await, "busy");
    place.kernels.open_gate();
    let control = &place.world.control;
    let (first, second, third) =
        tokio::join!(control.finish(first), control.finish(second), control.finish(third));
    assert_eq!(first.unwrap().stdout, "first\n");
    assert_eq!(second.unwrap().results[0].data["text/plain"], "1");
    assert_eq!(third.unwrap().results[0].data["text/plain"], "2");
    eventually("idle", || async { place.state().await == "idle" }).await;
}

#[tokio::test]
async fn who_wants_the_result_alone_hears_of_the_end_alone() {
    let place = place().await;
    let (control, caller) = (&place.world.control, place.world.caller());
    let result = |code: &str| control.exec_to_end(&caller, place.sandbox, place.cell(code));
    let (first, second) = tokio::join!(result("sleep 200\nprint first\nset x 1"), result("get x"));
    let first = first.unwrap();
    assert_eq!((first.status, first.stdout.as_str()), (Status::Ok, "first\n"));
    assert_eq!(second.unwrap().results[0].data["text/plain"], "1");
    assert_eq!(result("raise").await.unwrap().error.unwrap().name, "Oops");
    assert_eq!(place.state().await, "idle", "an answer is the end");
    // Whoever leaves takes the cell along, and nothing else.
    assert!(tokio::time::timeout(Duration::from_millis(100), result("sleep 60000")).await.is_err());
    assert_eq!(result("get x").await.unwrap().results[0].data["text/plain"], "1");
}

#[tokio::test]
async fn a_disconnect_interrupts_the_cell_and_keeps_the_interpreter() {
    let place = place().await;
    place.run("set x 1").await;
    let mut attached = place.begin(place.cell("sleep 60000")).await;
    attached.events.next().await.unwrap();
    // One that waits is given up before its turn comes.
    let waiting = place.begin(place.cell("set x 2")).await;
    let (running, waited) = (attached.view.id, waiting.view.id);
    drop(waiting);
    let gone = Instant::now();
    drop(attached);
    let result = place.run("get x").await;
    assert!(gone.elapsed() < PATIENCE);
    assert_eq!(result.results[0].data["text/plain"], "1");
    for id in [running, waited] {
        let view = place.world.control.exec_view(&place.world.caller(), place.sandbox, id).await.unwrap();
        assert_eq!(view.status, Some(Status::Killed));
    }
}

#[tokio::test]
async fn cells_that_are_given_up_on_their_way_into_line_leave_it() {
    let place = place().await;
    let (caller, control) = (place.world.caller(), &place.world.control);
    let first = place.begin(place.cell("wait\nset x 1")).await;
    for _ in 0..10 {
        let mut waiting = Box::pin(control.exec(&caller, place.sandbox, place.cell("set x 2")));
        // In line by now, or on its way.
        drop(futures_util::poll!(&mut waiting));
        drop(waiting);
    }
    place.kernels.open_gate();
    control.finish(first).await.unwrap();
    assert_eq!(place.run("get x").await.results[0].data["text/plain"], "1");
    eventually("nothing runs", || async {
        control.execs(&caller, place.sandbox, true).await.unwrap().is_empty()
    })
    .await;
    eventually("idle", || async { place.state().await == "idle" }).await;
}

#[tokio::test]
async fn timeouts_interrupt_and_a_stuck_interpreter_is_lost() {
    let place = place().await;
    let caller = place.world.caller();
    place.run("set x 1").await;
    let within = |time, code| NewExec { timeout: Some(time), ..place.cell(code) };
    let short = within(Duration::from_millis(100), "sleep 60000");
    let result = place.world.control.finish(place.begin(short).await).await.unwrap();
    assert_eq!(result.status, Status::Timeout);
    assert_eq!(place.run("get x").await.results[0].data["text/plain"], "1");
    // Long enough for another one to get into line.
    let stuck = place.begin(within(Duration::from_secs(2), "stuck 60000")).await;
    let waiting = place.begin(place.cell("get x")).await;
    let result = place.world.control.finish(stuck).await.unwrap();
    assert_eq!((result.status, result.error.unwrap().name.as_str()), (Status::Timeout, "ContextLost"));
    let error = place.world.control.finish(waiting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    eventually("lost", || async { place.state().await == "lost" }).await;
    let refused = place.world.control.exec(&caller, place.sandbox, place.cell("get x")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    // Restarted it is new.
    let view = place.world.control.restart_context(&caller, place.sandbox, place.context).await.unwrap();
    assert_eq!((view.state, view.execution_count), ("idle", 0));
    assert_eq!(place.run("get x").await.error.unwrap().name, "NameError");
}

#[tokio::test]
async fn a_cell_in_the_background_has_no_limit_of_time() {
    let limits = LimitsPatch { wall: Some(Duration::from_millis(100)), ..LimitsPatch::default() };
    let place = place_in(NewSandbox { limits, ..plain() }).await;
    let caller = place.world.caller();
    let background = |code| NewExec { background: true, ..place.cell(code) };
    let attached = place.begin(background("sleep 1000\nprint done")).await;
    let result = place.world.control.finish(attached).await.unwrap();
    assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, "done\n"));
    // Nor has it one under the next server.
    let id = place.begin(background("sleep 2000\nprint on")).await.view.id;
    let Place { world, kernels, sandbox, context } = place;
    let place = Place { world: world.crashed().await, kernels, sandbox, context };
    let attached = place.world.control.attach(&caller, sandbox, id, None).await.unwrap();
    let result = place.world.control.finish(attached).await.unwrap();
    assert_eq!(result.status, Status::Ok, "{result:?}");
    assert_eq!(place.run("sleep 60000").await.status, Status::Timeout);
}

#[tokio::test]
async fn an_interrupt_ends_the_cell_and_nothing_running_is_fine() {
    let place = place().await;
    let caller = place.world.caller();
    place.world.control.interrupt_context(&caller, place.sandbox, place.context).await.unwrap();
    let mut attached = place.begin(place.cell("sleep 60000")).await;
    attached.events.next().await.unwrap();
    place.world.control.interrupt_context(&caller, place.sandbox, place.context).await.unwrap();
    assert_eq!(place.world.control.finish(attached).await.unwrap().status, Status::Killed);
}

#[tokio::test]
async fn an_interpreter_that_dies_takes_only_its_context() {
    let place = place().await;
    let result = place.run("print last words\ndie").await;
    assert_eq!((result.status, result.exit_code), (Status::Error, Some(7)));
    eventually("lost", || async { place.state().await == "lost" }).await;
    let caller = place.world.caller();
    let control = &place.world.control;
    control.delete_context(&caller, place.sandbox, place.context).await.unwrap();
    control.delete_context(&caller, place.sandbox, place.context).await.unwrap();
    assert!(control.contexts(&caller, place.sandbox).await.unwrap().is_empty());
    let stranger = place.world.stranger().await;
    let foreign = control.delete_context(&stranger, place.sandbox, place.context).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn deleting_a_context_ends_its_cell() {
    let place = place().await;
    let attached = place.begin(place.cell("sleep 60000")).await;
    let caller = place.world.caller();
    let began = Instant::now();
    place.world.control.delete_context(&caller, place.sandbox, place.context).await.unwrap();
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(place.world.control.finish(attached).await.unwrap().status, Status::Killed);
}

#[tokio::test]
async fn a_new_server_takes_contexts_over_with_their_running_cells() {
    let place = place().await;
    let caller = place.world.caller();
    place.run("set x 1").await;
    let new = NewExec { background: true, ..place.cell("print before\nwait\nprint after\nset x 2") };
    let mut attached = place.begin(new).await;
    let id = attached.view.id;
    // Wait until its first line is out.
    attached.events.next().await.unwrap();
    attached.events.next().await.unwrap();
    let waiting = place.begin(NewExec { background: true, ..place.cell("get x") }).await.view.id;
    let Place { world, kernels, sandbox, context } = place;
    let world = world.restarted().await;
    let place = Place { world, kernels, sandbox, context };
    assert_eq!(place.state().await, "busy");
    place.kernels.open_gate();
    let events = all(place.world.control.attach(&caller, sandbox, id, None).await.unwrap()).await;
    let output: String = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Stdout(chunk) => Some(String::from_utf8(chunk.data.as_bytes().to_vec()).unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(output, "before\nafter\n");
    assert!(matches!(&events.last().unwrap().body, EventBody::End(end) if end.status == Status::Ok));
    assert_eq!(place.run("get x").await.results[0].data["text/plain"], "2");
    // What only waited is ended, and says why.
    let view = place.world.control.exec_view(&caller, sandbox, waiting).await.unwrap();
    assert_eq!(view.status, Some(Status::Killed));
}

#[tokio::test]
async fn a_cell_of_which_only_the_intent_is_on_file_is_found_by_the_next_server() {
    let place = place().await;
    place.run("set x 1").await;
    let Place { world, kernels, sandbox, context } = place;
    // Nothing reaches the database from here on: as if the server died before it comes to that.
    world.store.close().await;
    let new = exec(ExecWork::Cell { context, code: "print told\nset x 2".to_owned() });
    let new = NewExec { background: true, ..new };
    let (control, caller) = (world.control.clone(), world.caller());
    let mut asked = tokio::task::JoinSet::new();
    asked.spawn(async move { control.exec(&caller, sandbox, new).await.map(drop) });
    let intents = world.dir.path().join("intents");
    eventually("on file", || async { std::fs::read(&intents).is_ok_and(|file| file[..4] != [0; 4]) }).await;
    let world = world.crashed().await;
    assert!(asked.try_join_next().is_none(), "nothing is answered before it is on record");
    drop(asked);
    let place = Place { world, kernels, sandbox, context };
    assert_eq!(place.run("get x").await.results[0].data["text/plain"], "2");
    let caller = place.world.caller();
    let execs = place.world.store.list_execs(caller.tenant(), sandbox, false, 10).await.unwrap();
    let statuses: Vec<_> = execs.iter().map(|row| row.status.as_deref()).collect();
    assert_eq!(statuses, [Some("ok"); 3]);
    let found = place.world.control.exec_view(&caller, sandbox, execs[1].id).await.unwrap();
    assert_eq!(found.result.unwrap().stdout, "told\n");
    assert!(!intents.exists() || std::fs::read(&intents).unwrap()[..4] == [0; 4]);
}

#[tokio::test]
async fn a_cell_whose_listener_went_with_the_server_is_interrupted() {
    let place = place().await;
    let caller = place.world.caller();
    place.run("set x 1").await;
    let attached = place.begin(place.cell("sleep 60000\nset x 2")).await;
    let id = attached.view.id;
    // Ended hard, as a crash would: the server is not asked to interrupt anything.
    let Place { world, kernels, sandbox, context } = place;
    let world = world.crashed().await;
    drop(attached);
    let place = Place { world, kernels, sandbox, context };
    assert_eq!(place.run("get x").await.results[0].data["text/plain"], "1");
    let view = place.world.control.exec_view(&caller, sandbox, id).await.unwrap();
    assert_eq!(view.status, Some(Status::Killed));
}

#[tokio::test]
async fn a_context_that_died_meanwhile_is_lost() {
    let place = place().await;
    let caller = place.world.caller();
    let Place { world, kernels, sandbox, context } = place;
    world.control.drain(Duration::ZERO).await;
    kernels.kill_kernels();
    let world = world.restarted().await;
    let place = Place { world, kernels, sandbox, context };
    let result = place.world.control.exec(&caller, sandbox, place.cell("get x")).await;
    let succeeded = match result {
        Ok(attached) => {
            place.world.control.finish(attached).await.map(|result| result.success).unwrap_or(false)
        }
        Err(_) => false,
    };
    assert!(!succeeded);
    eventually("lost", || async { place.state().await == "lost" }).await;
}

#[tokio::test]
async fn a_sandbox_that_dies_fails_with_everything_in_it() {
    let place = place().await;
    let caller = place.world.caller();
    let attached = place.begin(place.cell("sleep 60000")).await;
    let program = NewExec { background: true, ..crate::world::shell("sleep 60") };
    let program = place.begin(program).await;
    let began = Instant::now();
    place.kernels.lose(&place.sandbox, "the agent was killed");
    for attached in [attached, program] {
        let events = all(attached).await;
        let Some(EventBody::End(end)) = events.last().map(|event| &event.body) else { panic!("no end") };
        assert_eq!(end.status, Status::Killed);
        assert!(end.problem.is_some());
    }
    eventually("it failed", || async {
        place.world.control.sandbox(&caller, place.sandbox).await.unwrap().phase
            == sandstorm_types::Phase::Failed
    })
    .await;
    assert!(began.elapsed() < PATIENCE);
    let view = place.world.control.sandbox(&caller, place.sandbox).await.unwrap();
    assert_eq!((view.reason.as_deref(), view.execs_running), (Some("the agent was killed"), 0));
    assert!(place.world.control.contexts(&caller, place.sandbox).await.unwrap().is_empty());
}
