//! Records that are on file and wait for company, so that one transaction holds many.
//!
//! They wait in the line of everything that is written, in their places, and are written with the next call that somebody
//! waits for: another record, a look at what is recorded, or [`Store::settle`]. What cannot be written stays first in line.
//! Only where one server writes: another that shares the database could not tell that something is still to come.

use sandstorm_types::TenantId;

use crate::database::Database;
use crate::intents::Announced;
use crate::writing::{Done, Writing};
use crate::{Result, Store, WholeCell, WholeRun};

impl Store {
    /// Has a run recorded soon, if it is safe to tell of it before; otherwise gives it back.
    pub fn record_run_soon(&self, announced: Announced, run: WholeRun) -> Option<(Announced, WholeRun)> {
        if !self.database().is_sqlite() || !self.file_end_of_run(&announced, &run) {
            return Some((announced, run));
        }
        let work = async move |writing: &mut Writing| run.store(writing).await.map(drop);
        self.owe(announced, work);
        None
    }

    /// The same for a cell.
    pub fn record_cell_soon(&self, announced: Announced, cell: WholeCell) -> Option<(Announced, WholeCell)> {
        if !self.database().is_sqlite() || !self.file_end_of_cell(&announced, &cell) {
            return Some((announced, cell));
        }
        let work = async move |writing: &mut Writing| cell.store(writing).await.map(drop);
        self.owe(announced, work);
        None
    }

    fn owe<F>(&self, announced: Announced, work: F)
    where
        F: AsyncFn(&mut Writing) -> Result<()> + Send + 'static,
    {
        if self.writer().owe(announced, work).is_err() {
            tracing::warn!("the store is closed: what is on file is left to the next server");
        }
    }

    /// Records all that waits for company. An error that is transient leaves it waiting.
    pub async fn settle(&self) -> Result<()> {
        if self.writer().owes_nothing() {
            return Ok(());
        }
        self.write(None::<TenantId>, async |_| Ok(Done::Undo(()))).await
    }

    /// What reads, when everything is recorded that anybody heard of.
    pub(crate) async fn settled(&self) -> Result<&Database> {
        self.settle().await?;
        Ok(self.database())
    }
}
