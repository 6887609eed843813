//! One call, on its way to the thread that writes.

use std::future::Future;
use std::pin::Pin;

use sandstorm_types::TenantId;
use tokio::sync::oneshot;

use super::Writing;
use crate::{Result, StoreError};

/// What a call came to.
#[derive(Debug)]
pub(crate) enum Done<T> {
    /// What it wrote is to stay.
    Keep(T),
    /// What it wrote is to be undone: it found that there was nothing to do.
    Undo(T),
}

/// What the writer knows of a call.
pub(super) trait Job: Send {
    fn tenant(&self) -> Option<TenantId>;

    /// Whether nobody waits for it any more.
    fn is_abandoned(&self) -> bool;

    /// Does it, keeping what it came to for later. Whether what it wrote is to stay. Only the thread that writes drives
    /// it, so it need not be able to move to another.
    fn work<'w>(&'w mut self, writing: &'w mut Writing) -> Pin<Box<dyn Future<Output = Worked> + 'w>>;

    /// Tells the caller what it came to.
    fn answer(self: Box<Self>);

    /// Tells the caller that it came to nothing.
    fn fail(self: Box<Self>, error: StoreError);
}

pub(super) enum Worked {
    Keep,
    Undo,
    /// By another server that waited for us while we waited for it. To be done again.
    Deadlock,
}

pub(super) struct Asked<T, F> {
    tenant: Option<TenantId>,
    work: F,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Asked<T, F> {
    pub(super) fn new(tenant: Option<TenantId>, work: F) -> (Self, oneshot::Receiver<Result<T>>) {
        let (answer, answered) = oneshot::channel();
        (Self { tenant, work, outcome: None, answer }, answered)
    }
}

impl<T, F> Job for Asked<T, F>
where
    T: Send + 'static,
    F: AsyncFn(&mut Writing) -> Result<Done<T>> + Send + 'static,
{
    fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn work<'w>(&'w mut self, writing: &'w mut Writing) -> Pin<Box<dyn Future<Output = Worked> + 'w>> {
        Box::pin(async move {
            let (outcome, worked) = match (self.work)(writing).await {
                Ok(Done::Keep(value)) => (Ok(value), Worked::Keep),
                Ok(Done::Undo(value)) => (Ok(value), Worked::Undo),
                Err(error) if error.is_deadlock() => (Err(error), Worked::Deadlock),
                Err(error) => (Err(error), Worked::Undo),
            };
            self.outcome = Some(outcome);
            worked
        })
    }

    fn answer(self: Box<Self>) {
        // What has no outcome failed by a mistake of ours, which the log tells. Whoever is gone does not hear it.
        let failed = || Err(StoreError::corrupt("a mistake in what was to be written"));
        let _ = self.answer.send(self.outcome.unwrap_or_else(failed));
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.answer.send(Err(error));
    }
}
