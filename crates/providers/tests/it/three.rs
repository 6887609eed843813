//! Three servers behind one router, one of them failing at random: nobody sees a failure, and nothing runs twice.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sandstorm_control::server::{
    Caller, Control, ExecWork, LedgerSum, NewExec, NewSandbox, Quota, Settings, Setup,
};
use sandstorm_control::{Runner, Tools};
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_language::Roots;
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Exec, ExecRequest, OpContext, Provider, Result, Tasks};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_router::failover::RetryBudgetRules;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::{ByteSize, Enforcement, ErrorKind, LanguageName, Routing, RunSpec, SandboxId, Status};

use crate::hosted::{Hosted, Sandstorm};
use crate::ledger;
use crate::proxy::{Fault, Proxy, answer};
use crate::world::{World, eventually};

/// The servers as the router knows them.
pub(crate) const NAMES: [&str; 3] = ["flaky", "second", "third"];

/// Counts how often each program was begun, by its code.
#[derive(Debug, Clone)]
struct Counting {
    inner: Arc<MemoryProvider>,
    begun: Arc<Mutex<HashMap<String, usize>>>,
}

#[async_trait]
impl Alteration for Counting {
    fn original(&self) -> &dyn Provider {
        &*self.inner
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        for (_, content) in &req.files {
            let code = String::from_utf8_lossy(content).into_owned();
            *self.begun.lock().unwrap().entry(code).or_default() += 1;
        }
        self.inner.exec(cx, id, req).await
    }
}

/// Three servers, a proxy before each, and a server that routes between them.
pub(crate) struct Three {
    pub(crate) servers: Vec<World>,
    pub(crate) proxies: Vec<Proxy>,
    begun: Arc<Mutex<HashMap<String, usize>>>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) control: Control,
    _dir: tempfile::TempDir,
}

impl Three {
    async fn new() -> Self {
        Self::patient(Duration::from_secs(20)).await
    }

    /// The router waits so long for an answer.
    pub(crate) async fn patient(answer_timeout: Duration) -> Self {
        let begun: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let mut servers = Vec::new();
        for _ in 0..3 {
            let memory = Arc::new(MemoryProvider::default());
            let counting = Counting { inner: Arc::clone(&memory), begun: Arc::clone(&begun) };
            let settings = ledger::priced(many(World::settings()));
            servers.push(World::over(memory, Arc::new(Altered(counting)), settings).await);
        }
        let mut proxies = Vec::new();
        let entry = ledger::entry();
        let mut members = Vec::new();
        for (name, server) in NAMES.iter().zip(&servers) {
            let proxy = Proxy::to(server.address).await;
            let mut config = server.config(proxy.address);
            proxies.push(proxy);
            (*name).clone_into(&mut config.name);
            config.answer_timeout = answer_timeout;
            let provider = SandstormProvider::connect(config).await.unwrap();
            members.push(Member::new(Arc::new(provider), Arc::clone(&entry)));
        }
        let mut settings = FleetSettings { patience: Duration::from_secs(3), ..FleetSettings::default() };
        // Every request goes to the failing one first: more second attempts than on any real day.
        settings.router.retries = RetryBudgetRules { per_request: 2.0, ..RetryBudgetRules::default() };
        let fleet = Fleet::new(members, settings, 7, Tasks::default());
        let dir = tempfile::tempdir().unwrap();
        let control = router(Arc::clone(&fleet), dir.path()).await;
        Self { servers, proxies, begun, fleet, control, _dir: dir }
    }

    pub(crate) fn caller(&self) -> Caller {
        self.control.developer()
    }
}

fn many(settings: Settings) -> Settings {
    let quota = Quota { runs_per_minute: None, requests_per_second: None, ..settings.quota };
    Settings { quota, ..settings }
}

/// A server that routes, with its records in a folder.
pub(crate) async fn router(fleet: Arc<Fleet>, dir: &Path) -> Control {
    router_with(fleet, dir, many(World::settings())).await
}

async fn router_with(fleet: Arc<Fleet>, dir: &Path, settings: Settings) -> Control {
    let config = StoreConfig::in_directory(dir, None, AuditKey::from_bytes([5; 32]));
    let store = Store::open(&config).await.unwrap();
    let workshop: Arc<dyn Provider> = Arc::new(MemoryProvider::default());
    let tools = Tools {
        provider: Arc::clone(&workshop),
        limits: settings.limits,
        roots: Roots::host().with_program("bash", "/bin/cat"),
        cache: None,
        layers: None,
    };
    let runner = Runner::new(tools).over(Arc::clone(&fleet), workshop);
    let setup = Setup { store, provider: fleet, runner, settings };
    Control::start(setup).await.unwrap()
}

pub(crate) fn spec(code: &str) -> RunSpec {
    RunSpec { enforcement: Some(Enforcement::BestEffort), ..RunSpec::new(bash(), code) }
}

fn bash() -> LanguageName {
    "bash".parse().unwrap()
}

/// One request in four is not dealt with as it should be, each time in another way. The first program finds its sandbox
/// and cannot begin there, so that one attempt at least costs something.
fn bad_days() -> impl Fn(&str) -> Fault + Send + Sync + 'static {
    let (turn, first) = (AtomicU64::new(0), AtomicBool::new(true));
    move |line| {
        if first.load(Ordering::Relaxed) {
            return match Sandstorm::starts(line) && first.swap(false, Ordering::Relaxed) {
                true => Fault::Reset,
                false => Fault::Pass,
            };
        }
        let mut draw =
            turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        draw ^= draw >> 29;
        draw = draw.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        match draw % 40 {
            0 | 1 => Fault::Reset,
            2 | 3 => answer("500 Internal Server Error", "", "no"),
            4 => answer("429 Too Many Requests", "retry-after: 0\r\n", "no"),
            5 => answer("402 Payment Required", "", "no"),
            6 => Fault::LoseAnswer,
            7 => Fault::CutAfter(700),
            8 => Fault::Answer(b"garbage\r\n\r\n".to_vec()),
            9 => Fault::Late(Duration::from_millis(50)),
            _ => Fault::Pass,
        }
    }
}

async fn survive(count: usize) {
    let three = Three::new().await;
    three.proxies[0].set(bad_days());
    let (control, caller) = (&three.control, three.caller());
    let order = Routing { order: vec!["flaky".to_owned()], ..Routing::default() };
    let results: Vec<_> = stream::iter(0..count)
        .map(|n| {
            let (caller, order) = (caller.clone(), order.clone());
            async move {
                let code = format!("run number {n}\n");
                let wanted = RunSpec { routing: Some(Box::new(order)), ..spec(&code) };
                (code, control.run(&caller, wanted).await)
            }
        })
        .buffer_unordered(6)
        .collect()
        .await;
    let (mut extra, mut at_flaky) = (0, 0);
    for (code, result) in results {
        let result = result.unwrap_or_else(|error| panic!("{code}: {error} {error:?}"));
        assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, code.as_str()));
        extra += result.route.attempts.len() - 1;
        at_flaky += usize::from(result.route.provider == "flaky");
        let last = result.route.attempts.last().unwrap();
        assert_eq!((last.provider.as_str(), last.outcome.as_str()), (result.route.provider.as_str(), "ok"));
        assert_eq!(result.route.isolator.as_deref(), Some("sandstorm"));
    }
    assert!(extra > 0, "bad days were felt");
    assert!(at_flaky > 0, "and some of its days were good");
    let begun = three.begun.lock().unwrap().clone();
    assert_eq!(begun.len(), count);
    let twice: Vec<_> = begun.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    three.proxies[0].heal();
    for server in &three.servers {
        eventually("nothing is left", || async { server.alive().await == 0 }).await;
    }
    // What each of them says that it did is what was paid for, extra attempts included.
    let spent = ledger::settled(control, &caller).await;
    ledger::agrees(&spent, NAMES.into_iter().zip(&three.servers)).await;
    let sum = |of: fn(&LedgerSum) -> u64| spent.values().map(of).sum::<u64>();
    assert_eq!(sum(|sum| sum.runs), count as u64);
    let attempts = sum(|sum| sum.attempts);
    assert!(0 < attempts && attempts <= extra as u64, "{attempts} of {extra} were begun");
    assert!(spent.values().all(|sum| sum.charge.is_positive()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_and_fifty_runs_survive_a_failing_server() {
    survive(150).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn a_thousand_runs_survive_a_failing_server() {
    survive(1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_live_where_they_were_made_and_say_so() {
    let three = Three::new().await;
    let caller = three.caller();
    let routing = Routing { order: vec!["third".to_owned()], ..Routing::default() };
    let new = NewSandbox {
        enforcement: Some(Enforcement::BestEffort),
        routing: Some(Box::new(routing)),
        ..NewSandbox::default()
    };
    let made = three.control.create_sandbox(&caller, new).await.unwrap();
    assert_eq!((made.provider.as_str(), made.isolator.as_str()), ("third", "sandstorm"));
    assert_eq!(three.servers[2].alive().await, 1);
    let exec = NewExec::of(ExecWork::Code { language: bash(), code: "shown".to_owned(), args: Vec::new() });
    let result = three.control.exec_to_end(&caller, made.id, exec).await.unwrap();
    assert_eq!((result.stdout.as_str(), result.route.provider.as_str()), ("shown", "third"));
    three.control.delete_sandbox(&caller, made.id).await.unwrap();
    assert_eq!(three.servers[2].alive().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn wishes_that_mean_nothing_are_refused_by_name() {
    let three = Three::new().await;
    let caller = three.caller();
    let run = |routing: Routing| {
        let spec = RunSpec { routing: Some(Box::new(routing)), ..spec("x") };
        three.control.run(&caller, spec)
    };
    let unknown = Routing { exclude_providers: vec!["fourth".to_owned()], ..Routing::default() };
    let error = run(unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("fourth"), "{error}");
    let everybody = ["flaky", "second", "third"].map(str::to_owned).to_vec();
    let error = run(Routing { exclude_providers: everybody, ..Routing::default() }).await.unwrap_err();
    assert!(error.to_string().contains("the request excludes it"), "{error}");
    let error = run(Routing::requiring("exec_channel")).await.unwrap_err();
    assert!(error.to_string().contains("exec_channel"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_are_down_each_is_named() {
    let three = Three::new().await;
    for proxy in &three.proxies {
        proxy.set(|_| answer("500 Internal Server Error", "", "no"));
    }
    let error = three.control.run(&three.caller(), spec("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    for name in ["flaky", "second", "third"] {
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_elsewhere_needs_no_memory_here() {
    let server = World::new().await;
    let provider = SandstormProvider::connect(server.config(server.address)).await.unwrap();
    let fleet = Fleet::new(
        vec![Member::new(Arc::new(provider), ledger::entry())],
        FleetSettings::default(),
        7,
        Tasks::default(),
    );
    let dir = tempfile::tempdir().unwrap();
    // There is room for one, and nobody waits for long.
    let settings = Settings { admission_memory: ByteSize::mib(600), ..many(World::settings()) };
    let control = router_with(fleet, dir.path(), settings).await;
    let caller = control.developer();
    let new = || NewSandbox { enforcement: Some(Enforcement::BestEffort), ..NewSandbox::default() };
    for _ in 0..3 {
        control.create_sandbox(&caller, new()).await.unwrap();
    }
    control.run(&caller, spec("x")).await.unwrap();
    assert_eq!(server.alive().await, 3);
}
