//! One call, on its way to whoever writes.

use std::future::Future;
use std::pin::Pin;

use sandstorm_types::TenantId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

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

/// How much a call may have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// A handful of rows: any caller may be made to do it.
    Short,
    Long,
}

/// What the writer knows of a call.
pub(super) trait Job: Send {
    fn tenant(&self) -> Option<TenantId>;

    fn is_short(&self) -> bool;

    /// Whether nobody waits for it any more.
    fn is_abandoned(&self) -> bool;

    /// Whether nobody ever waited for it: it is written with what somebody waits for, and stays until it is written.
    fn can_wait(&self) -> bool;

    /// Does it, keeping what it came to for later. Whether what it wrote is to stay. It is driven where it was
    /// begun, so it need not be able to move to another thread.
    fn work<'w>(&'w mut self, writing: &'w mut Writing) -> Pin<Box<dyn Future<Output = Worked> + 'w>>;

    /// Why what it came to is nothing.
    fn failure(&self) -> Option<&StoreError>;

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
    length: Length,
    work: F,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
    _room: OwnedSemaphorePermit,
}

impl<T, F> Asked<T, F> {
    pub(super) fn new(
        tenant: Option<TenantId>,
        length: Length,
        room: OwnedSemaphorePermit,
        work: F,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        let (answer, answered) = oneshot::channel();
        (Self { tenant, length, work, outcome: None, answer, _room: room }, answered)
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

    fn is_short(&self) -> bool {
        self.length == Length::Short
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn can_wait(&self) -> bool {
        false
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

    fn failure(&self) -> Option<&StoreError> {
        self.outcome.as_ref()?.as_ref().err()
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
