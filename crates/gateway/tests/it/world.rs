//! A server for one test, on a port of its own, and clients of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sandstorm_control::server::{
    Control, KeyForm, NewKey, NewTenant, Quota, Scopes, Settings, Setup, testing,
};
use sandstorm_control::{Runner, Tools};
use sandstorm_gateway::{
    Foreign, Gateway, GatewaySettings, LanguageView, Listener, ServeLimits, ServeOptions, admin_router,
    router, serve,
};
use sandstorm_language::Roots;
use sandstorm_provider::Provider;
use sandstorm_provider::altered::Altered;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::{ByteSize, Enforcement, Limits, TenantId, Timestamp};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;
use tokio_util::task::TaskTracker;

use crate::provider::WithPorts;

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) provider: Arc<Altered<WithPorts>>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Every scope of the local tenant.
    pub(crate) key: String,
    /// Everything but `admin`, of another tenant.
    pub(crate) stranger: String,
    _servers: Vec<AbortOnDropHandle<()>>,
    _dir: tempfile::TempDir,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts that it is a refusal with this status, in the one form that refusals have.
    pub(crate) fn refused(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"].as_str().unwrap(), self.headers["x-request-id"]);
        for key in ["type", "title", "detail", "code"] {
            assert!(problem[key].is_string(), "{problem}");
        }
        problem
    }
}

pub(crate) fn control_settings() -> Settings {
    let settings = testing::settings();
    Settings {
        limits: Limits { memory: ByteSize::mib(64), wall: Duration::from_secs(300), ..Limits::default() },
        ceiling: Limits { memory: ByteSize::mib(1024), wall: Duration::from_secs(600), ..Limits::default() },
        enforcement: Enforcement::Strict,
        quota: Quota { requests_per_second: Some(10_000), ..settings.quota },
        admission_memory: ByteSize::gib(64),
        admission_wait: Duration::from_secs(2),
        admission_queue: 16,
        paused_for: Duration::from_secs(3600),
        ..settings
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(GatewaySettings::default(), ServeLimits::default(), control_settings()).await
    }

    pub(crate) async fn with(settings: GatewaySettings, limits: ServeLimits, rules: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig::in_directory(dir.path(), None, AuditKey::from_bytes([5; 32]));
        let store = Store::open(&config).await.unwrap();
        let provider = Arc::new(Altered(WithPorts::default()));
        let dynamic: Arc<dyn Provider> = Arc::clone(&provider) as _;
        // Code in these languages is shown instead of run: the provider in memory has no interpreters.
        let roots = Roots::host().with_program("bash", "/bin/cat").with_program("python", "/bin/cat");
        let tools =
            Tools { provider: Arc::clone(&dynamic), limits: rules.limits, roots, cache: None, layers: None };
        let runner = Runner::new(tools).spooling_in(dir.path().to_owned());
        let setup = Setup { store, provider: dynamic, runner, settings: rules };
        let control = Control::start(setup).await.unwrap();
        let (public, address) = bound().await;
        let (private, admin) = bound().await;
        let tasks = TaskTracker::new();
        let options = ServeOptions { limits, tls: None };
        let closing = settings.closing.clone();
        let routes = router(gateway(&control, &settings, true));
        let operators = admin_router(gateway(&control, &settings, false));
        let mut servers = Vec::new();
        for (listener, routes) in [(public, routes), (private, operators)] {
            let (options, closing) = (options.clone(), closing.clone());
            let work = async move {
                let told = async move {
                    closing.cancelled_owned().await;
                    Duration::from_secs(30)
                };
                serve(vec![Listener::Tcp(listener)], routes, options, told).await.unwrap();
            };
            servers.push(AbortOnDropHandle::new(tasks.spawn(work)));
        }
        let mut world = Self {
            control,
            provider,
            address,
            admin,
            key: String::new(),
            stranger: String::new(),
            _servers: servers,
            _dir: dir,
        };
        world.key = world.make_key(TenantId::LOCAL, "run,sandbox,files,admin", None).await;
        let another = world.tenant().await;
        world.stranger = world.make_key(another, "run,sandbox,files", None).await;
        world
    }

    pub(crate) async fn tenant(&self) -> TenantId {
        let tenant = NewTenant { name: "another".to_owned(), quota: None };
        self.control.create_tenant(&self.control.developer(), tenant).await.unwrap().id
    }

    pub(crate) async fn make_key(
        &self,
        tenant: TenantId,
        scopes: &str,
        expires_at: Option<Timestamp>,
    ) -> String {
        let scopes: Scopes = scopes.parse().unwrap();
        let key = NewKey { tenant, name: "test".to_owned(), scopes, form: KeyForm::Native, expires_at };
        self.control.create_key(&self.control.developer(), key).await.unwrap().1
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("host", self.address.to_string())
    }

    /// A request of the local tenant; a text is sent as JSON.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        let mut request = self.request(method, path).header("authorization", format!("Bearer {}", self.key));
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        self.send(request, body.to_owned()).await
    }

    pub(crate) async fn send(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Reply {
        send(self.address, request.body(Full::new(body.into())).unwrap()).await
    }

    /// A request whose answer is read as it comes.
    pub(crate) async fn open(&self, request: http::request::Builder, body: &str) -> http::Response<Incoming> {
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        connected(self.address, request).await
    }

    pub(crate) async fn sandbox(&self) -> String {
        let made = self.call("POST", "/v1/sandboxes", r#"{"enforcement": "best_effort"}"#).await;
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// What the server says to these bytes until it closes, or has said nothing more for two seconds.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut said = Vec::new();
        loop {
            let patience = if said.is_empty() { PATIENCE } else { Duration::from_secs(2) };
            match tokio::time::timeout(patience, stream.read_buf(&mut said)).await {
                Ok(Ok(1..)) => {}
                _ => return String::from_utf8_lossy(&said).into_owned(),
            }
        }
    }
}

/// How long anything may take that has to happen: as long as a busy machine needs, and shorter than what ends by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// Tries something that is promised within a time and says how long it took. A busy machine may miss it once, but what is
/// always too slow does not pass.
pub(crate) async fn promised(within: Duration, mut trial: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 4 {
        took.push(trial().await);
        if took.last().is_some_and(|took| *took <= within) {
            return;
        }
    }
    panic!("never within {within:?}: {took:?}");
}

/// Waits until something holds, and says so if it does not for long.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn bound() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn gateway(control: &Control, settings: &GatewaySettings, extra: bool) -> Gateway {
    let language = LanguageView {
        name: "bash".into(),
        version: None,
        available: true,
        install: "apt install bash".into(),
    };
    let foreign = Router::new()
        .route(
            "/foreign/who",
            get(|caller: axum::Extension<sandstorm_control::server::Caller>| async move {
                caller.tenant().to_string()
            }),
        )
        .route("/foreign/panic", get(async || -> String { panic!("a mistake with a secret") }));
    let foreign = Foreign {
        routes: foreign,
        open: Router::new().route("/foreign/how", get(async || "with a key")),
        metadata: Some("/foreign/how"),
        ..Foreign::default()
    };
    Gateway {
        control: control.clone(),
        settings: settings.clone(),
        metrics: Box::new(|| "sandstorm_up 1\n".to_owned()),
        languages: Box::new(move || vec![language.clone()]),
        extra: if extra { vec![foreign] } else { Vec::new() },
    }
}

pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Reply {
    let response = connected(address, request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    Reply { status: parts.status, headers: parts.headers, body }
}

#[expect(clippy::disallowed_methods, reason = "a client of a test that ends with its runtime")]
async fn connected(address: SocketAddr, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    // It ends when the answer is read or dropped.
    tokio::spawn(driver);
    sender.send_request(request).await.unwrap()
}
