//! A sandbox that holds still to be copied: its contexts between two cells, its state as it is.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_provider::{Error, NotCarried, OpContext, Result};
use sandstorm_store::ContextRow;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::CARRIED;
use crate::server::Inner;
use crate::server::execs::CELL;
use crate::server::failure::{conflict, stored};
use crate::server::interpreter::Still;
use crate::server::living::Living;
use crate::server::steps::in_the_way;

/// How long a busy context is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A sandbox that holds still until this is dropped.
#[derive(Debug)]
pub(super) struct Stillness {
    pub(super) carried: Vec<Carrying>,
    /// What the source has and no copy will have.
    pub(super) left: Vec<NotCarried>,
    _contexts: OwnedMutexGuard<()>,
    _state: OwnedMutexGuard<()>,
}

/// A context that stands still.
#[derive(Debug)]
pub(super) struct Carrying {
    pub(super) row: ContextRow,
    pub(super) still: Still,
}

impl Inner {
    /// Waits until every context of a sandbox that can be carried stands still. A busy one is a conflict after a while;
    /// with `partial` it is left out.
    pub(super) async fn still(
        &self,
        cx: &OpContext,
        living: &Arc<Living>,
        partial: bool,
    ) -> Result<Stillness> {
        let until = Instant::now() + PATIENCE;
        let waited = |_| conflict("the sandbox is busy with its contexts, or with another fork");
        let contexts = tokio::time::timeout_at(until, Arc::clone(&living.contexts).lock_owned());
        let contexts = cx.run("fork", async { contexts.await.map_err(waited) }).await?;
        let (rows, processes) =
            tokio::join!(self.store.contexts(living.tenant, living.id), self.processes(cx, living));
        let rows = stored(rows)?;
        let mut left = self.programs(living);
        let known = left.len() + rows.len();
        if processes > known {
            let why = format!(
                "{} processes or threads beside those run in the source, and stay there",
                processes - known
            );
            left.push(NotCarried { what: "processes".to_owned(), why });
        }
        let watchers = living.watchers();
        if watchers > 0 {
            let what = format!("watchers {watchers}");
            left.push(NotCarried { what, why: "who watches files watches those of the source".to_owned() });
        }
        let mut asked = Vec::new();
        for row in rows {
            let why = match self.interpreters.get(living.id, row.id) {
                _ if row.language != CARRIED => format!("a context of {} cannot be carried", row.language),
                None => "its interpreter has ended".to_owned(),
                Some(interpreter) => match interpreter.ask_for_stillness() {
                    Ok(still) => {
                        asked.push((row, still));
                        continue;
                    }
                    Err(error) => left_out(&row, error, partial)?,
                },
            };
            left.push(NotCarried { what: format!("context {}", row.id), why });
        }
        let mut carried = Vec::new();
        for (row, still) in asked {
            let still = async { Ok(tokio::time::timeout_at(until, still).await) };
            let error = match cx.run("fork", still).await? {
                Ok(Ok(still)) => {
                    carried.push(Carrying { row, still });
                    continue;
                }
                Ok(Err(_)) => conflict("its interpreter has ended"),
                Err(_) => conflict("it was busy for too long"),
            };
            let why = left_out(&row, error, partial)?;
            left.push(NotCarried { what: format!("context {}", row.id), why });
        }
        // Frozen meanwhile, it would be copied never.
        let state = Arc::clone(&living.forking).lock_owned().await;
        let now = living.row();
        if !now.state.is_ready() {
            return Err(in_the_way(now.id, &now.state));
        }
        Ok(Stillness { carried, left, _contexts: contexts, _state: state })
    }

    /// What runs beside the contexts.
    fn programs(&self, living: &Living) -> Vec<NotCarried> {
        let running = self.executions.of_sandbox(living.id);
        let running = running.iter().filter(|execution| execution.row.kind != CELL);
        let mut left: Vec<NotCarried> = running
            .map(|execution| NotCarried {
                what: format!("exec {}", execution.id()),
                why: match execution.row.tty {
                    true => "a terminal stays with the source".to_owned(),
                    false => "a program that runs beside the contexts stays with the source".to_owned(),
                },
            })
            .collect();
        left.sort_by(|one, other| one.what.cmp(&other.what));
        left
    }

    /// How many processes the sandbox has, those that nobody knows of too: what a shell left behind, say.
    async fn processes(&self, cx: &OpContext, living: &Living) -> usize {
        match self.provider.usage(cx, &living.id).await {
            Ok(usage) => usage.processes as usize,
            Err(error) => {
                tracing::debug!(sandbox = %living.id, %error, "nobody knows what runs in a sandbox");
                0
            }
        }
    }
}

impl Stillness {
    /// The provider knows execs; their owner knows them as contexts.
    pub(super) fn of_context(&self, error: Error) -> Error {
        let named = error.context().find(|(key, _)| *key == "exec").map(|(_, exec)| exec.to_owned());
        let known = self.carried.iter().find(|one| named == Some(one.still.exec.to_string()));
        match known {
            Some(one) => Error::new(error.kind(), error.message().to_owned()).with("context", one.row.id),
            None => error,
        }
    }
}

/// Why a context is left out, where that is allowed; else the refusal.
fn left_out(row: &ContextRow, error: Error, partial: bool) -> Result<String> {
    match partial {
        true => Ok(error.message().to_owned()),
        false => Err(Error::new(error.kind(), format!("a context cannot be carried: {}", error.message()))
            .with("context", row.id)),
    }
}
