//! What happens on the server, as a subscription.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::Result;
use sandstorm_store::{EventRow, Json, Store};
use sandstorm_types::{ExecId, RunId, SandboxId, Status, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::failure::{not_found, stored};
use super::{Caller, Control, Scope};

/// Events that are read at once.
const PAGE: u32 = 256;
/// Events of other servers on the same database wake nobody here; they are looked for this often.
const LOOK: Duration = Duration::from_secs(2);

/// One event. Stored before anybody hears of it; `seq` grows within a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlEvent {
    pub seq: u64,
    pub at: Timestamp,
    pub sandbox: Option<SandboxId>,
    pub body: EventBodyView,
}

/// What happened. The name on the wire is in the comment.
#[derive(Debug, Clone, PartialEq)]
pub enum EventBodyView {
    /// `sandbox:<state>`, for each transition.
    State { to: String, reason: Option<String> },
    /// `execute:start`
    ExecuteStart { exec: Option<ExecId>, run: Option<RunId> },
    /// `execute:success`
    ExecuteSuccess { exec: Option<ExecId>, run: Option<RunId> },
    /// `execute:error`
    ExecuteError { exec: Option<ExecId>, run: Option<RunId>, status: Option<Status> },
    /// `execute:complete`, after success or error
    ExecuteComplete { exec: Option<ExecId>, run: Option<RunId> },
    /// `network:denied`
    Denied { destination: String, reason: String },
}

#[derive(Debug, Clone, Copy, Default)]
pub struct EventFilter {
    pub sandbox: Option<SandboxId>,
    /// Only events with a higher number, from the store first; otherwise from now on.
    pub after: Option<u64>,
}

/// The stored form of what is no transition; those the store writes itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
enum StoredBody {
    #[serde(rename = "execute:start")]
    Start(What),
    #[serde(rename = "execute:success")]
    Success(What),
    #[serde(rename = "execute:error")]
    Error(What),
    #[serde(rename = "execute:complete")]
    Complete(What),
    #[serde(rename = "network:denied")]
    Denied { destination: String, reason: String },
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct What {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exec: Option<ExecId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// The form in which an event that this server makes is stored.
pub(super) fn body(event: &EventBodyView) -> Json {
    let what = |exec: &Option<ExecId>, run: &Option<RunId>| What { exec: *exec, run: *run, status: None };
    let body = match event {
        EventBodyView::ExecuteStart { exec, run } => StoredBody::Start(what(exec, run)),
        EventBodyView::ExecuteSuccess { exec, run } => StoredBody::Success(what(exec, run)),
        EventBodyView::ExecuteError { exec, run, status } => {
            StoredBody::Error(What { status: *status, ..what(exec, run) })
        }
        EventBodyView::ExecuteComplete { exec, run } => StoredBody::Complete(what(exec, run)),
        EventBodyView::Denied { destination, reason } => {
            StoredBody::Denied { destination: destination.clone(), reason: reason.clone() }
        }
        EventBodyView::State { .. } => unreachable!("the store writes transitions itself"),
    };
    serde_json::to_value(body).expect("texts and ids have a JSON form")
}

/// What the end of an exec or a run is told with.
pub(super) fn ending(exec: Option<ExecId>, run: Option<RunId>, status: Option<Status>) -> [Json; 2] {
    let how = match status {
        Some(Status::Ok) => EventBodyView::ExecuteSuccess { exec, run },
        status => EventBodyView::ExecuteError { exec, run, status },
    };
    [body(&how), body(&EventBodyView::ExecuteComplete { exec, run })]
}

/// `None` for what a newer server wrote and this one does not know.
fn view(row: EventRow) -> Option<ControlEvent> {
    let body = match row.body.get("to").and_then(Json::as_str) {
        Some(to) => EventBodyView::State {
            to: to.to_owned(),
            reason: row.body.get("reason").and_then(Json::as_str).map(str::to_owned),
        },
        None => match serde_json::from_value(row.body).ok()? {
            StoredBody::Start(What { exec, run, .. }) => EventBodyView::ExecuteStart { exec, run },
            StoredBody::Success(What { exec, run, .. }) => EventBodyView::ExecuteSuccess { exec, run },
            StoredBody::Error(What { exec, run, status }) => {
                EventBodyView::ExecuteError { exec, run, status }
            }
            StoredBody::Complete(What { exec, run, .. }) => EventBodyView::ExecuteComplete { exec, run },
            StoredBody::Denied { destination, reason } => EventBodyView::Denied { destination, reason },
        },
    };
    Some(ControlEvent { seq: row.seq, at: row.at, sandbox: row.sandbox, body })
}

/// Wakes those who listen to a tenant's events. The events themselves are read from the store, so that whoever listens
/// hears each of them once and in order, whenever it came.
#[derive(Debug, Default)]
pub(super) struct Wakers(Mutex<HashMap<TenantId, watch::Sender<()>>>);

impl Wakers {
    pub(super) fn wake(&self, tenant: TenantId) {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = tenants.get(&tenant)
            && waker.send(()).is_err()
        {
            tenants.remove(&tenant);
        }
    }

    fn listen(&self, tenant: TenantId) -> watch::Receiver<()> {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.entry(tenant).or_default().subscribe()
    }
}

struct Listening {
    store: Store,
    tenant: TenantId,
    sandbox: Option<SandboxId>,
    after: u64,
    read: VecDeque<EventRow>,
    waker: watch::Receiver<()>,
    stop: CancellationToken,
    /// Whether the sandbox had ended when the listening began.
    ended: bool,
    over: bool,
}

impl Listening {
    async fn next(&mut self) -> Option<ControlEvent> {
        loop {
            if self.over {
                return None;
            }
            while let Some(row) = self.read.pop_front() {
                self.after = row.seq;
                if let Some(event) = view(row) {
                    let last = |to: &str| to == "terminated" || to == "failed";
                    self.over = self.sandbox.is_some()
                        && matches!(&event.body, EventBodyView::State { to, .. } if last(to));
                    return Some(event);
                }
            }
            // Marked as seen before the store is read: what comes between the two wakes again.
            self.waker.mark_unchanged();
            match self.store.events_after(self.tenant, self.sandbox, self.after, PAGE).await {
                Ok(rows) if !rows.is_empty() => {
                    self.read = rows.into();
                    continue;
                }
                // Of one that ended there is nothing but what is stored.
                Ok(_) if self.ended => return None,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "events cannot be read"),
            }
            tokio::select! {
                _ = self.waker.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }
}

impl Control {
    /// Ends only with the server, or, for one sandbox, after its last transition.
    pub async fn events(
        &self,
        caller: &Caller,
        filter: EventFilter,
    ) -> Result<BoxStream<'static, ControlEvent>> {
        caller.require(Scope::Sandbox)?;
        let (tenant, sandbox) = (caller.tenant, filter.sandbox);
        let waker = self.0.events.listen(tenant);
        let after = match filter.after {
            Some(after) => after,
            None => stored(self.0.store.last_event(tenant).await)?,
        };
        let ended = match sandbox {
            Some(id) => self.0.row(tenant, id).await?.ok_or_else(|| not_found("sandbox"))?.state.is_final(),
            None => false,
        };
        let (store, stop) = (self.0.store.clone(), self.0.tasks.stopping().clone());
        let read = VecDeque::new();
        let listening = Listening { store, tenant, sandbox, after, read, waker, stop, ended, over: false };
        let events = stream::unfold(listening, |mut listening| async move {
            let event = listening.next().await?;
            Some((event, listening))
        });
        Ok(events.boxed())
    }
}
