//! One-shot runs and their records.

use http::Method;
use sandstorm_types::{Event, EventBody, RunId, RunResult, RunSpec, Status, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::with_query;
use crate::call::Call;
use crate::event_stream::EventStream;
use crate::{Client, Error, Page, Result};

/// A run as its owner sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    #[serde(default)]
    pub language: String,
    /// `None` while it runs; also `None`, with `problem`, when the platform failed.
    #[serde(default)]
    pub status: Option<Status>,
    #[serde(default)]
    pub problem: Option<String>,
    #[serde(default)]
    pub result: Option<RunResult>,
    pub created_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Whatever else the server tells, as it tells it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    pub running_only: bool,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// Events of a run, from `start` to `end`. Dropping it cancels the run.
#[derive(Debug)]
pub struct RunEvents {
    events: EventStream<Event>,
    client: Client,
    ended: bool,
}

impl RunEvents {
    /// The next event; `None` after `end`. A stream that stops before `end` is an error.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        if self.ended {
            return None;
        }
        let broken = || Error::Broken { server: self.client.server(), source: None };
        let event = self.events.next().await.unwrap_or_else(|| Err(broken()));
        self.ended = matches!(event, Err(_) | Ok(Event { body: EventBody::End(_), .. }));
        Some(event)
    }
}

impl Client {
    /// Runs to the end. Takes as long as the program takes; dropping the future cancels the run.
    pub async fn run(&self, spec: &RunSpec) -> Result<RunResult> {
        self.ask(Call::post(self.v1(&["runs"])).json(spec).without_deadline()).await
    }

    pub async fn start_run(&self, spec: &RunSpec) -> Result<RunEvents> {
        let call = Call::post(self.v1(&["runs"])).json(spec).events().without_deadline();
        let response = self.send(call).await?;
        Ok(RunEvents { events: EventStream::over(self, response), client: self.clone(), ended: false })
    }

    pub async fn run_view(&self, id: RunId) -> Result<Run> {
        self.ask(Call::get(self.v1(&["runs", &id.to_string()]))).await
    }

    pub async fn runs(&self, query: &RunQuery) -> Result<Page<Run>> {
        let url = with_query(
            self.v1(&["runs"]),
            &[
                ("running", query.running_only.then(|| "true".to_owned())),
                ("limit", query.limit.map(|limit| limit.to_string())),
                ("cursor", query.cursor.clone()),
            ],
        );
        self.ask(Call::get(url)).await
    }

    /// One that ended stays as it is.
    pub async fn cancel_run(&self, id: RunId) -> Result<Run> {
        let url = self.v1(&["runs", &id.to_string(), "cancel"]);
        self.ask(Call::new(Method::POST, url).repeatable()).await
    }
}
