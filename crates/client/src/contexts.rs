//! Living interpreters of a sandbox.

use std::time::Duration;

use http::Method;
use sandstorm_types::{ContextId, EnvMap, GuestPath, LanguageName, SandboxId, Timestamp, duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call::Call;
use crate::event_stream::EventStream;
use crate::{Client, ExecEvents, Result};

/// A context to make.
#[derive(Debug, Clone, Serialize)]
pub struct NewContext {
    pub language: LanguageName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<GuestPath>,
    #[serde(skip_serializing_if = "EnvMap::is_empty")]
    pub env: EnvMap,
}

/// A context as its owner sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Context {
    pub id: ContextId,
    pub language: LanguageName,
    /// `idle`, `busy` or `lost`.
    pub state: String,
    pub created_at: Timestamp,
    /// Cells that ran since it started.
    #[serde(default)]
    pub execution_count: u64,
    /// Whatever else the server tells, as it tells it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Serialize)]
struct Cell<'a> {
    code: &'a str,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    timeout: Option<Duration>,
}

#[derive(Deserialize)]
struct Contexts {
    items: Vec<Context>,
}

impl Client {
    pub async fn create_context(&self, sandbox: SandboxId, new: &NewContext) -> Result<Context> {
        self.ask(Call::post(self.sandbox_url(sandbox, &["contexts"])).json(new).once()).await
    }

    pub async fn contexts(&self, sandbox: SandboxId) -> Result<Vec<Context>> {
        Ok(self.ask::<Contexts>(Call::get(self.sandbox_url(sandbox, &["contexts"]))).await?.items)
    }

    pub async fn context(&self, sandbox: SandboxId, id: ContextId) -> Result<Context> {
        self.ask(Call::get(self.context_url(sandbox, id, &[]))).await
    }

    /// Runs a cell and streams. Dropping the events interrupts it.
    pub async fn execute(
        &self,
        sandbox: SandboxId,
        id: ContextId,
        code: &str,
        timeout: Option<Duration>,
    ) -> Result<ExecEvents> {
        let cell = Cell { code, timeout };
        let call = Call::post(self.context_url(sandbox, id, &["execute"])).json(&cell).events();
        let response = self.send(call).await?;
        Ok(ExecEvents::started(self, sandbox, EventStream::over(self, response), false))
    }

    /// Ends the running cell and keeps the variables. Nothing running is success.
    pub async fn interrupt_context(&self, sandbox: SandboxId, id: ContextId) -> Result<()> {
        self.tell(Call::post(self.context_url(sandbox, id, &["interrupt"])).repeatable()).await
    }

    /// A new interpreter under the same id; variables are gone.
    pub async fn restart_context(&self, sandbox: SandboxId, id: ContextId) -> Result<Context> {
        self.ask(Call::post(self.context_url(sandbox, id, &["restart"]))).await
    }

    /// Idempotent.
    pub async fn delete_context(&self, sandbox: SandboxId, id: ContextId) -> Result<()> {
        self.tell(Call::new(Method::DELETE, self.context_url(sandbox, id, &[]))).await
    }

    fn context_url(&self, sandbox: SandboxId, id: ContextId, rest: &[&str]) -> reqwest::Url {
        let id = id.to_string();
        let mut parts = vec!["contexts", &id];
        parts.extend(rest);
        self.sandbox_url(sandbox, &parts)
    }
}
