//! A server with sandboxes in memory, and a client that needs no network.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::{Extension, Router};
use http::{HeaderMap, Request, StatusCode};
use sandstorm_control::server::{Caller, Control, KeyForm, NewKey, NewTenant, Scope, Scopes, Setup, testing};
use sandstorm_control::{Runner, Tools};
use sandstorm_dialect_session::{SessionSettings, router};
use sandstorm_language::Roots;
use sandstorm_provider::Provider;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::Limits;
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) struct World {
    pub(crate) control: Control,
    settings: SessionSettings,
    _state: TempDir,
}

/// The memory provider has a small shell and no Python: `cat` stands in for it, and shows the script that it was given.
pub(crate) fn settings() -> SessionSettings {
    SessionSettings {
        cpu_time: None,
        process_limits: false,
        python: "cat".to_owned(),
        shell: "sh".to_owned(),
        ..SessionSettings::default()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(settings()).await
    }

    pub(crate) async fn with(settings: SessionSettings) -> Self {
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
        let control =
            Control::start(Setup { store, provider, runner, settings: testing::settings() }).await.unwrap();
        Self { control, settings, _state: state }
    }

    /// Whoever started the server.
    pub(crate) fn client(&self) -> Client {
        self.client_of(self.control.developer())
    }

    /// Somebody of another tenant, with these scopes.
    pub(crate) async fn stranger(&self, name: &str, scopes: &[Scope]) -> Client {
        let admin = self.control.developer();
        let tenant = NewTenant { name: name.to_owned(), quota: None };
        let tenant = self.control.create_tenant(&admin, tenant).await.unwrap().id;
        let key = NewKey {
            tenant,
            name: "key".to_owned(),
            scopes: Scopes(scopes.iter().copied().collect()),
            form: KeyForm::Native,
            expires_at: None,
        };
        let (_, secret) = self.control.create_key(&admin, key).await.unwrap();
        self.client_of(self.control.authenticate(&secret).await.unwrap())
    }

    fn client_of(&self, caller: Caller) -> Client {
        Client(router(self.control.clone(), self.settings.clone()).layer(Extension(caller)))
    }
}

#[derive(Clone)]
pub(crate) struct Client(Router);

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "", Vec::new()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, "", Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, "application/json", body.to_string().into_bytes()).await
    }

    /// A form with one file.
    pub(crate) async fn upload(&self, path: &str, field: &str, name: Option<&str>, content: &[u8]) -> Answer {
        let named = name.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
        let head = format!("--cut\r\nContent-Disposition: form-data; name=\"{field}\"{named}\r\n\r\n");
        let body = [head.as_bytes(), content, b"\r\n--cut--\r\n"].concat();
        self.call("POST", path, "multipart/form-data; boundary=cut", body).await
    }

    pub(crate) async fn call(&self, method: &str, path: &str, kind: &str, body: Vec<u8>) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("/workspace/se{path}"));
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(Body::from(body)).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec();
        Answer { status, headers, body }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{} is no JSON: {text}", self.status))
    }

    /// The fields of a good answer, which stand at the top and twice below it.
    pub(crate) fn fields(&self) -> Value {
        let whole = self.json();
        assert_eq!(self.status, StatusCode::OK, "{whole}");
        let fields = whole["result"].clone();
        assert_eq!(whole["full_result"], fields);
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&whole[name], value, "{name}");
        }
        assert_eq!(whole.as_object().unwrap().len(), fields.as_object().unwrap().len() + 2, "{whole}");
        fields
    }

    /// The detail of a refusal.
    pub(crate) fn refused(&self, status: u16) -> Value {
        let whole = self.json();
        assert_eq!(self.status.as_u16(), status, "{whole}");
        assert_eq!(whole.as_object().unwrap().len(), 1, "{whole}");
        whole["detail"].clone()
    }

    /// A refusal because of fields: where, and what kind.
    pub(crate) fn invalid(&self) -> Vec<(Value, Value)> {
        let detail = self.refused(422);
        let each = |error: &Value| {
            assert!(error["msg"].is_string(), "{error}");
            (error["loc"].clone(), error["type"].clone())
        };
        detail.as_array().unwrap().iter().map(each).collect()
    }
}
