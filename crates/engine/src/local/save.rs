//! Sandboxes saved as files, and made from what was saved.

use std::sync::Arc;

use sandstorm_agent_client::files::carry;
use sandstorm_agent_client::lost;
use sandstorm_provider::{
    CreateOptions, Error, NotCarried, Result, Sandbox, Snapshot, SnapshotKind, SnapshotOptions,
};
use sandstorm_types::{ByteSize, ErrorKind, SandboxId, SandboxSpec, SnapshotId, TenantId, Unmet};

use super::LocalProvider;
use super::fork::lacking;
use crate::snapshots::Snapshots;

/// Beside the files of a sandbox, their names and places are sent. One that sends more than this is not honest.
const OVERHEAD: u64 = 16 << 20;

impl LocalProvider {
    fn kept(&self) -> Result<&Arc<Snapshots>> {
        self.snapshots
            .as_ref()
            .ok_or_else(|| unmet("snapshot_files", "there is no folder to keep snapshots in"))
    }

    pub(super) async fn save(&self, id: &SandboxId, options: SnapshotOptions) -> Result<Snapshot> {
        let kept = self.kept()?;
        if options.kind == SnapshotKind::Memory {
            return Err(unmet("snapshot_memory", "only files are saved here"));
        }
        let living = self.living(id)?;
        living.check_ready()?;
        living.agent.ready().await.map_err(lost)?;
        let held = living.spec.limits.disk.as_u64().saturating_mul(2).saturating_add(OVERHEAD);
        let most = options.most.map_or(u64::MAX, ByteSize::as_u64);
        let past_most = || match most < held {
            true => {
                Error::new(ErrorKind::Quota, "the snapshot would be larger than it may be").with("most", most)
            }
            false => Error::new(ErrorKind::Provider, "the sandbox sends more than it can hold"),
        };
        let mut files = carry::save(&living.agent)?;
        let size = kept.write(options.id, &mut files, most.min(held), past_most).await?;
        let left_out: Vec<NotCarried> = files.left().iter().map(lacking).collect();
        if !left_out.is_empty() {
            tracing::info!(sandbox = %id, snapshot = %options.id, left_out = left_out.len(), "not everything could be saved");
        }
        Ok(Snapshot { size: Some(ByteSize::bytes(size)), left_out })
    }

    pub(super) async fn forget(&self, id: &SnapshotId) -> Result<()> {
        self.kept()?.delete(*id).await
    }

    /// A sandbox with the files of a snapshot. Its limits are its own: what does not fit is not made.
    pub(super) async fn make_from(
        &self,
        tenant: TenantId,
        snapshot: SnapshotId,
        spec: &SandboxSpec,
        options: CreateOptions,
    ) -> Result<Sandbox> {
        let files = self.kept()?.read(snapshot).await?;
        let made = self.make(tenant, spec, options).await?;
        match self.fill_from(&made.id, files).await {
            Ok(()) => Ok(made),
            Err(error) => {
                let _ = self.remove(&made.id).await;
                Err(error.with("snapshot", snapshot))
            }
        }
    }

    async fn fill_from(&self, id: &SandboxId, files: carry::Files) -> Result<()> {
        let living = self.living(id)?;
        living.agent.ready().await.map_err(lost)?;
        let left = carry::import(files, &living.agent).await?;
        // It was there when it was saved, so it has to be here, but for what lies in trees that are shown read-only.
        let read_only = rustix::io::Errno::ROFS.raw_os_error().to_string();
        let shown = |error: &Error| error.context().any(|(key, value)| key == "errno" && value == read_only);
        left.into_iter().find(|error| !shown(error)).map_or(Ok(()), Err)
    }
}

fn unmet(feature: &'static str, why: &'static str) -> Error {
    Error::unmet(vec![Unmet::new(feature, "yes", "no", why)])
}
