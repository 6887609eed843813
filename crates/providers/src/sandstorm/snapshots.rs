//! Sandboxes saved there. A snapshot there has a name that is made of our mark and our id, which is all that is needed to
//! find it again. Only files are saved.

use std::sync::Arc;

use sandstorm_client::{NewSnapshot, Snapshot as Theirs, SnapshotQuery};
use sandstorm_provider::{Error, NotCarried, OpContext, Result, Snapshot};
use sandstorm_types::{ByteSize, ErrorKind, Retry, SandboxId, SnapshotId, Template};

use super::client::Far;
use super::error::{of, senseless};

/// Things that another server says could not be saved, and characters of one text about them.
const MOST_LEFT_OUT: usize = 1000;
const LONGEST_TEXT: usize = 500;

impl Far {
    /// What a snapshot of ours is called there.
    fn snapshot_name(&self, id: &SnapshotId) -> String {
        format!("sandstorm-{}-{}", self.owner, id.bare())
    }

    /// What they have of a snapshot of ours: at most one, since a name there means one.
    async fn saved(&self, id: &SnapshotId) -> Result<Option<Theirs>> {
        let name = self.snapshot_name(id);
        let query = SnapshotQuery { name: Some(name.clone()), limit: Some(1), ..SnapshotQuery::default() };
        let page = self.client.snapshots(&query).await.map_err(of)?;
        Ok(page.items.into_iter().find(|theirs| theirs.name.as_deref() == Some(&name)))
    }

    /// What is asked of them is waited for to its end, whoever gave up: only then it is known what to remove.
    pub(super) async fn snapshot(
        self: &Arc<Self>,
        cx: &OpContext,
        sandbox: &SandboxId,
        id: SnapshotId,
        most: Option<ByteSize>,
    ) -> Result<Snapshot> {
        let Some(saving) = self.saving.begin(id) else { return Err(exists(&id)) };
        let (far, sandbox) = (Arc::clone(self), *sandbox);
        let work = async move |_gone| {
            let _saving = saving;
            far.save(&sandbox, &id, most).await
        };
        self.tasks.make(cx, "snapshot", work).await
    }

    async fn save(&self, sandbox: &SandboxId, id: &SnapshotId, most: Option<ByteSize>) -> Result<Snapshot> {
        let place = self.place(sandbox).await?;
        // There a second one of a name takes it from the first.
        if self.saved(id).await?.is_some() {
            return Err(exists(id));
        }
        let name = self.snapshot_name(id);
        let key = format!("{}-{id}", self.owner);
        let new = NewSnapshot { name: Some(name.clone()) };
        let saved = self.client.create_snapshot_once(place.theirs(), &new, &key).await.map_err(of)?;
        if saved.name.as_deref() != Some(&name) {
            return Err(senseless("it saved something under another name"));
        }
        let size = saved.size_bytes.map(ByteSize::bytes);
        if let (Some(size), Some(most)) = (size, most)
            && size > most
        {
            self.client.delete_snapshot(saved.id).await.map_err(of)?;
            return Err(Error::new(ErrorKind::Quota, "the sandbox is larger than what may be kept of it")
                .with("size", size)
                .with("allowed", most));
        }
        let left_out = saved.left_out.unwrap_or_default().into_iter().take(MOST_LEFT_OUT);
        let left_out = left_out.map(|left| NotCarried { what: short(left.what), why: short(left.why) });
        Ok(Snapshot { size, left_out: left_out.collect() })
    }

    /// Absent is fine. That it is gone is looked up: an answer that says so is not enough.
    pub(super) async fn forget_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.saving.settled(id).await;
        let Some(theirs) = self.saved(id).await? else { return Ok(()) };
        match self.client.delete_snapshot(theirs.id).await.map_err(of) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.with("snapshot", id)),
        }
        match self.saved(id).await? {
            None => Ok(()),
            Some(_) => {
                let message = "the server says that the snapshot is removed, but it is still there";
                Err(Error::new(ErrorKind::Provider, message).with_retry(Retry::Here).with("snapshot", id))
            }
        }
    }

    /// What they call what a sandbox is to be made from.
    pub(super) async fn template_there(&self, template: &Template) -> Result<Template> {
        let Template::Snapshot(id) = template else { return Ok(template.clone()) };
        let found = self.saved(id).await.map_err(Error::with_not_started)?;
        let theirs = found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such snapshot")
                .with("snapshot", id)
                .with_not_started()
        })?;
        Ok(Template::Snapshot(theirs.id))
    }
}

fn short(text: String) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

fn exists(id: &SnapshotId) -> Error {
    Error::new(ErrorKind::Conflict, "there is such a snapshot already").with("snapshot", id)
}
