//! Sandboxes that were saved: made, found, removed, and what others are made from.
//!
//! The record comes first, so that whatever a provider was asked to keep is known to be there: what could not be finished,
//! or could not be removed, stays on record until its keeper has said that nothing is left. Only what is ready is shown.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, NotCarried, OpContext, Provider, Result, SnapshotKind, SnapshotOptions};
use sandstorm_store::{SnapshotFilter, SnapshotRoom, SnapshotRow, SnapshotState};
use sandstorm_types::{
    ByteSize, ErrorKind, SandboxId, SandboxSpec, SnapshotId, Template, TenantId, Timestamp, Unmet,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::cursor::{self, List, Place};
use super::failure::{conflict, elsewhere, invalid, not_found, stored};
use super::sandboxes::{LARGEST_PAGE, PAGE};
use super::{Caller, Claim, Control, Inner, NewSandbox, Page, Scope};

/// How long saving one may take, and removing it.
const PATIENCE: Duration = Duration::from_secs(600);
const REMOVAL: Duration = Duration::from_secs(60);
/// From this age on a snapshot that is not ready is left over, unless this server is making it.
const ABANDONED: Duration = Duration::from_secs(900);
const LONGEST_NAME: usize = 128;
/// How often keeping one is charged, and how many at a time.
const CHARGED_EVERY: Duration = Duration::from_secs(3600);
const CHARGED_AT_ONCE: u32 = 10_000;

/// What one tenant may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    pub count: u32,
    /// As far as those who keep them tell their size.
    pub bytes: u64,
}

/// A snapshot to make.
#[derive(Debug, Clone, Default)]
pub struct NewSnapshot {
    /// Another one of this name loses it.
    pub name: Option<String>,
}

/// Snapshots that this server is making. Their age by the wall clock says nothing, since that may be set meanwhile.
#[derive(Debug, Clone, Default)]
pub(super) struct Saving(Arc<Mutex<HashSet<SnapshotId>>>);

impl Saving {
    /// This one is being made until the guard is dropped.
    fn begin(&self, id: SnapshotId) -> SavingGuard {
        self.ids().insert(id);
        SavingGuard { id, among: self.clone() }
    }

    fn has(&self, id: SnapshotId) -> bool {
        self.ids().contains(&id)
    }

    fn ids(&self) -> MutexGuard<'_, HashSet<SnapshotId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct SavingGuard {
    id: SnapshotId,
    among: Saving,
}

impl Drop for SavingGuard {
    fn drop(&mut self) {
        self.among.ids().remove(&self.id);
    }
}

/// A saved sandbox as its owner sees it.
#[derive(Debug, Clone)]
pub struct SnapshotView {
    pub id: SnapshotId,
    pub name: Option<String>,
    /// The sandbox that was saved; it may be gone.
    pub sandbox: SandboxId,
    /// What that was.
    pub spec: SandboxSpec,
    /// Who keeps it.
    pub provider: String,
    /// `None` where its keeper does not tell.
    pub size: Option<ByteSize>,
    pub created_at: Timestamp,
    /// What could not be saved; told once, when it is made.
    pub left_out: Vec<NotCarried>,
}

/// Which snapshots to list.
#[derive(Debug, Clone, Default)]
pub struct SnapshotQuery {
    pub sandbox: Option<SandboxId>,
    pub name: Option<String>,
    /// Who keeps it.
    pub provider: Option<String>,
    pub limit: Option<u32>,
    /// From an earlier page; bound to the tenant and the filters, authenticated.
    pub cursor: Option<String>,
}

impl Control {
    /// Saves the files of a ready sandbox, which goes on. Dropping the future leaves nothing.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn create_snapshot(
        &self,
        caller: &Caller,
        id: SandboxId,
        new: NewSnapshot,
    ) -> Result<SnapshotView> {
        self.create_snapshot_as(caller, id, SnapshotId::random(), new, None).await
    }

    /// The same with an id that was chosen before. With a claim, what was left out is noted with it before the snapshot is
    /// ready.
    pub(super) async fn create_snapshot_as(
        &self,
        caller: &Caller,
        id: SandboxId,
        as_id: SnapshotId,
        new: NewSnapshot,
        claim: Option<Arc<Claim>>,
    ) -> Result<SnapshotView> {
        caller.require(Scope::Sandbox)?;
        self.0.accepts_work()?;
        if let Some(name) = &new.name {
            check_name(name)?;
        }
        let living = self.0.ready(caller.tenant, id).await?;
        if !self.0.can(&living.row()).snapshot_files {
            let why = "whoever holds the sandbox cannot save it";
            return Err(Error::unmet(vec![Unmet::new("snapshot_files", "yes", "no", why)]));
        }
        let gone = CancellationToken::new();
        let _on_drop = gone.clone().drop_guard();
        let cx = caller.operation().with_cancellation(gone).with_timeout(PATIENCE);
        let (inner, caller, row) = (Arc::clone(&self.0), caller.clone(), living.row());
        // Whoever is saved is in use.
        let busy = living.busy();
        let saved = self.0.tasks.complete(async move {
            let _busy = busy;
            let now = Timestamp::now();
            let saving = SnapshotRow {
                id: as_id,
                tenant: caller.tenant,
                sandbox: id,
                name: None,
                provider: row.provider.clone(),
                spec: row.spec.clone(),
                state: SnapshotState::Making,
                size_bytes: 0,
                created_at: now,
                key: caller.key.clone(),
                charged_until: now,
            };
            inner.save(&caller, &cx, saving, new.name, claim.as_deref()).await
        });
        let saved = saved.await;
        living.touch();
        let outcome = saved.as_ref().map_or_else(|error| error.kind().code(), |_| "ok");
        metrics::counter!("sandstorm_snapshots_total", "outcome" => outcome).increment(1);
        saved
    }

    pub async fn snapshot(&self, caller: &Caller, id: SnapshotId) -> Result<SnapshotView> {
        caller.require(Scope::Sandbox)?;
        self.0.snapshot(caller.tenant, id).await.map(SnapshotView::from)
    }

    /// Newest first.
    pub async fn snapshots(&self, caller: &Caller, query: SnapshotQuery) -> Result<Page<SnapshotView>> {
        caller.require(Scope::Sandbox)?;
        let SnapshotQuery { sandbox, name, provider, limit, cursor } = query;
        let filters = format!("snapshots {sandbox:?} {name:?} {provider:?}");
        let list = List { tenant: caller.tenant, filters: &filters };
        let pepper = &self.0.settings.pepper;
        let before = match cursor {
            Some(cursor) => {
                let Place { at, id } = cursor::decode(pepper, list, &cursor)?;
                Some((at, SnapshotId::from_bits(id)))
            }
            None => None,
        };
        let limit = limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
        let filter = SnapshotFilter { sandbox, name, provider, before, limit: limit + 1 };
        let rows = stored(self.0.store.list_snapshots(caller.tenant, &filter).await)?;
        let mut items: Vec<SnapshotView> = rows.into_iter().map(SnapshotView::from).collect();
        let more = items.len() as u64 > u64::from(limit);
        items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let next_cursor = items
            .last()
            .filter(|_| more)
            .map(|last| cursor::encode(pepper, list, Place { at: last.created_at, id: last.id.bits() }));
        Ok(Page { items, next_cursor })
    }

    /// `NotFound` for one that never was, was removed or is another's. Sandboxes that were made from it live on.
    #[tracing::instrument(skip_all, fields(snapshot = %id))]
    pub async fn delete_snapshot(&self, caller: &Caller, id: SnapshotId) -> Result<()> {
        caller.require(Scope::Sandbox)?;
        let (inner, tenant, audit) =
            (Arc::clone(&self.0), caller.tenant, caller.audit("snapshot.delete", id));
        self.0
            .tasks
            .complete(async move {
                let row = stored(inner.store.end_snapshot(tenant, id, Some(&audit)).await)?;
                let row = row.ok_or_else(|| not_found("snapshot"))?;
                if row.state == SnapshotState::Making {
                    return Err(conflict("the snapshot is still being made"));
                }
                if stored(inner.store.keeper_of_snapshot(tenant, id).await)?.is_some() {
                    // That server is gone. Should it come back, it removes what it has of it.
                    return Ok(());
                }
                // One that could not be removed before was charged for then.
                if row.state == SnapshotState::Ready {
                    inner.charge_for(&row, Timestamp::now()).await;
                }
                inner.remove_snapshot(&row).await
            })
            .await
    }
}

impl From<SnapshotRow> for SnapshotView {
    fn from(row: SnapshotRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            sandbox: row.sandbox,
            spec: row.spec,
            provider: row.provider,
            size: (row.size_bytes > 0).then(|| ByteSize::bytes(row.size_bytes)),
            created_at: row.created_at,
            left_out: Vec::new(),
        }
    }
}

/// What became of a snapshot that was to be made.
pub(super) enum SnapshotBecame {
    /// It is not on record.
    Nothing,
    /// A server is making it.
    Coming,
    Ready(Box<SnapshotView>),
    /// Its maker is gone, or it failed or was removed: its id is used up.
    Undone,
}

/// What could not be saved, as it is on record with the claim of its request: what, and why.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LeftOut(Vec<(String, String)>);

impl LeftOut {
    fn of(left_out: &[NotCarried]) -> Self {
        Self(left_out.iter().map(|left| (left.what.clone(), left.why.clone())).collect())
    }

    fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn read(note: &str) -> Result<Self> {
        serde_json::from_str(note).map_err(|error| {
            Error::new(ErrorKind::Internal, "the record of a snapshot is damaged").with_source(error)
        })
    }
}

impl From<LeftOut> for Vec<NotCarried> {
    fn from(LeftOut(left_out): LeftOut) -> Self {
        left_out.into_iter().map(|(what, why)| NotCarried { what, why }).collect()
    }
}

impl Control {
    /// What became of the snapshot with this id.
    pub(super) async fn snapshot_once_made(&self, caller: &Caller, id: SnapshotId) -> Result<SnapshotBecame> {
        let row = stored(self.0.store.snapshot_in_any_state(caller.tenant, id).await)?;
        let Some(row) = row else { return Ok(SnapshotBecame::Nothing) };
        Ok(match row.state {
            SnapshotState::Ready => SnapshotBecame::Ready(Box::new(row.into())),
            SnapshotState::Ending => SnapshotBecame::Undone,
            SnapshotState::Making if self.0.saving.has(id) => SnapshotBecame::Coming,
            SnapshotState::Making => {
                match stored(self.0.store.keeper_of_snapshot(caller.tenant, id).await)? {
                    Some(_) => SnapshotBecame::Coming,
                    None => SnapshotBecame::Undone,
                }
            }
        })
    }
}

impl Inner {
    async fn snapshot(&self, tenant: TenantId, id: SnapshotId) -> Result<SnapshotRow> {
        stored(self.store.snapshot(tenant, id).await)?.ok_or_else(|| not_found("snapshot"))
    }

    /// Writes down that it will be there, has it saved, and shows it; or leaves nothing.
    async fn save(
        &self,
        caller: &Caller,
        cx: &OpContext,
        row: SnapshotRow,
        name: Option<String>,
        claim: Option<&Claim>,
    ) -> Result<SnapshotView> {
        let SnapshotLimits { count, bytes } = self.settings.snapshots;
        let mut audit = caller.audit("snapshot.create", row.id);
        audit.detail = Some(serde_json::json!({ "sandbox": row.sandbox.to_string() }));
        let room = SnapshotRoom { count, bytes };
        let _saving = self.saving.begin(row.id);
        let left = stored(self.store.insert_snapshot(&row, room, &audit).await)?;
        let most = Some(ByteSize::bytes(left));
        let options = SnapshotOptions { id: row.id, kind: SnapshotKind::Files, most };
        let saved = async {
            let saved = self.provider.snapshot(cx, &row.sandbox, options).await?;
            cx.check("snapshot")?;
            if let Some(claim) = claim {
                claim.keep_note(LeftOut::of(&saved.left_out).written()).await?;
            }
            let size = saved.size.map_or(0, ByteSize::as_u64);
            let ready =
                stored(self.store.finish_snapshot(row.tenant, row.id, name.as_deref(), size, room).await)?;
            let ready = ready.ok_or_else(|| conflict("the snapshot was removed while it was made"))?;
            Ok(SnapshotView { left_out: saved.left_out, ..ready.into() })
        };
        let saved: Result<SnapshotView> = saved.await;
        if let Err(error) = &saved {
            tracing::warn!(snapshot = %row.id, sandbox = %row.sandbox, %error, "a sandbox could not be saved");
            if let Err(error) = self.remove_snapshot(&row).await {
                tracing::warn!(snapshot = %row.id, %error, "what is left of a snapshot will be removed later");
            }
        }
        saved
    }

    /// Has its keeper remove it, and forgets it then.
    async fn remove_snapshot(&self, row: &SnapshotRow) -> Result<()> {
        let cx = OpContext::new(row.tenant).with_timeout(REMOVAL);
        self.keeper(&row.provider)?.delete_snapshot(&cx, &row.id).await?;
        stored(self.store.forget_snapshot(row.tenant, row.id).await).map(drop)
    }

    /// Who keeps what is on record under this name.
    fn keeper(&self, name: &str) -> Result<Arc<dyn Provider>> {
        let member = self.runner.fleet.as_ref().and_then(|fleet| fleet.provider_named(name));
        let only = || (self.provider.info().name == name).then(|| Arc::clone(&self.provider));
        member.or_else(only).ok_or_else(|| {
            let message = "the provider that keeps the snapshot is not configured any more";
            Error::new(ErrorKind::Provider, message).with("provider", name)
        })
    }

    /// What a new sandbox has from the snapshot that it starts from, and who keeps that.
    pub(super) async fn start_from(&self, tenant: TenantId, new: &mut NewSandbox) -> Result<Option<String>> {
        let Template::Snapshot(id) = new.template else { return Ok(None) };
        let row = self.snapshot(tenant, id).await?;
        if let Some(node) = stored(self.store.keeper_of_snapshot(tenant, id).await)? {
            return Err(elsewhere("snapshot", &node));
        }
        if new.requirements.is_empty() {
            // What was saved may need the packages that were at hand then.
            new.requirements = row.spec.requirements;
        }
        Ok(Some(row.provider))
    }

    /// Puts into the ledger what snapshots cost that were kept for another hour.
    pub(super) async fn charge_snapshots(&self) {
        let now = Timestamp::now();
        let rows = match self.store.uncharged_snapshots(now.before(CHARGED_EVERY), CHARGED_AT_ONCE).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "what keeping snapshots costs could not be looked up");
                return;
            }
        };
        for row in &rows {
            self.charge_for(row, now).await;
        }
    }

    /// What could not be written is charged with the next hour; of one that is removed it is lost to us.
    async fn charge_for(&self, row: &SnapshotRow, until: Timestamp) {
        if let Err(error) = self.spending.charge_snapshot(&self.store, row, until).await {
            tracing::warn!(snapshot = %row.id, %error, "keeping a snapshot was not charged");
        }
    }

    /// Removes what is left of those that nobody is at any more.
    pub(super) async fn settle_snapshots(&self) {
        let before = Timestamp::now().before(ABANDONED);
        let rows = match self.store.unsettled_snapshots(before).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "what is left of snapshots could not be looked up");
                return;
            }
        };
        // Of a store that several servers share, the others' are the others'.
        let own = self.own_names();
        for row in rows.iter().filter(|row| own.contains(&row.provider.as_str()) && !self.saving.has(row.id))
        {
            if let Err(error) = self.remove_snapshot(row).await {
                tracing::warn!(snapshot = %row.id, %error, "what is left of a snapshot will be removed later");
            }
        }
    }
}

/// Names are words of other people's programs and of addresses.
fn check_name(name: &str) -> Result<()> {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    match (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => {
            Err(invalid("the name of a snapshot is 1 to 128 of the characters a-z, 0-9, `-`, `_` and `.`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_being_made_until_its_maker_has_ended() {
        let saving = Saving::default();
        let (one, other) = (SnapshotId::random(), SnapshotId::random());
        let first = saving.begin(one);
        let second = saving.clone().begin(other);
        drop(first);
        assert!(!saving.has(one) && saving.has(other));
        drop(second);
        assert!(!saving.has(other));
    }
}
