//! Runs that are answered with what an earlier one gave.

use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::Result;
use sandstorm_store::{RunRow, UsageDelta};
use sandstorm_types::{ExecId, Metrics, RunId, RunResult, RunSpec, Timestamp};
use serde_json::json;
use tokio::sync::oneshot;

use super::ended::{Ended, shorten};
use super::events::{body, ending};
use super::failure::{invalid, stored};
use super::numbering::from_stored;
use super::run_cache::{Key, Made, Sought};
use super::{Caller, EventBodyView, Inner, Running};
use crate::prepare::Prepared;

impl Inner {
    /// Looks for an earlier result where one will do, waiting for one that is under way.
    pub(super) async fn seek_result(
        &self,
        caller: &Caller,
        spec: &RunSpec,
        prepared: &Prepared,
    ) -> Result<Sought> {
        if !spec.cache {
            return Ok(Sought::Off);
        }
        let key = Key::of(caller.tenant, spec, prepared).ok_or_else(|| {
            invalid("only a run without network can be answered with an earlier result: leave out `cache`")
        })?;
        let (sought, outcome) = match self.run_cache.seek(key) {
            Sought::Wait(under_way) => match under_way.result().await {
                Some(made) => (Sought::Found(made), "shared"),
                // It came to nothing that others can have: each does it for itself.
                None => (Sought::Off, "alone"),
            },
            found @ Sought::Found(_) => (found, "hit"),
            lead @ Sought::Lead(_) => (lead, "miss"),
            Sought::Off => (Sought::Off, "off"),
        };
        metrics::counter!("sandstorm_run_cache_total", "outcome" => outcome).increment(1);
        Ok(sought)
    }

    /// Answers a run with an earlier result. It has a record of its own like any other.
    pub(super) async fn give_again(
        &self,
        caller: &Caller,
        id: RunId,
        made: &Made,
        prepared: &Prepared,
    ) -> Result<Running> {
        let began = Instant::now();
        let created_at = Timestamp::now();
        let mut result = again(made, id);
        result.metrics.total_ms = began.elapsed().as_secs_f64() * 1000.0;
        let mut audit = caller.audit("run.create", id);
        audit.detail = Some(json!({"cached_from": made.id}));
        let ended = Ended::new(result, None);
        let mut kept = ended.result.clone();
        shorten(&mut kept);
        let row = RunRow {
            id,
            tenant: caller.tenant,
            language: prepared.language.name.clone(),
            created_at,
            ended_at: Some(Timestamp::now()),
            status: Some(ended.result.status.name().to_owned()),
            result: serde_json::to_value(kept).ok(),
            problem: None,
            request_hash: None,
            entry: None,
        };
        let [how, complete] = ending(None, Some(id), Some(ended.result.status));
        let told = [body(&EventBodyView::ExecuteStart { exec: None, run: Some(id) }), how, complete];
        stored(self.store.insert_run(&row, &told, &audit).await)?;
        self.events.wake(caller.tenant);
        self.add_usage(caller.tenant, UsageDelta { cached_runs: 1, ..UsageDelta::default() });
        let events = from_stored(ExecId::from_bits(id.bits()), &ended);
        let (answer, result) = oneshot::channel();
        let _ = answer.send(Ok(ended.result));
        Ok(Running { id, events: stream::iter(events).boxed(), result })
    }
}

/// The result under another id. What was measured then was used then, and by another.
fn again(made: &Made, id: RunId) -> RunResult {
    let mut result = RunResult::clone(made);
    result.cached_from = Some(std::mem::replace(&mut result.id, id.to_string()));
    result.metrics = Metrics {
        stdout_bytes: made.metrics.stdout_bytes,
        stderr_bytes: made.metrics.stderr_bytes,
        ..Metrics::default()
    };
    "an earlier result of the same run".clone_into(&mut result.route.reason);
    result.route.attempts.clear();
    result
}
