//! Saved sandboxes.

use std::collections::BTreeMap;

use sandstorm_control::server::{NewSnapshot, SnapshotView};
use sandstorm_types::{LanguageName, Requirement, SandboxId, SnapshotId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::fork::NotCarriedBody;
use crate::json::Wire;

/// A snapshot to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSnapshot {
    /// To find it by. Another snapshot of this name loses it.
    #[schema(pattern = "^[a-z0-9._-]{1,128}$")]
    name: Option<String>,
}

impl Wire for CreateSnapshot {}

impl From<CreateSnapshot> for NewSnapshot {
    fn from(wanted: CreateSnapshot) -> Self {
        Self { name: wanted.name }
    }
}

/// A saved sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Snapshot)]
pub(crate) struct SnapshotBody {
    #[schema(value_type = String, pattern = "^snap_[a-z2-7]{26}$")]
    id: SnapshotId,
    name: Option<String>,
    /// The sandbox that was saved; it may be gone.
    #[schema(value_type = String, pattern = "^sbx_[a-z2-7]{26}$")]
    sandbox: SandboxId,
    /// Who keeps it.
    provider: String,
    /// Null where its keeper does not tell.
    size_bytes: Option<u64>,
    /// Packages that the sandbox had. A sandbox that starts from the snapshot has them too, unless it asks for others.
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    requirements: BTreeMap<LanguageName, Vec<Requirement>>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// What could not be saved. Only the answer to its creation has this.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<Vec<NotCarriedBody>>,
}

impl SnapshotBody {
    /// The answer to its creation.
    pub(crate) fn made(mut view: SnapshotView) -> Self {
        let left_out = std::mem::take(&mut view.left_out).into_iter().map(NotCarriedBody::from).collect();
        Self { left_out: Some(left_out), ..view.into() }
    }
}

impl From<SnapshotView> for SnapshotBody {
    fn from(view: SnapshotView) -> Self {
        Self {
            id: view.id,
            name: view.name,
            sandbox: view.sandbox,
            provider: view.provider,
            size_bytes: view.size.map(|size| size.as_u64()),
            requirements: view.spec.requirements,
            created_at: view.created_at,
            left_out: None,
        }
    }
}

/// A page of snapshots, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotList {
    pub(crate) items: Vec<SnapshotBody>,
    pub(crate) next_cursor: Option<String>,
}
