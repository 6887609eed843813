//! A server for one test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_control::server::{
    Attached, Caller, Control, ControlEvent, EventBodyView, EventFilter, ExecWork, KeyForm, NewExec, NewKey,
    NewSandbox, NewTenant, Scopes, Settings, Setup, testing,
};
use sandstorm_control::{Extract, Layers, LayersConfig, Runner, Tools};
use sandstorm_fleet::Fleet;
use sandstorm_language::Roots;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Command, Provider};
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::{ByteSize, Event, Limits};

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) store: Store,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) settings: Settings,
}

/// No archive comes to be taken apart.
#[derive(Debug)]
struct Nothing;

impl Extract for Nothing {
    fn extract(&self, _: &mut dyn std::io::Read, _: &Path, _: u64) -> std::io::Result<u64> {
        Ok(0)
    }

    fn pack(&self, _: &Path, _: Option<&str>, _: &mut dyn std::io::Write) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        limits: Limits { memory: ByteSize::mib(64), wall: Duration::from_secs(300), ..Limits::default() },
        ceiling: Limits { memory: ByteSize::mib(1024), wall: Duration::from_secs(600), ..Limits::default() },
        admission_memory: ByteSize::gib(64),
        admission_wait: Duration::from_secs(2),
        admission_queue: 16,
        paused_for: Duration::from_secs(3600),
        ..testing::settings()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(settings()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::on(Arc::new(MemoryProvider::default()), settings).await
    }

    pub(crate) async fn on(provider: Arc<dyn Provider>, settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::over(dir, provider, settings).await
    }

    /// A server that has a choice of places.
    pub(crate) async fn among(fleet: Arc<Fleet>, settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let provider = Arc::clone(&fleet) as Arc<dyn Provider>;
        Box::pin(Self::start(dir, provider, settings, Some(fleet), None)).await
    }

    /// A server that installs packages, as far as a provider without package managers can.
    pub(crate) async fn installing(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = LayersConfig {
            dir: dir.path().join("layers"),
            max_bytes: u64::MAX,
            indexes: BTreeMap::new(),
            extract: Arc::new(Nothing),
        };
        let provider = Arc::new(MemoryProvider::default());
        Box::pin(Self::start(dir, provider, settings, None, Some(Layers::new(config)))).await
    }

    async fn over(dir: tempfile::TempDir, provider: Arc<dyn Provider>, settings: Settings) -> Self {
        Box::pin(Self::start(dir, provider, settings, None, None)).await
    }

    async fn start(
        dir: tempfile::TempDir,
        provider: Arc<dyn Provider>,
        settings: Settings,
        fleet: Option<Arc<Fleet>>,
        layers: Option<Layers>,
    ) -> Self {
        let config = StoreConfig::in_directory(dir.path(), None, AuditKey::from_bytes([5; 32]));
        let store = Store::open(&config).await.unwrap();
        // Code in this language is shown instead of run: the provider in memory has no interpreters.
        let roots = Roots::host().with_program("bash", "/bin/cat").with_program("python", "/bin/cat");
        let tools =
            Tools { provider: Arc::clone(&provider), limits: settings.limits, roots, cache: None, layers };
        let mut runner = Runner::new(tools);
        if let Some(fleet) = fleet {
            runner = runner.over(fleet, Arc::new(MemoryProvider::default()));
        }
        let setup = Setup {
            store: store.clone(),
            provider: Arc::clone(&provider),
            runner,
            settings: settings.clone(),
        };
        let control = Control::start(setup).await.unwrap();
        Self { control, provider, store, dir, settings }
    }

    /// Another server over what this one left without a word: its hand on the store is gone, so it can do no more harm
    /// than a dead one.
    pub(crate) async fn crashed(self) -> Self {
        let Self { provider, store, dir, settings, .. } = self;
        store.close().await;
        Self::over(dir, provider, settings).await
    }

    /// Another server over what this one left when it was told to stop.
    pub(crate) async fn restarted(self) -> Self {
        let Self { control, provider, store, dir, settings } = self;
        control.drain(Duration::ZERO).await;
        store.close().await;
        Self::over(dir, provider, settings).await
    }

    pub(crate) fn caller(&self) -> Caller {
        self.control.developer()
    }

    /// Somebody of another tenant with every scope but `admin`.
    pub(crate) async fn stranger(&self) -> Caller {
        let admin = self.control.developer();
        let tenant = NewTenant { name: "another".to_owned(), quota: None };
        let tenant = self.control.create_tenant(&admin, tenant).await.unwrap().id;
        let scopes: Scopes = "run,sandbox,files".parse().unwrap();
        let key = NewKey { tenant, name: "key".to_owned(), scopes, form: KeyForm::Native, expires_at: None };
        let (_, secret) = self.control.create_key(&admin, key).await.unwrap();
        self.control.authenticate(&secret).await.unwrap()
    }
}

pub(crate) fn shell(line: &str) -> NewExec {
    exec(ExecWork::Command(Command::Shell(line.to_owned())))
}

pub(crate) fn exec(work: ExecWork) -> NewExec {
    NewExec::of(work)
}

pub(crate) async fn all(attached: Attached) -> Vec<Event> {
    attached.events.collect().await
}

/// How long anything may take that has to happen: as long as a busy machine needs, and shorter than what ends by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// Waits until something holds, and says so if it does not for long.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What is to be done within a time that is tried with longer and longer ones, until the machine is quick enough for it:
/// what came of it, and the time that it was done in.
pub(crate) async fn soon_enough<T>(mut attempt: impl AsyncFnMut(Duration) -> Option<T>) -> (T, Duration) {
    for span in [300, 3000, 30_000].map(Duration::from_millis) {
        if let Some(done) = attempt(span).await {
            return (done, span);
        }
    }
    panic!("half a minute is too short");
}

/// The names of all events so far, as they go over the wire. There are `count` of them, or more.
pub(crate) async fn names(world: &World, caller: &Caller, count: usize) -> Vec<String> {
    let filter = EventFilter { sandbox: None, after: Some(0) };
    let mut events = world.control.events(caller, filter).await.unwrap();
    let mut names = Vec::new();
    loop {
        let patience = if names.len() < count { PATIENCE } else { Duration::from_millis(200) };
        match tokio::time::timeout(patience, events.next()).await {
            Ok(Some(event)) => names.push(name(&event)),
            _ => return names,
        }
    }
}

pub(crate) fn name(event: &ControlEvent) -> String {
    match &event.body {
        EventBodyView::State { to, .. } => format!("sandbox:{to}"),
        EventBodyView::ExecuteStart { .. } => "execute:start".to_owned(),
        EventBodyView::ExecuteSuccess { .. } => "execute:success".to_owned(),
        EventBodyView::ExecuteError { .. } => "execute:error".to_owned(),
        EventBodyView::ExecuteComplete { .. } => "execute:complete".to_owned(),
        EventBodyView::Denied { .. } => "network:denied".to_owned(),
    }
}

/// A sandbox with nothing asked for.
pub(crate) fn plain() -> NewSandbox {
    NewSandbox::default()
}
