//! The beginning of a cell that is on file, and not recorded yet.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_store::{Announced, Audit, ContextChanges, Json, StoreError};
use tokio::sync::oneshot;

use super::Inner;
use super::executions::Execution;
use super::patience::Patience;

/// What ends sooner is recorded with its end, in one transaction.
pub(super) const SOON: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Beginning<'a> {
    pub(super) changes: &'a ContextChanges,
    pub(super) started: &'a [Json],
    pub(super) audit: &'a Audit,
    pub(super) announced: Announced,
    /// Who waits for it.
    pub(super) told: Option<oneshot::Sender<Result<()>>>,
}

impl Beginning<'_> {
    /// Until it has to be recorded.
    pub(super) async fn is_due(&self) {
        if self.told.is_none() {
            tokio::time::sleep(SOON).await;
        }
    }

    /// It is in the database.
    pub(super) fn recorded(self) {
        self.announced.recorded();
        if let Some(told) = self.told {
            let _ = told.send(Ok(()));
        }
    }

    /// It cannot be. It stays on file, for the next server to try.
    pub(super) fn refused(self, why: Error) {
        if let Some(told) = self.told {
            let _ = told.send(Err(why));
        }
    }
}

impl Inner {
    /// Records a beginning while the cell goes on; what cannot be recorded yet is tried again.
    pub(super) async fn record_beginning_of_cell(
        self: &Arc<Self>,
        execution: &Execution,
        beginning: &mut Option<Beginning<'_>>,
    ) {
        let Some(Beginning { changes, started, audit, .. }) = beginning else { return };
        let mut patience = Patience::new("the beginning of an exec", execution.id());
        while let Err(error) = self.store.begin_cell(&execution.row, changes, started, audit).await {
            if matches!(error, StoreError::Conflict { .. }) {
                // It is there: an earlier try, of which nothing was heard, was committed after all.
                break;
            }
            if patience.wait(self, error).await.is_err() {
                // Its end is stored with it or refused with it.
                return;
            }
        }
        if let Some(beginning) = beginning.take() {
            beginning.recorded();
        }
        self.events.wake(execution.row.tenant);
    }
}
