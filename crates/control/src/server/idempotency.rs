//! Requests that may be sent twice: the second gets the first one's answer.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sandstorm_provider::{Error, Result};
use sandstorm_store::{Begun, StoredAnswer};
use sandstorm_types::{ErrorKind, TenantId, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use super::failure::stored;
use super::{Caller, Control};

/// How long one waits for another server's answer to the same request, and between two looks. An answer that is being
/// made here is waited for without looking.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// An answer as it goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
}

/// An answer, and whether it is that of an earlier request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub answer: Answer,
    pub replayed: bool,
}

/// Requests whose answers are being made by this server.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<HashMap<Request, watch::Receiver<()>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    tenant: TenantId,
    route: String,
    key: String,
}

impl Control {
    /// Does `work` unless the same tenant sent the same key to the same route within a day; then gives that answer. The
    /// same key with another body is a `Conflict`. One in flight is waited for.
    ///
    /// An error, and an answer that another try could better (429 and 5xx), are not kept. Dropping the future before
    /// `work` is done lets the next one try; what `work` itself leaves behind is its own matter.
    pub async fn idempotent(
        &self,
        caller: &Caller,
        route: &str,
        key: &str,
        body_hash: [u8; 32],
        work: impl Future<Output = Result<Answer>> + Send,
    ) -> Result<Answered> {
        caller.require_key()?;
        if key.is_empty() || key.len() > 255 || !key.bytes().all(|b| b.is_ascii_graphic()) {
            let message = "an idempotency key has 1 to 255 visible characters";
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let request = Request { tenant: caller.tenant, route: route.to_owned(), key: key.to_owned() };
        let give_up = Instant::now() + PATIENCE;
        loop {
            // The hold comes first: whoever finds the entry in flight must find the hold to wait for, too.
            let hold = self.0.in_flight.hold(&request);
            let Some(hold) = hold else {
                self.0.in_flight.wait(&request).await;
                continue;
            };
            // Whoever asked may leave at any moment: the entry is not left behind without its `Unfinished`.
            let beginning = Unfinished::begin(self.clone(), request.clone(), hold, body_hash);
            let (begun, unfinished) = self.0.tasks.complete(beginning).await?;
            match begun {
                Begun::New => return unfinished.answer(work).await,
                Begun::Stored(StoredAnswer { status, content_type, body }) => {
                    let answer = Answer { status, content_type, body };
                    return Ok(Answered { answer, replayed: true });
                }
                Begun::OtherBody => {
                    let message = "this idempotency key was used with another request";
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
                Begun::InFlight => {
                    drop(unfinished);
                    if Instant::now() >= give_up {
                        let message = "the first request with this idempotency key is still being answered";
                        return Err(
                            Error::new(ErrorKind::Conflict, message).with_retry_after(Duration::from_secs(5))
                        );
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }
}

/// A request whose answer is not kept yet. Dropping it frees the key.
struct Unfinished {
    control: Control,
    request: Request,
    _hold: Hold,
    finished: bool,
}

impl Unfinished {
    /// Makes the entry, or finds one. What was found is not this one's to free.
    async fn begin(
        control: Control,
        request: Request,
        hold: Hold,
        body_hash: [u8; 32],
    ) -> Result<(Begun, Self)> {
        let Request { tenant, route, key } = &request;
        let store = &control.0.store;
        let begun = store.begin_idempotent(*tenant, route, key, &body_hash, Timestamp::now()).await;
        let begun = stored(begun)?;
        let finished = !matches!(begun, Begun::New);
        Ok((begun, Self { control, request, _hold: hold, finished }))
    }

    async fn answer(mut self, work: impl Future<Output = Result<Answer>> + Send) -> Result<Answered> {
        let answer = work.await?;
        if answer.status < 500 && answer.status != 429 {
            let Request { tenant, route, key } = &self.request;
            let Answer { status, content_type, body } = answer.clone();
            let kept = StoredAnswer { status, content_type, body };
            let kept = self.control.0.store.finish_idempotent(*tenant, route, key, &kept).await;
            // The work is done and its answer is due, kept or not.
            match kept {
                Ok(_) => self.finished = true,
                Err(error) => tracing::warn!(%error, "an answer could not be kept for a repeated request"),
            }
        }
        Ok(Answered { answer, replayed: false })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let (control, request) = (self.control.clone(), self.request.clone());
        self.control.0.tasks.finish("abandon an idempotency key", async move {
            let Request { tenant, route, key } = &request;
            if let Err(error) = control.0.store.abandon_idempotent(*tenant, route, key).await {
                tracing::warn!(%error, "an idempotency key could not be freed");
            }
        });
    }
}

/// The right to make an answer, among the requests of this server. Whoever waits for it wakes when it is dropped.
struct Hold {
    requests: Arc<InFlight>,
    request: Request,
    _done: watch::Sender<()>,
}

impl InFlight {
    /// `None` when somebody holds it.
    fn hold(self: &Arc<Self>, request: &Request) -> Option<Hold> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains_key(request) {
            return None;
        }
        let (done, waiting) = watch::channel(());
        held.insert(request.clone(), waiting);
        Some(Hold { requests: Arc::clone(self), request: request.clone(), _done: done })
    }

    async fn wait(&self, request: &Request) {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(request).cloned();
        if let Some(mut held) = held {
            // Nothing is ever sent: the change is that the holder is gone.
            let _ = held.changed().await;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.requests.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.request);
    }
}
