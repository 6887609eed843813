//! Requests that may be sent twice: what they ask for is done once, and the second gets the first one's answer.
//!
//! What a key makes has its id before it begins, and the id is on record with the claim. So a claim that is found without
//! an answer, since its server was killed or its client left, is answered from the record of that object: work that never
//! began is done now, under the same id; work that began is waited for, and never begun again.

mod works;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sandstorm_provider::{Error, Result};
use sandstorm_store::{Begun, Left, StoredAnswer};
use sandstorm_types::{ErrorKind, Problem, RunId, TenantId, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::failure::{conflict, stored};
use super::{Caller, Control};

pub use works::{OneContext, OneExec, OneFork, OneInstall, OneRun, OneSandbox, OneSnapshot, OneStart};

/// How long one waits for what another server does, and between two looks. What is done here is waited for without
/// looking.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// The longest answer that is kept. What a longer one tells is asked of the record of its work, which has the beginning.
const LONGEST: usize = 2 << 20;

/// What an answer is kept as that is a problem.
const PROBLEM: &str = "application/x-sandstorm-problem";

/// An answer as it goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
}

/// An answer, or why there is none, and whether it is that of an earlier request.
#[derive(Debug)]
pub struct Answered {
    pub answer: Result<Answer>,
    pub replayed: bool,
}

/// What tells a request from all others of its tenant, and from others that use its key.
#[derive(Debug, Clone, Copy)]
pub struct Keyed<'a> {
    pub route: &'a str,
    pub key: &'a str,
    pub body_hash: [u8; 32],
}

/// Work that is done once for each key.
pub trait Once: Send + 'static {
    type Made: Send + 'static;
    /// Where to look for what it makes.
    type Place: Send + Sync + 'static;

    fn place(&self, claim: &Claim) -> Self::Place;

    /// Does it; with a claim, as what the claim says.
    fn make(
        self,
        control: &Control,
        caller: &Caller,
        claim: Option<&Arc<Claim>>,
    ) -> impl Future<Output = Result<Self::Made>> + Send;

    /// What became of it: waits for what is under way. `failed` says how making it just ended, if it was just tried.
    fn find(
        control: &Control,
        caller: &Caller,
        place: &Self::Place,
        claim: &Claim,
        failed: Option<&Error>,
    ) -> impl Future<Output = Result<Found<Self::Made>>> + Send;
}

/// What became of work that was claimed.
#[derive(Debug)]
pub enum Found<T> {
    /// It never began.
    Nothing,
    /// It began, and nothing is left of it: what takes its place needs another id.
    Undone,
    /// It was done, or ended in a problem after it began.
    Made(Result<T>),
}

/// A key that is this request's to answer.
#[derive(Debug)]
pub struct Claim {
    control: Control,
    request: Request,
    /// The bits of the ids that its work goes by.
    bits: u128,
    /// What the work noted on its way.
    note: Mutex<Option<String>>,
    /// Set when nobody waits for the answer any more.
    gone: CancellationToken,
}

impl Claim {
    pub(super) fn bits(&self) -> u128 {
        self.bits
    }

    pub(super) fn note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what whoever finds this claim without an answer has to know.
    pub(super) async fn keep_note(&self, note: String) -> Result<()> {
        let Request { tenant, route, key } = &self.request;
        let noted = self.control.0.store.note_idempotent(*tenant, route, key, &note).await;
        if !stored(noted)? {
            return Err(taken());
        }
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
        Ok(())
    }

    /// Does `work` for as long as somebody waits for the answer; without a claim that is for its owner to see to.
    pub(super) async fn while_wanted<T>(
        claim: Option<&Self>,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let Some(claim) = claim else { return work.await };
        tokio::select! {
            biased;
            done = work => done,
            () = claim.gone.cancelled() => Err(gave_up()),
        }
    }
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
    /// A refusal that began nothing frees the key. All else is kept, also a problem: whatever the client and this server
    /// live to see, what began is not begun again. Dropping the future ends a run, and a program in the foreground, as
    /// without a key; what is made to stay is made to its end, for whoever asks again.
    pub async fn once<W: Once>(
        &self,
        caller: &Caller,
        keyed: Keyed<'_>,
        work: W,
        write: impl FnOnce(W::Made) -> Answer + Send + 'static,
    ) -> Result<Answered> {
        caller.require_key()?;
        let Keyed { route, key, body_hash } = keyed;
        if key.is_empty() || key.len() > 255 || !key.bytes().all(|b| b.is_ascii_graphic()) {
            let message = "an idempotency key has 1 to 255 visible characters";
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let request = Request { tenant: caller.tenant, route: route.to_owned(), key: key.to_owned() };
        let gone = CancellationToken::new();
        let _on_drop = gone.clone().drop_guard();
        let asked = Asked { control: self.clone(), caller: caller.clone(), request, body_hash, gone };
        // Whoever asked may leave at any moment: what came of it is kept all the same.
        self.0.tasks.complete(asked.answer(work, write)).await
    }
}

/// A request as it came.
struct Asked {
    control: Control,
    caller: Caller,
    request: Request,
    body_hash: [u8; 32],
    gone: CancellationToken,
}

impl Asked {
    async fn answer<W: Once>(
        self,
        work: W,
        write: impl FnOnce(W::Made) -> Answer + Send + 'static,
    ) -> Result<Answered> {
        let bits = fresh();
        let (_hold, begun) = self.claim(bits).await?;
        let claim = match begun {
            Begun::New => self.claimed(bits, None),
            Begun::Stored(answer) => return read(answer),
            Begun::Left(Left { object, note, begun_at }) => {
                let bits = object.and_then(|object| u128::from_str_radix(&object, 16).ok());
                let claim = self.claimed(bits.ok_or_else(unknown)?, note);
                let place = work.place(&claim);
                match self.resume::<W>(claim, place, begun_at).await? {
                    Resumed::Work(claim) => claim,
                    Resumed::Made(made) => return Ok(self.keep(made.map(write), true).await),
                }
            }
            Begun::OtherBody | Begun::InFlight => {
                return Err(conflict("this idempotency key was used with another request"));
            }
        };
        let place = work.place(&claim);
        let claim = Arc::new(claim);
        let error = match work.make(&self.control, &self.caller, Some(&claim)).await {
            Ok(made) => return Ok(self.keep(Ok(write(made)), false).await),
            Err(error) => error,
        };
        let answer = match self.find::<W>(&place, &claim, Some(&error)).await {
            Ok(Found::Made(Ok(made))) => return Ok(self.keep(Ok(write(made)), true).await),
            Ok(Found::Made(Err(problem))) if !error.is_not_started() => {
                self.keep(Err(problem), false).await;
                Err(error)
            }
            Ok(_) => {
                self.abandon().await;
                Err(error)
            }
            // What became of it is for the next one to find out.
            Err(unknown) => {
                tracing::warn!(error = %unknown, "what became of a request with an idempotency key is not known");
                Err(error)
            }
        };
        Ok(Answered { answer, replayed: false })
    }

    /// The right to answer among the requests of this server, and what is on record.
    async fn claim(&self, bits: u128) -> Result<(Hold, Begun)> {
        let Request { tenant, route, key } = &self.request;
        let (store, object) = (&self.control.0.store, text(bits));
        let give_up = Instant::now() + PATIENCE;
        loop {
            // The hold comes first: whoever finds the entry in flight must find the hold to wait for, too.
            let Some(hold) = self.control.0.in_flight.hold(&self.request) else {
                tokio::select! {
                    () = self.control.0.in_flight.wait(&self.request) => continue,
                    () = self.gone.cancelled() => return Err(gave_up()),
                }
            };
            let now = Timestamp::now();
            let begun = store.begin_idempotent(*tenant, route, key, &self.body_hash, &object, now).await;
            let begun = stored(begun)?;
            if begun != Begun::InFlight {
                return Ok((hold, begun));
            }
            drop(hold);
            if Instant::now() >= give_up {
                let message = "the first request with this idempotency key is still being answered";
                return Err(conflict(message).with_retry_after(Duration::from_secs(5)));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.gone.cancelled() => return Err(gave_up()),
            }
        }
    }

    fn claimed(&self, bits: u128, note: Option<String>) -> Claim {
        Claim {
            control: self.control.clone(),
            request: self.request.clone(),
            bits,
            note: Mutex::new(note),
            gone: self.gone.clone(),
        }
    }

    /// Goes on with a claim that was left without an answer.
    async fn resume<W: Once>(
        &self,
        mut claim: Claim,
        place: W::Place,
        begun_at: Timestamp,
    ) -> Result<Resumed<W::Made>> {
        match self.find::<W>(&place, &claim, None).await? {
            Found::Made(made) => return Ok(Resumed::Made(made)),
            Found::Nothing => {
                // A record that is this old may have been there.
                if Timestamp::now().since(begun_at) >= self.control.0.settings.retention.runs {
                    return Err(unknown());
                }
            }
            Found::Undone => {
                let (bits, Request { tenant, route, key }) = (fresh(), &self.request);
                let store = &self.control.0.store;
                if !stored(store.restart_idempotent(*tenant, route, key, &text(bits)).await)? {
                    return Err(taken());
                }
                claim = self.claimed(bits, None);
            }
        }
        Ok(Resumed::Work(claim))
    }

    /// Waits for what is under way, but not when this server ends: then the next one finds it.
    async fn find<W: Once>(
        &self,
        place: &W::Place,
        claim: &Claim,
        failed: Option<&Error>,
    ) -> Result<Found<W::Made>> {
        tokio::select! {
            biased;
            () = self.control.0.tasks.stopping().cancelled() => Err(conflict("the server is stopping")),
            found = W::find(&self.control, &self.caller, place, claim, failed) => found,
        }
    }

    async fn keep(&self, answer: Result<Answer>, replayed: bool) -> Answered {
        let kept = match &answer {
            Ok(Answer { status, content_type, body }) => {
                StoredAnswer { status: *status, content_type: content_type.clone(), body: body.clone() }
            }
            Err(error) => {
                let problem = Problem { code: error.kind(), detail: error.message().to_owned() };
                let body = serde_json::to_vec(&problem).unwrap_or_default().into();
                StoredAnswer { status: 0, content_type: PROBLEM.to_owned(), body }
            }
        };
        if kept.body.len() > LONGEST {
            return Answered { answer, replayed };
        }
        let Request { tenant, route, key } = &self.request;
        // The work is done and its answer is due, kept or not: without it the record of the work is asked.
        if let Err(error) = self.control.0.store.finish_idempotent(*tenant, route, key, &kept).await {
            tracing::warn!(%error, "an answer could not be kept for a repeated request");
        }
        Answered { answer, replayed }
    }

    async fn abandon(&self) {
        let Request { tenant, route, key } = &self.request;
        if let Err(error) = self.control.0.store.abandon_idempotent(*tenant, route, key).await {
            tracing::warn!(%error, "an idempotency key could not be freed");
        }
    }
}

/// How to go on with a claim that was left.
enum Resumed<T> {
    /// Its work has to be done.
    Work(Claim),
    Made(Result<T>),
}

fn read(kept: StoredAnswer) -> Result<Answered> {
    let StoredAnswer { status, content_type, body } = kept;
    if content_type != PROBLEM {
        return Ok(Answered { answer: Ok(Answer { status, content_type, body }), replayed: true });
    }
    let broken = |error: serde_json::Error| {
        Error::new(ErrorKind::Internal, "a kept answer cannot be read").with_source(error)
    };
    let Problem { code, detail } = serde_json::from_slice(&body).map_err(broken)?;
    Ok(Answered { answer: Err(Error::new(code, detail)), replayed: true })
}

fn unknown() -> Error {
    conflict(
        "a request with this key was not answered, and what became of it is not on record any more: look at what is \
         there, and use another key",
    )
}

/// Bits from the same source as every id.
fn fresh() -> u128 {
    RunId::random().bits()
}

fn text(bits: u128) -> String {
    format!("{bits:032x}")
}

fn gave_up() -> Error {
    Error::new(ErrorKind::Cancelled, "the caller gave up")
}

fn taken() -> Error {
    conflict("another server answers this request").with_retry_after(Duration::from_secs(1))
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
