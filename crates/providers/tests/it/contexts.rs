//! Living interpreters elsewhere: a router whose only place is another server, by its own API and by E2B's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_catalog::Catalog;
use sandstorm_control::server::{
    Attached, Caller, Control, ExecWork, NewContext, NewExec, NewFork, NewSandbox, Setup,
};
use sandstorm_control::{Runner, Tools};
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_language::Roots;
use sandstorm_provider::altered::Altered;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Provider, Tasks};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::{
    ContextId, Enforcement, EnvMap, ErrorKind, EventBody, ExecId, LanguageName, Routing, RunResult, RunSpec,
    SandboxId, Status,
};

use crate::e2b::world as e2b;
use crate::programs::Programs;
use crate::proxy::Proxy;
use crate::world::{PATIENCE, World, eventually};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sandstorm,
    E2b,
}

/// A place elsewhere with real interpreters, and a proxy before it.
struct Far {
    kind: Kind,
    world: World,
    programs: Arc<Altered<Programs>>,
    proxy: Proxy,
}

impl Far {
    async fn new(kind: Kind) -> Self {
        Self::with(kind, Programs::new()).await
    }

    async fn with(kind: Kind, programs: Programs) -> Self {
        let programs = Arc::new(Altered(programs));
        let (memory, provider) = (Arc::clone(&programs.memory), Arc::clone(&programs) as Arc<dyn Provider>);
        let world = match kind {
            Kind::Sandstorm => World::over(memory, provider, World::settings()).await,
            Kind::E2b => World::serving(memory, provider, World::settings(), e2b::foreign).await,
        };
        let proxy = Proxy::to(world.address).await;
        Self { kind, world, programs, proxy }
    }

    async fn member(&self) -> Arc<dyn Provider> {
        match self.kind {
            Kind::Sandstorm => {
                let config = self.world.config(self.proxy.address);
                Arc::new(SandstormProvider::connect(config).await.unwrap())
            }
            Kind::E2b => {
                let config = e2b::config(&self.world, self.proxy.address);
                Arc::new(E2bProvider::connect(config).await.unwrap())
            }
        }
    }
}

/// A router that has no interpreters of its own.
struct Router {
    control: Control,
    store: Store,
    dir: tempfile::TempDir,
}

impl Router {
    async fn over(far: &Far) -> Self {
        Self::start(tempfile::tempdir().unwrap(), far).await
    }

    async fn start(dir: tempfile::TempDir, far: &Far) -> Self {
        Self::among(dir, far, None).await
    }

    /// One that has a place of its own machine, too.
    async fn among(dir: tempfile::TempDir, far: &Far, near: Option<Member>) -> Self {
        let config = StoreConfig::in_directory(dir.path(), None, AuditKey::from_bytes([5; 32]));
        let store = Store::open(&config).await.unwrap();
        let catalogue = if far.kind == Kind::E2b { "e2b" } else { "sandstorm" };
        let entry = Arc::new(Catalog::embedded().get(catalogue).unwrap().clone());
        let member = Member::new(far.member().await, entry);
        let members = near.into_iter().chain([member]).collect();
        let fleet = Fleet::new(members, FleetSettings::default(), 7, Tasks::default());
        let workshop: Arc<dyn Provider> = Arc::new(MemoryProvider::default());
        let settings = World::settings();
        let tools = Tools {
            provider: Arc::clone(&workshop),
            limits: settings.limits,
            roots: Roots::at(dir.path()),
            cache: None,
            layers: None,
        };
        let runner = Runner::new(tools).over(Arc::clone(&fleet), workshop);
        let setup = Setup { store: store.clone(), provider: fleet, runner, settings };
        Self { control: Control::start(setup).await.unwrap(), store, dir }
    }

    /// Another router over what this one left.
    async fn restarted(self, far: &Far) -> Self {
        let Self { control, store, dir } = self;
        control.drain(Duration::ZERO).await;
        store.close().await;
        Self::start(dir, far).await
    }

    fn caller(&self) -> Caller {
        self.control.developer()
    }

    async fn sandbox_at(&self, place: &str, contexts: bool) -> SandboxId {
        let routing = Routing { order: vec![place.to_owned()], ..Routing::default() };
        let (enforcement, routing) = (Some(Enforcement::BestEffort), Some(Box::new(routing)));
        let new = NewSandbox { enforcement, routing, contexts, ..NewSandbox::default() };
        self.control.create_sandbox(&self.caller(), new).await.unwrap().id
    }

    async fn sandbox(&self) -> SandboxId {
        let new = NewSandbox {
            enforcement: Some(Enforcement::BestEffort),
            contexts: true,
            ..NewSandbox::default()
        };
        self.control.create_sandbox(&self.caller(), new).await.unwrap().id
    }

    async fn context(&self, sandbox: SandboxId, language: &str) -> ContextId {
        let new = NewContext { language: language.parse().unwrap(), cwd: None, env: EnvMap::new() };
        self.control.create_context(&self.caller(), sandbox, new).await.unwrap().id
    }

    async fn begin(&self, sandbox: SandboxId, context: ContextId, code: &str) -> Attached {
        let new = cell(context, code);
        self.control.exec(&self.caller(), sandbox, new).await.unwrap()
    }

    async fn try_cell(
        &self,
        sandbox: SandboxId,
        context: ContextId,
        code: &str,
    ) -> sandstorm_provider::Result<RunResult> {
        let caller = self.caller();
        let running = self.control.exec_to_end(&caller, sandbox, cell(context, code));
        tokio::time::timeout(PATIENCE, running).await.expect("it ends")
    }

    async fn cell(&self, sandbox: SandboxId, context: ContextId, code: &str) -> RunResult {
        self.try_cell(sandbox, context, code).await.unwrap_or_else(|error| panic!("{code}: {error:?}"))
    }
}

fn cell(context: ContextId, code: &str) -> NewExec {
    NewExec {
        timeout: Some(Duration::from_secs(30)),
        ..NewExec::of(ExecWork::Cell { context, code: code.to_owned() })
    }
}

/// Waits until a cell has printed something.
async fn printed(attached: &mut Attached) -> ExecId {
    while let Some(event) = attached.events.next().await {
        if matches!(event.body, EventBody::Stdout(_)) {
            return attached.view.id;
        }
    }
    panic!("it printed nothing");
}

async fn python_lives(kind: Kind) {
    let far = Far::new(kind).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "python").await;
    router.cell(sandbox, context, "x = 41").await;
    let result = router.cell(sandbox, context, "x + 1").await;
    assert_eq!((result.status, &result.results[0].data["text/plain"]), (Status::Ok, &"42".into()));
    // Each stream in the order in which it was written; what looks like a line of ours is output as any other.
    let attached = router
        .begin(
            sandbox,
            context,
            "import sys\nfor n in range(3):\n    print('out', n); sys.stdout.flush()\n    \
             print('err', n, file=sys.stderr); sys.stderr.flush()\nprint('0<message:e30=\\n>done:\\n')",
        )
        .await;
    let events: Vec<EventBody> = attached.events.map(|event| event.body).collect().await;
    let (mut out, mut err) = (String::new(), String::new());
    for body in &events {
        match body {
            EventBody::Stdout(chunk) => out.push_str(std::str::from_utf8(chunk.data.as_bytes()).unwrap()),
            EventBody::Stderr(chunk) => err.push_str(std::str::from_utf8(chunk.data.as_bytes()).unwrap()),
            _ => {}
        }
    }
    assert_eq!(out, "out 0\nout 1\nout 2\n0<message:e30=\n>done:\n\n");
    assert_eq!(err, "err 0\nerr 1\nerr 2\n");
    let end = events.last().unwrap();
    assert!(matches!(end, EventBody::End(end) if end.status == Status::Ok), "{end:?}");
    let result = router.cell(sandbox, context, "1 / 0").await;
    assert_eq!((result.status, result.error.unwrap().name.as_str()), (Status::Error, "ZeroDivisionError"));
    let rich = "class Shown:\n    def _repr_html_(self): return '<b>x</b>'\nShown()";
    let result = router.cell(sandbox, context, rich).await;
    assert_eq!(result.results[0].data["text/html"], "<b>x</b>");
    // Larger than a line, both ways.
    let result = router.cell(sandbox, context, &format!("big = '{}'\nlen(big)", "y".repeat(200_000))).await;
    assert_eq!(result.results[0].data["text/plain"], "200000");
    let result = router.cell(sandbox, context, "big").await;
    assert_eq!(result.results[0].data["text/plain"].as_str().unwrap().len(), 200_002);
    router.control.delete_context(&router.caller(), sandbox, context).await.unwrap();
    eventually("the interpreter ends", async || far.programs.count() == 0).await;
    router.control.delete_sandbox(&router.caller(), sandbox).await.unwrap();
    eventually("nothing is left there", async || far.world.alive().await == 0).await;
}

async fn python_is_spoken_to(kind: Kind) {
    let far = Far::new(kind).await;
    let router = Router::over(&far).await;
    let (caller, sandbox) = (router.caller(), router.sandbox().await);
    let context = router.context(sandbox, "python").await;
    let mut asking = router
        .begin(sandbox, context, "print('name?', flush=True)\nname = input()\nprint('hello', name)")
        .await;
    let exec = printed(&mut asking).await;
    router.control.write_stdin(&caller, sandbox, exec, Bytes::from_static(b"world\n")).await.unwrap();
    let result = router.control.finish(asking).await.unwrap();
    assert!(result.stdout.ends_with("hello world\n"), "{result:?}");
    // An interrupt ends the cell, also one that prints without end, and nothing else.
    for endless in
        ["while True: pass", "import time\nwhile True: time.sleep(1)", "while True: print('x' * 99)"]
    {
        let code = format!("kept = 7\nprint('on', flush=True)\n{endless}");
        let mut running = router.begin(sandbox, context, &code).await;
        printed(&mut running).await;
        router.control.interrupt_context(&caller, sandbox, context).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, router.control.finish(running)).await.unwrap().unwrap();
        assert_eq!(ended.status, Status::Killed, "{endless}");
        let result = router.cell(sandbox, context, "kept, name").await;
        assert_eq!(result.results[0].data["text/plain"], "(7, 'world')", "{endless}");
    }
    // A cell whose time is over is interrupted, and the variables stay.
    let slow = NewExec { timeout: Some(Duration::from_millis(400)), ..cell(context, "while True: pass") };
    let result = router.control.exec_to_end(&caller, sandbox, slow).await.unwrap();
    assert_eq!(result.status, Status::Timeout);
    assert_eq!(router.cell(sandbox, context, "kept").await.results[0].data["text/plain"], "7");
    // One that ends itself is lost, and starts anew when that is asked for.
    let result = router.cell(sandbox, context, "import os; os._exit(3)").await;
    assert!(result.status != Status::Ok && result.error.unwrap().name == "ContextLost");
    let lost = router.try_cell(sandbox, context, "1").await.unwrap_err();
    assert!(lost.to_string().contains("lost"), "{lost}");
    router.control.restart_context(&caller, sandbox, context).await.unwrap();
    let result = router.cell(sandbox, context, "kept").await;
    assert_eq!(result.error.unwrap().name, "NameError");
}

async fn javascript_lives(kind: Kind) {
    let far = Far::new(kind).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "javascript").await;
    router.cell(sandbox, context, "let total = 40; console.log('set')").await;
    let result = router.cell(sandbox, context, "console.error('e'); total + 2").await;
    assert_eq!((result.stderr.as_str(), &result.results[0].data["text/plain"]), ("e\n", &"42".into()));
    let mut running = router.begin(sandbox, context, "console.log('on'); while (true) {}").await;
    printed(&mut running).await;
    router.control.interrupt_context(&router.caller(), sandbox, context).await.unwrap();
    assert_eq!(router.control.finish(running).await.unwrap().status, Status::Killed);
    assert_eq!(router.cell(sandbox, context, "total").await.results[0].data["text/plain"], "40");
}

async fn a_language_that_needs_a_channel_says_so(kind: Kind) {
    let far = Far::new(kind).await;
    let router = Router::over(&far).await;
    let (caller, sandbox) = (router.caller(), router.sandbox().await);
    for (language, title) in [("bash", "Bash"), ("r", "R"), ("java", "Java")] {
        let name: LanguageName = language.parse().unwrap();
        assert_eq!(router.control.language_of_contexts(&caller, sandbox, &name).await.unwrap(), None);
        let new = NewContext { language: name, cwd: None, env: EnvMap::new() };
        let refused = router.control.create_context(&caller, sandbox, new).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        assert!(
            refused.message().starts_with(&format!("{title} has no contexts in this sandbox")),
            "{refused}"
        );
    }
    for (language, proper) in [("python", "python"), ("node", "javascript"), ("ts", "typescript")] {
        let name = language.parse().unwrap();
        let found = router.control.language_of_contexts(&caller, sandbox, &name).await.unwrap();
        assert_eq!(found.unwrap().as_str(), proper);
    }
    assert_eq!(router.control.contexts(&caller, sandbox).await.unwrap().len(), 0);
}

async fn a_missing_language_is_named(kind: Kind) {
    let far = Far::with(kind, Programs::with_path("/nonexistent")).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let new = NewContext { language: "python".parse().unwrap(), cwd: None, env: EnvMap::new() };
    let refused = router.control.create_context(&router.caller(), sandbox, new).await.unwrap_err();
    let told = refused.message();
    assert!(told.contains("Python could not be started") && told.contains("python3"), "{refused:?}");
    assert_eq!(router.control.contexts(&router.caller(), sandbox).await.unwrap().len(), 0);
}

async fn the_end_of_the_place_is_told(kind: Kind) {
    let far = Far::new(kind).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "python").await;
    router.cell(sandbox, context, "x = 1").await;
    let mut running =
        router.begin(sandbox, context, "import time\nprint('on', flush=True)\ntime.sleep(60)").await;
    printed(&mut running).await;
    let theirs = far.world.client().sandboxes(&Default::default()).await.unwrap().items[0].id;
    far.world.client().delete_sandbox(theirs).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, router.control.finish(running)).await.expect("it ends");
    match ended {
        Ok(result) => assert!(result.status != Status::Ok, "{result:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}"),
    }
    let again = router.try_cell(sandbox, context, "x").await.unwrap_err();
    assert!([ErrorKind::Conflict, ErrorKind::NotFound].contains(&again.kind()), "{again:?}");
}

macro_rules! on_both {
    ($($work:ident: $sandstorm:ident, $e2b:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $sandstorm() {
            Box::pin($work(Kind::Sandstorm)).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $e2b() {
            Box::pin($work(Kind::E2b)).await;
        }
    )*};
}

on_both! {
    python_lives: python_lives_on_another_server, python_lives_at_e2b;
    python_is_spoken_to: python_is_spoken_to_on_another_server, python_is_spoken_to_at_e2b;
    javascript_lives: javascript_lives_on_another_server, javascript_lives_at_e2b;
    a_language_that_needs_a_channel_says_so: a_language_that_needs_a_channel_says_so_on_another_server, a_language_that_needs_a_channel_says_so_at_e2b;
    a_missing_language_is_named: a_missing_language_is_named_on_another_server, a_missing_language_is_named_at_e2b;
    the_end_of_the_place_is_told: the_end_of_another_server_is_told, the_end_at_e2b_is_told;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_router_goes_on_where_one_was() {
    let far = Far::new(Kind::Sandstorm).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "python").await;
    router.cell(sandbox, context, "x = 5\nprint('a' * 300_000)").await;
    let router = router.restarted(&far).await;
    let result = router.cell(sandbox, context, "print('here'); x").await;
    assert_eq!((result.stdout.as_str(), &result.results[0].data["text/plain"]), ("here\n", &"5".into()));
    // A cell that was under way is followed to its end, and nothing of it is heard twice.
    let slow = "import time\nprint('begun', flush=True)\ntime.sleep(3)\ny = x * 2\nprint('done')\ny";
    let new = NewExec { background: true, ..cell(context, slow) };
    let mut running = router.control.exec(&router.caller(), sandbox, new).await.unwrap();
    let exec = printed(&mut running).await;
    drop(running);
    let router = router.restarted(&far).await;
    let attached = router.control.attach(&router.caller(), sandbox, exec, None).await.unwrap();
    let result = tokio::time::timeout(PATIENCE, router.control.finish(attached)).await.unwrap().unwrap();
    assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, "begun\ndone\n"));
    assert_eq!(result.results[0].data["text/plain"], "10");
    assert_eq!(router.cell(sandbox, context, "y").await.results[0].data["text/plain"], "10");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_writes_more_than_any_program_may_keep() {
    let far = Far::new(Kind::Sandstorm).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "python").await;
    for n in 0..5 {
        let result = router.cell(sandbox, context, "print('x' * 4_000_000)").await;
        assert_eq!((result.status, result.stdout.len()), (Status::Ok, 4_000_001), "cell {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_made_again() {
    let far = Far::new(Kind::Sandstorm).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "python").await;
    router.cell(sandbox, context, "x = 5").await;
    far.proxy.break_all();
    let result = router.cell(sandbox, context, "print(x)\nx").await;
    assert_eq!((result.stdout.as_str(), &result.results[0].data["text/plain"]), ("5\n", &"5".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_elsewhere_is_not_carried_by_a_fork() {
    let far = Far::new(Kind::Sandstorm).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    router.context(sandbox, "python").await;
    let caller = router.caller();
    let refused = router.control.fork_sandbox(&caller, sandbox, NewFork::default()).await.unwrap_err();
    assert!(refused.to_string().contains("does not carry"), "{refused}");
}

/// Our own server of E2B's API keeps so much of a program's output, and says when that is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_keeps_no_more_is_told_and_not_waited_for() {
    let far = Far::new(Kind::E2b).await;
    let router = Router::over(&far).await;
    let sandbox = router.sandbox().await;
    let context = router.context(sandbox, "python").await;
    let mut cells = 0;
    let ended = loop {
        match router.try_cell(sandbox, context, "print('x' * 4_000_000)").await {
            Ok(result) if result.status == Status::Ok => cells += 1,
            ended => break ended,
        }
        assert!(cells < 10, "there is no end to it");
    };
    let error = ended.unwrap_err();
    assert!(error.to_string().contains("out of sight"), "{error:?}");
    assert!(format!("{error:?}").contains("is not kept"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_installed_here_runs_elsewhere() {
    let far = Far::new(Kind::Sandstorm).await;
    let entry = Arc::new(Catalog::embedded().get("local").unwrap().clone());
    let near = Member::new(Arc::new(MemoryProvider::named("near")), entry);
    let router = Router::among(tempfile::tempdir().unwrap(), &far, Some(near)).await;
    let order = Routing { order: vec!["near".to_owned()], ..Routing::default() };
    let run = |routing: Routing| {
        let spec = RunSpec::new("bash".parse().unwrap(), "shown");
        let (enforcement, routing) = (Some(Enforcement::BestEffort), Some(Box::new(routing)));
        let (control, caller) = (router.control.clone(), router.caller());
        async move { control.run(&caller, RunSpec { enforcement, routing, ..spec }).await }
    };
    let result = run(order).await.unwrap();
    assert_eq!((result.stdout.as_str(), result.route.provider.as_str()), ("shown", "far"));
    let nowhere = Routing { exclude_providers: vec!["far".to_owned()], ..Routing::default() };
    let refused = run(nowhere).await.unwrap_err();
    assert!(refused.to_string().contains("Bash is not installed"), "{refused}");
    // A sandbox for contexts goes where their language is.
    let contexts = router.sandbox_at("near", true).await;
    assert_eq!(router.control.sandbox(&router.caller(), contexts).await.unwrap().provider, "far");
    let plain = router.sandbox_at("near", false).await;
    assert_eq!(router.control.sandbox(&router.caller(), plain).await.unwrap().provider, "near");
    // The same for code in a sandbox that lives there.
    let sandbox = router.sandbox_at("far", false).await;
    let work =
        ExecWork::Code { language: "bash".parse().unwrap(), code: "shown".to_owned(), args: Vec::new() };
    let code = NewExec { work, ..cell(ContextId::random(), "") };
    let result = router.control.exec_to_end(&router.caller(), sandbox, code).await.unwrap();
    assert_eq!(result.stdout, "shown");
}
