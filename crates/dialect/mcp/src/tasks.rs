//! Calls that take long become tasks, for clients that know tasks: they get a handle and look at it when they like.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{CallToolResponse, CallToolResult, CreateTaskResult, GetTaskResult};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use sandstorm_control::server::Caller;
use sandstorm_types::TenantId;

use crate::settings::McpSettings;

/// The work of a call. Dropping it ends it.
pub(crate) type Work = Pin<Box<dyn Future<Output = CallToolResult> + Send>>;

/// How often a client should look.
const LOOK_EVERY_MS: u64 = 1000;

#[derive(Default)]
pub(crate) struct LongCalls {
    manager: TaskManager,
    /// Whose each task is: its id is no credential.
    owners: Mutex<HashMap<String, TenantId>>,
}

impl fmt::Debug for LongCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongCalls").finish_non_exhaustive()
    }
}

impl LongCalls {
    /// Waits for a call. One that is cancelled, by word or because its client is gone, ends at once; so does one whose
    /// client `left` for good.
    pub(crate) async fn answer(
        &self,
        settings: &McpSettings,
        owner: &Caller,
        context: &RequestContext<RoleServer>,
        mut work: Work,
        left: impl Future<Output = ()>,
    ) -> Result<CallToolResponse, ErrorData> {
        // As the request itself says. In the revisions with sessions only the client may make a call a task, whatever it said
        // that it knows.
        let knows_tasks =
            context.meta.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks());
        let until_task = async {
            match knows_tasks {
                true => tokio::time::sleep(settings.task_after).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            result = &mut work => return Ok(result.into()),
            () = context.ct.cancelled() => return Err(ErrorData::invalid_request("the call was cancelled", None)),
            () = left => return Err(ErrorData::invalid_request("the client is gone", None)),
            () = settings.closing.cancelled() => return Err(ErrorData::internal_error("the server is stopping", None)),
            () = until_task => {}
        }
        let kept = u64::try_from(settings.task_kept.as_millis()).unwrap_or(u64::MAX);
        let options = TaskOptions::new().with_ttl_ms(kept).with_poll_interval_ms(LOOK_EVERY_MS);
        let task = self.manager.spawn(options, |task| {
            Box::pin(async move {
                tokio::select! {
                    result = work => Ok(result),
                    () = task.cancelled() => Err(TaskExit::Cancelled),
                }
            })
        });
        let mut owners = self.owners();
        // Of those that were kept long enough, the manager knows nothing any more.
        owners.retain(|id, _| self.manager.get_task(id).is_ok());
        owners.insert(task.task_id.clone(), owner.tenant());
        drop(owners);
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    pub(crate) fn get(&self, caller: &Caller, id: &str) -> Result<GetTaskResult, ErrorData> {
        self.check(caller, id)?;
        self.manager.get_task(id).map(GetTaskResult::new)
    }

    pub(crate) fn cancel(&self, caller: &Caller, id: &str) -> Result<(), ErrorData> {
        self.check(caller, id)?;
        self.manager.cancel_task(id)
    }

    /// Another's task is answered for as one that is not there.
    fn check(&self, caller: &Caller, id: &str) -> Result<(), ErrorData> {
        match self.owners().get(id) {
            Some(owner) if *owner == caller.tenant() => Ok(()),
            _ => Err(ErrorData::invalid_params("there is no such task", None)),
        }
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        self.manager.shutdown();
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, TenantId>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
