//! What is on record of a run, or on file: its beginning before anything happens, its end before anybody hears of it.

use sandstorm_provider::{Error, Result};
use sandstorm_store::{Announced, Audit, LedgerBill, LedgerEntry, RunEnd, RunRow, StoreError, WholeRun};
use sandstorm_types::{Problem, RunId, Status, TenantId, Timestamp};
use serde_json::Value as Json;
use tokio::sync::oneshot;
use tracing::{Instrument, debug_span};

use super::Inner;
use super::beginning::SOON;
use super::ended::{Ended, stored_text};
use super::events::ending;
use super::failure::stored;
use super::patience::Patience;

/// What is written down before anything happens.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) row: RunRow,
    pub(super) told: Json,
    pub(super) audit: Audit,
    /// Whether it has to be in the database first: another server may look for it there, and has not this one's file.
    pub(super) firm: bool,
}

/// What a run cost, and attempts of it that failed.
#[derive(Debug)]
pub(super) struct RunCost {
    pub(super) bill: LedgerBill,
    pub(super) attempts: Vec<LedgerEntry>,
}

/// A beginning that is on file, and not recorded yet.
#[derive(Debug)]
pub(super) struct OnFile {
    beginning: Beginning,
    announced: Announced,
    /// Whether it may be in the database, though nobody heard so.
    tried: bool,
    /// Who waits for the record.
    recorded: Option<oneshot::Sender<()>>,
}

impl OnFile {
    /// It is in the database.
    fn recorded(self) {
        self.announced.recorded();
        tell(self.recorded);
    }
}

impl Inner {
    /// Stores the end, with the beginning unless that is stored, or puts it on file to be stored soon. An error: nothing is
    /// known of this run.
    pub(super) async fn record_run(
        &self,
        tenant: TenantId,
        id: RunId,
        ended: &Ended,
        failed: bool,
        beginning: Option<OnFile>,
        cost: RunCost,
    ) -> Result<()> {
        let status = (!failed).then_some(ended.result.status);
        let end = RunEnd {
            status: status.map(|status| status.name().to_owned()),
            result: if failed { None } else { stored_text(&ended.result) },
            problem: ended.problem.as_ref().and_then(|problem| serde_json::to_value(problem).ok()),
            at: Timestamp::now(),
            bill: Some(cost.bill),
            attempts: cost.attempts,
        };
        let Some(on_file) = beginning else {
            Box::pin(self.end_run(tenant, id, &end, status)).await;
            return Ok(());
        };
        let OnFile { beginning: Beginning { row, told, audit, .. }, announced, tried, recorded } = on_file;
        let ended = ending(None, Some(id), status).to_vec();
        let whole = WholeRun { row, started: vec![told], audit, end, ended };
        let kept_back = match tried {
            true => Some((announced, whole)),
            false => self.store.record_run_soon(announced, whole),
        };
        let Some((announced, whole)) = kept_back else {
            self.settling.add(tenant);
            tell(recorded);
            return Ok(());
        };
        Box::pin(self.record_whole_run(tenant, id, &whole, status)).await?;
        announced.recorded();
        tell(recorded);
        self.events.wake(tenant);
        Ok(())
    }

    async fn record_whole_run(
        &self,
        tenant: TenantId,
        id: RunId,
        whole: &WholeRun,
        status: Option<Status>,
    ) -> Result<()> {
        let mut patience = Patience::new("a run", id);
        while let Err(error) = self.store.whole_run(whole).await {
            if matches!(error, StoreError::Conflict { .. }) {
                // It began on record: an earlier try, of which nothing was heard, was committed after all.
                self.end_run(tenant, id, &whole.end, status).await;
                break;
            }
            stored(patience.wait(self, error).await)?;
        }
        Ok(())
    }

    /// Stores the end of a run, waiting for a store that is not available.
    pub(super) async fn end_run(&self, tenant: TenantId, id: RunId, end: &RunEnd, status: Option<Status>) {
        let told = ending(None, Some(id), status);
        let mut patience = Patience::new("the end of a run", id);
        while let Err(error) = self.store.end_run(tenant, id, end, &told).await {
            if patience.wait(self, error).await.is_err() {
                break;
            }
        }
        self.events.wake(tenant);
    }

    /// Puts the beginning on file, or in the database where that is not enough. `recorded` is told when it is there.
    pub(super) async fn begin_run(
        &self,
        beginning: Beginning,
        recorded: Option<oneshot::Sender<()>>,
    ) -> Result<Option<OnFile>> {
        let Beginning { row, told, audit, firm } = &beginning;
        let started = std::slice::from_ref(told);
        let announce = || self.store.announce_run(row, started, audit);
        let announced = if *firm { None } else { debug_span!("record_begin").in_scope(announce) };
        if let Some(announced) = announced {
            return Ok(Some(OnFile { beginning, announced, tried: false, recorded }));
        }
        let recording = Box::pin(self.store.insert_run(row, started, audit));
        stored(recording.instrument(debug_span!("record_begin")).await)?;
        self.events.wake(row.tenant);
        tell(recorded);
        Ok(None)
    }

    /// Carries a run out, and records its beginning when that is due before its end.
    pub(super) async fn beside_beginning_of_run<T>(
        &self,
        running: impl Future<Output = T>,
        beginning: &mut Option<OnFile>,
    ) -> T {
        let mut running = std::pin::pin!(running);
        let is_due = async {
            match beginning {
                None => std::future::pending().await,
                Some(on_file) if on_file.recorded.is_some() => {}
                Some(_) => tokio::time::sleep(SOON).await,
            }
        };
        // In this order: the program is on its way before anything is waited for.
        tokio::select! {
            biased;
            ended = &mut running => ended,
            // On the heap, as all that few runs come to: what there is room for is moved for every one of them.
            () = is_due => tokio::join!(biased; running, Box::pin(self.record_beginning_of_run(beginning))).0,
        }
    }

    async fn record_beginning_of_run(&self, beginning: &mut Option<OnFile>) {
        let Some(OnFile { beginning: Beginning { row, told, audit, .. }, tried, .. }) = beginning else {
            return;
        };
        *tried = true;
        let mut patience = Patience::new("the beginning of a run", row.id);
        while let Err(error) = self.store.insert_run(row, std::slice::from_ref(told), audit).await {
            if matches!(error, StoreError::Conflict { .. }) {
                break;
            }
            if patience.wait(self, error).await.is_err() {
                // Its end is stored with it, or refused with it.
                return;
            }
        }
        if let Some(on_file) = beginning.take() {
            self.events.wake(on_file.beginning.row.tenant);
            on_file.recorded();
        }
    }
}

fn tell(recorded: Option<oneshot::Sender<()>>) {
    let _ = recorded.map(|recorded| recorded.send(()));
}

/// The problem of a run whose server ended.
pub(super) fn interrupted() -> Problem {
    let error =
        Error::new(sandstorm_types::ErrorKind::Provider, "the server ended while the run was under way");
    Problem { code: error.kind(), detail: error.message().to_owned() }
}
