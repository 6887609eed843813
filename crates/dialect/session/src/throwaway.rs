//! A sandbox for one handler, gone when the handler is done, however that comes about.

use std::time::Duration;

use sandstorm_control::server::{Caller, Control, NewSandbox};
use sandstorm_provider::Result;
use sandstorm_types::SandboxId;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A sandbox that is deleted by [`Throwaway::end`], or in the background when it is dropped: then the client went away. If
/// the server dies instead, the sandbox's lifetime ends it.
#[derive(Debug)]
pub(crate) struct Throwaway {
    control: Control,
    caller: Caller,
    id: SandboxId,
    tasks: TaskTracker,
    ended: bool,
}

impl Throwaway {
    pub(crate) async fn make(
        control: &Control,
        caller: &Caller,
        new: NewSandbox,
        tasks: &TaskTracker,
    ) -> Result<Self> {
        let view = control.create_sandbox(caller, new).await?;
        let (control, caller, tasks) = (control.clone(), caller.clone(), tasks.clone());
        Ok(Self { control, caller, id: view.id, tasks, ended: false })
    }

    pub(crate) fn id(&self) -> SandboxId {
        self.id
    }

    /// Deletes the sandbox. When that fails it is tried once more in the background: the handler's result is there, and
    /// the client need not wait for what does not concern it.
    pub(crate) async fn end(mut self) {
        self.ended = self.control.delete_sandbox(&self.caller, self.id).await.is_ok();
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Without a runtime the server is gone, and the sandbox's lifetime does it.
        let Ok(runtime) = Handle::try_current() else { return };
        let (control, caller, id) = (self.control.clone(), self.caller.clone(), self.id);
        let deletion = async move {
            if let Err(error) = control.delete_sandbox(&caller, id).await {
                tracing::warn!(sandbox = %id, %error, "a handler's sandbox could not be deleted; its lifetime ends it");
            }
        };
        self.tasks.spawn_on(deletion, &runtime);
    }
}

/// How much longer than its program a sandbox may live, for all that is around it.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
