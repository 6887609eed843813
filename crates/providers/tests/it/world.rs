//! Another Sandstorm server for one test, and adapters of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sandstorm_client::Client;
use sandstorm_control::server::{Control, KeyForm, NewKey, Quota, Scopes, Settings, Setup, testing};
use sandstorm_control::{Runner, Tools};
use sandstorm_gateway::{
    Foreign, Gateway, GatewaySettings, Listener, ServeLimits, ServeOptions, router, serve,
};
use sandstorm_language::Roots;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{CreateOptions, ExecRequest, ListFilter, OpContext, Provider, Sandbox};
use sandstorm_providers::sandstorm::{ApiKey, Config, SandstormProvider};
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::{Enforcement, SandboxId, SandboxSpec, TenantId};
use tokio::net::TcpListener;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

pub(crate) struct World {
    pub(crate) memory: Arc<MemoryProvider>,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    _server: AbortOnDropHandle<()>,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let memory = Arc::new(MemoryProvider::default());
        Self::over(Arc::clone(&memory), memory, Self::settings()).await
    }

    pub(crate) fn settings() -> Settings {
        let settings = testing::settings();
        let quota = Quota { requests_per_second: Some(10_000), ..settings.quota };
        Settings { quota, ..settings }
    }

    /// A server over a provider that keeps its sandboxes in `memory`.
    pub(crate) async fn over(
        memory: Arc<MemoryProvider>,
        provider: Arc<dyn Provider>,
        rules: Settings,
    ) -> Self {
        Self::serving(memory, provider, rules, |_| Vec::new()).await
    }

    /// The same with further APIs.
    pub(crate) async fn serving(
        memory: Arc<MemoryProvider>,
        provider: Arc<dyn Provider>,
        rules: Settings,
        extra: impl FnOnce(&Control) -> Vec<Foreign>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig::in_directory(dir.path(), None, AuditKey::from_bytes([5; 32]));
        let store = Store::open(&config).await.unwrap();
        let tools = Tools {
            provider: Arc::clone(&provider),
            limits: rules.limits,
            // Code in this language is shown instead of run: the provider in memory has no interpreters.
            roots: Roots::host().with_program("bash", "/bin/cat"),
            cache: None,
            layers: None,
        };
        let gateway = GatewaySettings { ceiling: rules.ceiling, ..GatewaySettings::default() };
        let setup = Setup { store, provider, runner: Runner::new(tools), settings: rules };
        let control = Control::start(setup).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closing = gateway.closing.clone();
        let routes = router(Gateway {
            control: control.clone(),
            settings: gateway,
            metrics: Box::new(String::new),
            languages: Box::new(Vec::new),
            extra: extra(&control),
        });
        let options = ServeOptions { limits: ServeLimits::default(), tls: None };
        let work = async move {
            let closed = async move {
                closing.cancelled_owned().await;
                std::time::Duration::from_secs(30)
            };
            serve(vec![Listener::Tcp(listener)], routes, options, closed).await.unwrap();
        };
        let server = AbortOnDropHandle::new(TaskTracker::new().spawn(work));
        let scopes: Scopes = "run,sandbox,files".parse().unwrap();
        let (tenant, form) = (TenantId::LOCAL, KeyForm::Native);
        let key = NewKey { tenant, name: "test".to_owned(), scopes, form, expires_at: None };
        let key = control.create_key(&control.developer(), key).await.unwrap().1;
        Self { memory, address, key, _server: server, _dir: dir }
    }

    /// How to reach the server by this address.
    pub(crate) fn config(&self, address: SocketAddr) -> Config {
        let mut config = Config::new("far", format!("http://{address}"), "here".parse().unwrap());
        config.key = Some(ApiKey::new(self.key.clone()));
        config
    }

    pub(crate) async fn adapter(&self) -> SandstormProvider {
        SandstormProvider::connect(self.config(self.address)).await.unwrap()
    }

    /// A client that sees the server as it is.
    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), Some(&self.key)).unwrap()
    }

    /// How many sandboxes live on the server.
    pub(crate) async fn alive(&self) -> usize {
        self.client().sandboxes(&Default::default()).await.unwrap().items.len()
    }
}

pub(crate) fn cx() -> OpContext {
    OpContext::new(TenantId::LOCAL).with_timeout(PATIENCE)
}

pub(crate) fn spec() -> SandboxSpec {
    SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() }
}

pub(crate) fn opts(id: SandboxId) -> CreateOptions {
    CreateOptions { id, ..CreateOptions::default() }
}

pub(crate) async fn sandbox(provider: &dyn Provider) -> SandboxId {
    provider.create(&cx(), &spec(), CreateOptions::default()).await.unwrap().id
}

pub(crate) fn background(line: &str) -> ExecRequest {
    ExecRequest { background: true, ..ExecRequest::shell(line) }
}

pub(crate) async fn listed(provider: &dyn Provider) -> Vec<SandboxId> {
    let all: Vec<Sandbox> = provider.list(&cx(), ListFilter::default()).try_collect().await.unwrap();
    all.into_iter().map(|sandbox| sandbox.id).collect()
}

/// How long anything may take that has to happen, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// Waits until something holds, and says so if it does not for long.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
