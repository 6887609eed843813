//! A cell that is on file, and not recorded yet.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_provider::Result;
use sandstorm_store::{Announced, Audit, ContextChanges, ExecEnd, Json, StoreError, WholeCell};
use sandstorm_types::Problem;
use tokio::sync::oneshot;

use super::Inner;
use super::executions::Execution;
use super::failure::of_store;
use super::patience::Patience;

/// What ends sooner is recorded with its end, in one transaction.
pub(super) const SOON: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Beginning<'a> {
    pub(super) changes: &'a ContextChanges,
    pub(super) started: &'a [Json],
    pub(super) audit: &'a Audit,
    pub(super) announced: Announced,
    /// Whether it may be in the database, though nobody heard so.
    pub(super) tried: bool,
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
    fn recorded(self) {
        self.announced.recorded();
        tell(self.told, Ok(()));
    }
}

fn tell(who: Option<oneshot::Sender<Result<()>>>, what: Result<()>) {
    let _ = who.map(|told| told.send(what));
}

impl Inner {
    /// Records beginning and end, or puts the end on file to be recorded soon. A problem: of this one there is no record.
    pub(super) async fn record_whole_cell(
        &self,
        execution: &Execution,
        beginning: Beginning<'_>,
        end: ExecEnd,
        changes: ContextChanges,
        ended: &[Json],
    ) -> std::result::Result<(), Problem> {
        let Beginning { started, audit, announced, tried, told, .. } = beginning;
        let (started, audit, ended) = (started.to_vec(), audit.clone(), ended.to_vec());
        let whole = WholeCell { row: execution.row.clone(), started, audit, end, changes, ended };
        let kept_back = match tried {
            true => Some((announced, whole)),
            false => self.store.record_cell_soon(announced, whole),
        };
        let Some((announced, whole)) = kept_back else {
            self.settling.add(execution.row.tenant);
            tell(told, Ok(()));
            return Ok(());
        };
        let mut patience = Patience::new("an exec", execution.id());
        while let Err(error) = self.store.whole_cell(&whole).await {
            if matches!(error, StoreError::Conflict { .. }) {
                // It began on record: an earlier try, of which nothing was heard, was committed after all.
                self.record_end(execution, &whole.end, Some(&whole.changes), &whole.ended).await;
                break;
            }
            if let Err(error) = patience.wait(self, error).await {
                // It stays on file, for the next server to try.
                let error = of_store(error);
                let problem = Problem { code: error.kind(), detail: error.message().to_owned() };
                tell(told, Err(error));
                return Err(problem);
            }
        }
        announced.recorded();
        tell(told, Ok(()));
        Ok(())
    }

    /// Records the end of what began on record, waiting for a store that is not available.
    pub(super) async fn record_end(
        &self,
        execution: &Execution,
        end: &ExecEnd,
        changes: Option<&ContextChanges>,
        told: &[Json],
    ) {
        let (tenant, id) = (execution.row.tenant, execution.id());
        let mut patience = Patience::new("the end of an exec", id);
        loop {
            let stored = match (execution.row.context, changes) {
                (Some(context), Some(changes)) => {
                    self.store.end_cell(tenant, id, end, context, changes, told).await
                }
                _ => self.store.end_exec(tenant, id, end, told).await,
            };
            match stored {
                Ok(_) => return,
                Err(error) => {
                    if patience.wait(self, error).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Records a beginning while the cell goes on; what cannot be recorded yet is tried again.
    pub(super) async fn record_beginning_of_cell(
        self: &Arc<Self>,
        execution: &Execution,
        beginning: &mut Option<Beginning<'_>>,
    ) {
        let Some(Beginning { changes, started, audit, tried, .. }) = beginning else { return };
        *tried = true;
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
