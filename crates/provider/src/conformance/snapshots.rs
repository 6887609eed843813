//! Sandboxes are saved and come back.

use sandstorm_types::{ErrorKind, SnapshotId, Template};

use super::trial::{Trial, Verdict, fails, same_bytes};
use super::{Case, case};
use crate::{CreateOptions, SnapshotKind, SnapshotOptions};

pub(super) const CASES: &[Case] = &[
    case!("snapshots", files_come_back_as_they_were, needs [snapshot_files, template_snapshot, files]),
    case!("snapshots", unknown_ones_are_not_found, needs[template_snapshot]),
];

async fn files_come_back_as_they_were(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "kept", "then").await?;
    let saved = t.provider.snapshot(&t.cx, &id, SnapshotOptions { kind: SnapshotKind::Files }).await?;
    t.write(&id, "kept", "now").await?;
    t.provider.destroy(&t.cx, &id).await?;
    let mut spec = t.spec();
    spec.template = Template::Snapshot(saved);
    let (one, other) = (t.sandbox_of(&spec).await?, t.sandbox_of(&spec).await?);
    t.write(&one, "kept", "changed").await?;
    same_bytes("the saved file", t.read(&other, "kept").await?, b"then")
}

async fn unknown_ones_are_not_found(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.template = Template::Snapshot(SnapshotId::random());
    let made =
        t.provider.create(&t.cx, &spec, CreateOptions { id: t.id(), ..CreateOptions::default() }).await;
    fails("starting from it", made, ErrorKind::NotFound)
}
