//! Memory of those that live: what rests lets others in, and what works has what it was promised.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandstorm_catalog::Catalog;
use sandstorm_control::server::{Caller, NewExec, NewSandbox, Quota, Settings};
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{CreateOptions, ExecSignal, OpContext, Provider, Result, Sandbox, Tasks, Usage};
use sandstorm_types::{
    ByteSize, Capabilities, ErrorKind, Phase, Routing, RunSpec, SandboxId, SandboxSpec, Unmet,
};

use crate::world::{PATIENCE, World, eventually, plain, settings, shell};

/// What has to wait until others rest is asked for until it comes, however long those take.
async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(given) => return given,
            Err(error) if error.kind() == ErrorKind::Capacity && Instant::now() < give_up => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// What its sandboxes use is what the test says; a mebibyte unless it says anything.
#[derive(Debug, Default)]
struct Measured {
    memory: MemoryProvider,
    used: Mutex<HashMap<SandboxId, ByteSize>>,
}

#[async_trait]
impl Alteration for Measured {
    fn original(&self) -> &dyn Provider {
        &self.memory
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        let memory = self.used.lock().unwrap().get(id).copied().unwrap_or(ByteSize::mib(1));
        Ok(Usage { memory, ..self.memory.usage(cx, id).await? })
    }
}

/// A server that may promise so many sandboxes of 64 MiB their limits.
async fn world(limits: u64, change: impl FnOnce(&mut Settings)) -> (World, Arc<Altered<Measured>>) {
    let provider = Arc::new(Altered::<Measured>::default());
    let mut settings = Settings {
        admission_memory: ByteSize::mib(64 * limits),
        admission_wait: PATIENCE,
        admission_queue: 100,
        ..settings()
    };
    settings.quota = Quota { sandboxes: 1000, ..settings.quota };
    change(&mut settings);
    (World::on(Arc::clone(&provider) as _, settings).await, provider)
}

async fn create(world: &World, caller: &Caller) -> SandboxId {
    patiently(async || world.control.create_sandbox(caller, plain()).await).await.id
}

#[tokio::test]
async fn many_that_rest_live_where_few_can_work() {
    let (world, _) = world(4, |_| {}).await;
    let caller = world.caller();
    // Nine mebibytes each, once they rest: 25 of them, and one that works.
    let creates = (0..20).map(|_| world.control.create_sandbox(&caller, plain()));
    let all: Vec<SandboxId> =
        futures_util::future::try_join_all(creates).await.unwrap().iter().map(|view| view.id).collect();
    for id in &all[..3] {
        let attached = world.control.exec(&caller, *id, shell("echo here")).await.unwrap();
        assert_eq!(world.control.finish(attached).await.unwrap().stdout, "here\n");
    }
    world.control.run(&caller, crate::runs::spec("served")).await.unwrap();
    assert_eq!(world.control.sandbox(&caller, all[19]).await.unwrap().phase, Phase::Ready);
}

#[tokio::test]
async fn who_works_keeps_its_limit_and_who_wakes_waits_for_it() {
    let (world, _) = world(2, |settings| settings.admission_wait = Duration::from_secs(1)).await;
    let caller = world.caller();
    let (one, other, third) =
        (create(&world, &caller).await, create(&world, &caller).await, create(&world, &caller).await);
    let background = |id| {
        let new = NewExec { background: true, ..shell("sleep 600") };
        world.control.exec(&caller, id, new)
    };
    let running = patiently(async || background(one).await).await.view.id;
    // The three hold 64 and twice 9 MiB: there is no room for another that works.
    let refused = background(other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    assert!(refused.retry_after().is_some());
    // Paused, what works stands still and gives its room to others, who may have it when it should go on.
    world.control.pause_sandbox(&caller, one).await.unwrap();
    let beside = patiently(async || background(other).await).await.view.id;
    assert_eq!(world.control.resume_sandbox(&caller, one).await.unwrap_err().kind(), ErrorKind::Capacity);
    world.control.signal(&caller, other, beside, ExecSignal::Kill).await.unwrap();
    patiently(async || world.control.resume_sandbox(&caller, one).await).await;
    assert_eq!(world.control.sandbox(&caller, one).await.unwrap().phase, Phase::Running);
    world.control.signal(&caller, one, running, ExecSignal::Kill).await.unwrap();
    world.control.delete_sandbox(&caller, third).await.unwrap();
}

#[tokio::test]
async fn a_run_is_promised_what_its_compiler_needs() {
    let (world, _) = world(16, |settings| settings.admission_wait = Duration::from_millis(200)).await;
    let caller = world.caller();
    let id = create(&world, &caller).await;
    let new = NewExec { background: true, ..shell("sleep 600") };
    let running = world.control.exec(&caller, id, new).await.unwrap().view.id;
    // A gibibyte is all that there is, and what a compiler of C may take.
    let c =
        || RunSpec { language: "c".parse().unwrap(), ..crate::runs::spec("int main(void) { return 0; }") };
    assert_eq!(world.control.run(&caller, c()).await.unwrap_err().kind(), ErrorKind::Capacity);
    patiently(async || world.control.run(&caller, crate::runs::spec("served")).await).await;
    world.control.signal(&caller, id, running, ExecSignal::Kill).await.unwrap();
    world.control.delete_sandbox(&caller, id).await.unwrap();
    // There is no compiler where it goes now, but it goes.
    eventually("it goes", || async {
        let gone = world.control.run(&caller, c()).await;
        gone.is_err_and(|error| error.kind() != ErrorKind::Capacity)
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_is_promised_what_installing_its_packages_needs() {
    let world = World::installing(Settings {
        // All that there is, and what installing takes.
        admission_memory: ByteSize::gib(5),
        admission_wait: Duration::from_millis(200),
        ..settings()
    })
    .await;
    let caller = world.caller();
    create(&world, &caller).await;
    let requirements = [("python".parse().unwrap(), vec!["six".parse().unwrap()])];
    let new = NewSandbox { requirements: requirements.into(), ..plain() };
    let refused = world.control.create_sandbox(&caller, new).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity, "{refused}");
    // One that requires nothing finds room.
    create(&world, &caller).await;
}

/// A place without this machine's trees, which installs packages itself.
#[derive(Debug)]
struct There(MemoryProvider);

#[async_trait]
impl Alteration for There {
    fn original(&self) -> &dyn Provider {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { host_trees: false, requirements: true, ..self.0.capabilities() }
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        self.0.admits(&SandboxSpec { requirements: BTreeMap::new(), ..spec.clone() })
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        assert_eq!(spec.requirements.len(), 1, "it does not know what it needs");
        let bare = SandboxSpec { requirements: BTreeMap::new(), ..spec.clone() };
        self.0.create(cx, &bare, opts).await
    }
}

#[tokio::test]
async fn packages_are_not_installed_here_for_elsewhere() {
    let json = r#"{"here": {"like": "local", "price": {"model": "owned", "vcpu_hour": 1}},
        "there": {"like": "local", "price": {"model": "owned", "vcpu_hour": 2}}}"#;
    let catalog = Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap();
    let entry = |name: &str| Arc::new(catalog.get(name).unwrap().clone());
    let here: Arc<dyn Provider> = Arc::new(MemoryProvider::named("here"));
    let there: Arc<dyn Provider> = Arc::new(Altered(There(MemoryProvider::named("there"))));
    let members = vec![Member::new(here, entry("here")), Member::new(there, entry("there"))];
    let fleet = Fleet::new(members, FleetSettings::default(), 7, Tasks::default());
    let world = World::among(fleet, settings()).await;
    let caller = world.caller();
    let at = |place: &str| {
        let routing = Routing { order: vec![place.to_owned()], ..Routing::default() };
        let requirements = [("python".parse().unwrap(), vec!["six".parse().unwrap()])];
        NewSandbox { routing: Some(Box::new(routing)), requirements: requirements.into(), ..plain() }
    };
    // Nothing can be installed on this machine, so whatever is tried here fails.
    let made = world.control.create_sandbox(&caller, at("there")).await.unwrap();
    assert_eq!(made.provider, "there");
    let exclude = Routing { exclude_providers: vec!["there".to_owned()], ..Routing::default() };
    let only_here = NewSandbox { routing: Some(Box::new(exclude)), ..at("here") };
    let error = world.control.create_sandbox(&caller, only_here).await.unwrap_err();
    assert!(format!("{error} {:?}", error.reasons()).contains("installs no packages"), "{error}");
}

#[tokio::test]
async fn what_a_paused_one_gives_back_lets_others_in() {
    let (world, provider) = world(2, |settings| settings.admission_wait = Duration::from_secs(1)).await;
    let caller = world.caller();
    let (paused, _still) = (create(&world, &caller).await, create(&world, &caller).await);
    provider.used.lock().unwrap().insert(paused, ByteSize::mib(60));
    world.control.pause_sandbox(&caller, paused).await.unwrap();
    // 60 MiB of it and 9 MiB of the other leave no room for 64.
    let refused = world.control.create_sandbox(&caller, plain()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    // As when the kernel took back what it asked for.
    provider.used.lock().unwrap().insert(paused, ByteSize::mib(1));
    eventually("what it gave back is free", || async {
        world.control.create_sandbox(&caller, plain()).await.is_ok()
    })
    .await;
}

fn say(meminfo: &Path, available_kib: u64) {
    let text = format!("MemTotal: 1000000 kB\nMemAvailable: {available_kib} kB\n");
    std::fs::write(meminfo, text).unwrap();
}

#[tokio::test]
async fn a_machine_that_is_short_takes_nobody_in_and_holds_up_who_grows_unasked() {
    let meminfo = tempfile::NamedTempFile::new().unwrap();
    say(meminfo.path(), 900_000);
    let (world, provider) = world(2, |settings| {
        settings.meminfo = meminfo.path().to_owned();
        settings.admission_wait = Duration::from_secs(1);
    })
    .await;
    let caller = world.caller();
    let (still, greedy) = (create(&world, &caller).await, create(&world, &caller).await);
    // There is room for a third once both rest.
    create(&world, &caller).await;
    say(meminfo.path(), 10_000);
    eventually("nobody comes in", || async {
        let created = world.control.create_sandbox(&caller, plain()).await;
        created.is_err_and(|error| error.kind() == ErrorKind::Capacity)
    })
    .await;
    provider.used.lock().unwrap().insert(greedy, ByteSize::mib(40));
    eventually("it stands still", || async {
        world.control.sandbox(&caller, greedy).await.unwrap().phase == Phase::Paused
    })
    .await;
    assert_eq!(world.control.sandbox(&caller, still).await.unwrap().phase, Phase::Ready);
    say(meminfo.path(), 900_000);
    eventually("somebody comes in again", || async {
        world.control.create_sandbox(&caller, plain()).await.is_ok()
    })
    .await;
    patiently(async || world.control.resume_sandbox(&caller, greedy).await).await;
}
