//! Sandboxes are saved and come back, and what was saved can be removed.

use sandstorm_types::{ByteSize, ErrorKind, SandboxId, SandboxSpec, SnapshotId, Template, Transition};

use super::trial::{Failure, Trial, Verdict, fails, read_output, same_bytes};
use super::{Case, case};
use crate::{CreateOptions, ExecRequest, Sandbox, SnapshotOptions, Stdin};

pub(super) const CASES: &[Case] = &[
    case!("snapshots", files_come_back_as_they_were, needs [snapshot_files, template_snapshot, files]),
    case!("snapshots", unknown_ones_are_not_found, needs[template_snapshot]),
    case!("snapshots", removed_ones_are_gone, needs [snapshot_files, template_snapshot, files]),
    case!("snapshots", what_runs_goes_on, needs [snapshot_files, template_snapshot, files, exec_stdin]),
    case!("snapshots", an_id_is_taken_once, needs [snapshot_files, template_snapshot, files]),
    case!("snapshots", a_sleeping_one_is_not_saved, needs [snapshot_files, template_snapshot, pause]),
    case!("snapshots", one_that_is_not_there_is_not_saved, needs [snapshot_files, template_snapshot]),
    case!("snapshots", too_large_ones_are_refused, needs [snapshot_files, template_snapshot, files]),
    case!(
        "snapshots",
        limits_are_those_of_the_new_one,
        needs [snapshot_files, template_snapshot, files],
        limit Disk
    ),
];

async fn save(t: &Trial<'_>, id: &SandboxId) -> Verdict<SnapshotId> {
    let options = SnapshotOptions::files();
    t.provider.snapshot(&t.cx, id, options).await?;
    Ok(options.id)
}

fn like(t: &Trial<'_>, snapshot: SnapshotId) -> SandboxSpec {
    SandboxSpec { template: Template::Snapshot(snapshot), ..t.spec() }
}

async fn start(t: &Trial<'_>, spec: &SandboxSpec) -> crate::Result<Sandbox> {
    t.provider.create(&t.cx, spec, CreateOptions { id: t.id(), ..CreateOptions::default() }).await
}

async fn files_come_back_as_they_were(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "kept", "then").await?;
    t.write(&id, "/home/user/deep/er", "home").await?;
    let saved = save(t, &id).await?;
    t.write(&id, "kept", "now").await?;
    t.write(&id, "later", "no").await?;
    t.provider.destroy(&t.cx, &id).await?;
    let spec = like(t, saved);
    let (one, other) = (t.sandbox_of(&spec).await?, t.sandbox_of(&spec).await?);
    t.write(&one, "kept", "changed").await?;
    same_bytes("the saved file", t.read(&other, "kept").await?, b"then")?;
    same_bytes("the file at home", t.read(&other, "/home/user/deep/er").await?, b"home")?;
    fails("reading what came later", t.read(&other, "later").await, ErrorKind::NotFound)?;
    Ok(t.provider.delete_snapshot(&t.cx, &saved).await?)
}

async fn unknown_ones_are_not_found(t: &Trial<'_>) -> Verdict {
    let made = start(t, &like(t, SnapshotId::random())).await;
    fails("starting from it", made, ErrorKind::NotFound)
}

async fn removed_ones_are_gone(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "kept", "then").await?;
    let saved = save(t, &id).await?;
    let started = t.sandbox_of(&like(t, saved)).await?;
    t.provider.delete_snapshot(&t.cx, &saved).await?;
    t.provider.delete_snapshot(&t.cx, &saved).await?;
    fails("starting from a removed one", start(t, &like(t, saved)).await, ErrorKind::NotFound)?;
    same_bytes("what had started from it", t.read(&started, "kept").await?, b"then")
}

async fn what_runs_goes_on(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let echo = ExecRequest { stdin: Stdin::Stream, ..ExecRequest::program(["/bin/cat"]) };
    let mut exec = t.provider.exec(&t.cx, &id, echo).await?;
    exec.input.write("one").await?;
    same_bytes("its output", read_output(&mut exec, 3).await?, b"one")?;
    let saved = save(t, &id).await?;
    exec.input.write("two").await?;
    same_bytes("its output after it was saved", read_output(&mut exec, 3).await?, b"two")?;
    t.sandbox_of(&like(t, saved)).await?;
    Ok(t.provider.delete_snapshot(&t.cx, &saved).await?)
}

async fn an_id_is_taken_once(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "kept", "then").await?;
    let options = SnapshotOptions::files();
    t.provider.snapshot(&t.cx, &id, options).await?;
    t.write(&id, "kept", "now").await?;
    let again = t.provider.snapshot(&t.cx, &id, options).await;
    fails("saving under the same id", again, ErrorKind::Conflict)?;
    let started = t.sandbox_of(&like(t, options.id)).await?;
    same_bytes("what was saved first", t.read(&started, "kept").await?, b"then")?;
    Ok(t.provider.delete_snapshot(&t.cx, &options.id).await?)
}

async fn a_sleeping_one_is_not_saved(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.provider.transition(&t.cx, &id, Transition::Pause).await?;
    let saved = t.provider.snapshot(&t.cx, &id, SnapshotOptions::files()).await;
    fails("saving one that sleeps", saved, ErrorKind::Conflict)
}

async fn one_that_is_not_there_is_not_saved(t: &Trial<'_>) -> Verdict {
    let saved = t.provider.snapshot(&t.cx, &SandboxId::random(), SnapshotOptions::files()).await;
    fails("saving what is not there", saved, ErrorKind::NotFound)
}

async fn too_large_ones_are_refused(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "large", vec![7; 256 << 10]).await?;
    let options = SnapshotOptions::files();
    let told = t.provider.snapshot(&t.cx, &id, options).await?.size.is_some();
    t.provider.delete_snapshot(&t.cx, &options.id).await?;
    if !told {
        return Err(Failure::Skipped("it does not tell how large they are".to_owned()));
    }
    let bounded = SnapshotOptions { most: Some(ByteSize::kib(64)), ..SnapshotOptions::files() };
    let saved = t.provider.snapshot(&t.cx, &id, bounded).await;
    fails("saving more than it may", saved, ErrorKind::Quota)?;
    fails("starting from what was refused", start(t, &like(t, bounded.id)).await, ErrorKind::NotFound)
}

async fn limits_are_those_of_the_new_one(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "large", vec![7; 2 << 20]).await?;
    let saved = save(t, &id).await?;
    let mut small = like(t, saved);
    small.limits.disk = ByteSize::mib(1);
    fails("starting with less room than it takes", start(t, &small).await, ErrorKind::FileSystem)?;
    let started = t.sandbox_of(&like(t, saved)).await?;
    same_bytes("the file", t.read(&started, "large").await?, vec![7; 2 << 20])?;
    Ok(t.provider.delete_snapshot(&t.cx, &saved).await?)
}
