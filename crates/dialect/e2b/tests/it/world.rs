//! A server with sandboxes in memory, and a client that needs no network.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::{Extension, Router};
use http::{HeaderMap, Request, Response, StatusCode};
use sandstorm_control::server::{
    Caller, Control, KeyForm, NewKey, NewTenant, Quota, Scope, Scopes, Settings, Setup, testing,
};
use sandstorm_control::{Runner, Tools};
use sandstorm_dialect_e2b::{Dialect, E2bSettings, Forward};
use sandstorm_language::Roots;
use sandstorm_provider::Provider;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::Limits;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) const ENVD: &str = "49983";
pub(crate) const INTERPRETER: &str = "49999";
/// A port on which something listens.
pub(crate) const LISTENS: u16 = 8080;

pub(crate) struct World {
    pub(crate) control: Control,
    dialect: Dialect,
    _state: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let state = TempDir::new().unwrap();
        let config = StoreConfig::in_directory(state.path(), None, AuditKey::from_bytes([7; 32]));
        let store = Store::open(&config).await.unwrap();
        let provider: Arc<dyn Provider> = Arc::new(MemoryProvider::default());
        let runner = Runner::new(Tools {
            provider: Arc::clone(&provider),
            limits: Limits::default(),
            roots: Roots::host(),
            cache: None,
            layers: None,
        });
        let control = Control::start(Setup { store, provider, runner, settings: server() }).await.unwrap();
        let settings = E2bSettings { network: false, ..E2bSettings::default() };
        // Behind one port is a program that says which host it is called by.
        let forward: Forward = Arc::new(|asked| {
            let host = asked.host.map(|host| host.to_str().unwrap().to_owned()).unwrap_or_default();
            let answer = (asked.port == LISTENS).then(|| Response::new(Body::from(host)));
            Box::pin(std::future::ready(answer))
        });
        let dialect = Dialect::new(control.clone(), settings, forward);
        Self { control, dialect, _state: state }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(self.control.developer())
    }

    /// Somebody of another tenant.
    pub(crate) async fn stranger(&self) -> Client {
        let admin = self.control.developer();
        let tenant = NewTenant { name: "stranger".to_owned(), quota: None };
        let tenant = self.control.create_tenant(&admin, tenant).await.unwrap().id;
        let key = NewKey {
            tenant,
            name: "key".to_owned(),
            scopes: Scopes([Scope::Sandbox, Scope::Files].into()),
            form: KeyForm::E2b,
            expires_at: None,
        };
        let (_, secret) = self.control.create_key(&admin, key).await.unwrap();
        self.client_of(self.control.authenticate(&secret).await.unwrap())
    }

    /// Somebody without a key, as the gateway answers them.
    pub(crate) fn nobody(&self) -> Client {
        let dialect = self.dialect.clone();
        let refused = async || sandstorm_dialect_e2b::refusal(StatusCode::UNAUTHORIZED, "no key");
        Client { routes: Router::new().fallback(refused), dialect }
    }

    fn client_of(&self, caller: Caller) -> Client {
        let dialect = self.dialect.clone();
        let routes = dialect.routes().layer(Extension(caller)).merge(dialect.open());
        Client { dialect, routes }
    }
}

fn server() -> Settings {
    let settings = testing::settings();
    Settings { quota: Quota { sandboxes: 4, ..settings.quota }, ..settings }
}

#[derive(Clone)]
pub(crate) struct Client {
    dialect: Dialect,
    routes: Router,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A sandbox and what opens it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) traffic: String,
}

impl Client {
    pub(crate) async fn create(&self) -> Made {
        let made = self.post("/v2/sandboxes", json!({"templateID": "base", "timeout": 60})).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Made { id: text("sandboxID"), token: text("envdAccessToken"), traffic: text("trafficAccessToken") }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// One call with one answer.
    pub(crate) async fn rpc(&self, made: &Made, path: &str, message: Value) -> Answer {
        let request = self.inside("POST", made, ENVD, path).header("content-type", "application/json");
        self.send(request.body(Body::from(message.to_string())).unwrap()).await
    }

    /// One call whose answer is a stream: its messages and its end.
    pub(crate) async fn stream(&self, made: &Made, path: &str, message: Value) -> (Vec<Value>, Value) {
        let answer = self.send(self.streaming(made, path, message)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        frames(&answer.body)
    }

    /// A call whose answer is a stream.
    pub(crate) fn streaming(&self, made: &Made, path: &str, message: Value) -> Request<Body> {
        let message = message.to_string();
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend_from_slice(message.as_bytes());
        let request =
            self.inside("POST", made, ENVD, path).header("content-type", "application/connect+json");
        request.body(Body::from(body)).unwrap()
    }

    /// A request to a port of a sandbox.
    pub(crate) fn inside(&self, method: &str, made: &Made, port: &str, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("e2b-sandbox-id", &made.id)
            .header("e2b-sandbox-port", port)
            .header("x-access-token", &made.token)
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let router =
            if self.dialect.claims(&parts) { self.dialect.data_plane() } else { self.routes.clone() };
        router.oneshot(Request::from_parts(parts, body)).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.ask(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec();
        Answer { status, headers, body }
    }
}

/// The messages of a stream, and its end.
fn frames(mut bytes: &[u8]) -> (Vec<Value>, Value) {
    let mut messages = Vec::new();
    loop {
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
        let message: Value = serde_json::from_slice(&bytes[5..5 + length]).unwrap();
        if bytes[0] == 2 {
            assert_eq!(bytes.len(), 5 + length, "nothing comes after the end");
            return (messages, message);
        }
        messages.push(message);
        bytes = &bytes[5 + length..];
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}: {}", self.status, self.text()))
    }

    /// A refusal with this status, in E2B's form; gives its message.
    pub(crate) fn refused(&self, status: u16) -> String {
        let body = self.json();
        assert_eq!((self.status.as_u16(), &body["code"]), (status, &json!(status)), "{body}");
        body["message"].as_str().unwrap().to_owned()
    }
}
