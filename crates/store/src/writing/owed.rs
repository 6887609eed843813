//! A record that nobody waits for: it is on file.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sandstorm_types::TenantId;

use super::Writing;
use super::job::{Job, Worked};
use crate::intents::Announced;
use crate::{Result, StoreError};

pub(super) struct Owed<F> {
    work: F,
    outcome: Option<Result<()>>,
    announced: Option<Announced>,
    _debt: Debt,
}

/// Counts one for as long as it lives.
struct Debt(Arc<AtomicUsize>);

impl<F> Owed<F> {
    pub(super) fn new(work: F, announced: Announced, debts: &Arc<AtomicUsize>) -> Self {
        debts.fetch_add(1, Ordering::AcqRel);
        Self { work, outcome: None, announced: Some(announced), _debt: Debt(Arc::clone(debts)) }
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<F> Job for Owed<F>
where
    F: AsyncFn(&mut Writing) -> Result<()> + Send + 'static,
{
    fn tenant(&self) -> Option<TenantId> {
        // It is owed only where one server writes: there nobody asks.
        None
    }

    fn is_short(&self) -> bool {
        true
    }

    fn is_abandoned(&self) -> bool {
        false
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn work<'w>(&'w mut self, writing: &'w mut Writing) -> Pin<Box<dyn Future<Output = Worked> + 'w>> {
        Box::pin(async move {
            let outcome = (self.work)(writing).await;
            let worked = if outcome.is_ok() { Worked::Keep } else { Worked::Undo };
            self.outcome = Some(outcome);
            worked
        })
    }

    fn failure(&self) -> Option<&StoreError> {
        self.outcome.as_ref()?.as_ref().err()
    }

    fn answer(mut self: Box<Self>) {
        match &self.outcome {
            // A conflict is a record of its own: it was there already.
            Some(Ok(()) | Err(StoreError::Conflict { .. })) => {
                self.announced.take().into_iter().for_each(Announced::recorded);
            }
            Some(Err(error)) => tracing::error!(%error, "what is on file cannot be stored"),
            None => tracing::error!("a mistake in what is on file"),
        }
    }

    fn fail(self: Box<Self>, error: StoreError) {
        tracing::error!(%error, "what is on file cannot be stored");
    }
}
