//! Sandboxes saved there, and what the service may say of them.

use bytes::Bytes;
use sandstorm_provider::{CreateOptions, Provider, ProviderExt, SnapshotKind, SnapshotOptions};
use sandstorm_types::{ErrorKind, Retry, SandboxSpec, SnapshotId, Template};

use super::world::{adapter, behind_proxy, config, world};
use crate::proxy::{Fault, answer};
use crate::world::{cx, listed, sandbox, spec};

fn from(id: SnapshotId) -> SandboxSpec {
    SandboxSpec { template: Template::Snapshot(id), ..spec() }
}

fn saves(line: &str) -> bool {
    line.starts_with("POST /sandboxes/") && line.contains("/snapshots ")
}

fn looks(line: &str) -> bool {
    line.starts_with("GET /snapshots?")
}

fn removes(line: &str) -> bool {
    line.starts_with("DELETE /templates/")
}

#[tokio::test]
async fn the_next_process_finds_what_this_one_saved() {
    let world = world().await;
    let first = adapter(&world).await;
    let id = sandbox(&first).await;
    let path = "kept".parse().unwrap();
    first.write_bytes(&cx(), &id, &path, Bytes::from_static(b"then")).await.unwrap();
    let options = SnapshotOptions::files();
    first.snapshot(&cx(), &id, options).await.unwrap();
    first.close().await;
    let second = adapter(&world).await;
    let made = second.create(&cx(), &from(options.id), CreateOptions::default()).await.unwrap();
    assert_eq!(made.template, Template::Snapshot(options.id));
    assert_eq!(second.read_bytes(&cx(), &made.id, &path, 100).await.unwrap(), "then");
    let third = adapter(&world).await;
    assert_eq!(third.get(&cx(), &made.id).await.unwrap().template, Template::Snapshot(options.id));
    third.delete_snapshot(&cx(), &options.id).await.unwrap();
    let error = second.create(&cx(), &from(options.id), CreateOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::NotFound, true));
}

#[tokio::test]
async fn memory_is_not_saved() {
    let world = world().await;
    let adapter = adapter(&world).await;
    let id = sandbox(&adapter).await;
    let options = SnapshotOptions { kind: SnapshotKind::Memory, ..SnapshotOptions::files() };
    let error = adapter.snapshot(&cx(), &id, options).await.unwrap_err();
    assert_eq!(error.reasons()[0].feature, "snapshot_memory");
}

#[tokio::test]
async fn another_installation_does_not_see_ours() {
    let world = world().await;
    let ours = adapter(&world).await;
    let id = sandbox(&ours).await;
    let options = SnapshotOptions::files();
    ours.snapshot(&cx(), &id, options).await.unwrap();
    let mut theirs = config(&world, world.address);
    theirs.owner = "there".parse().unwrap();
    let theirs = sandstorm_providers::e2b::E2bProvider::connect(theirs).await.unwrap();
    let error = theirs.create(&cx(), &from(options.id), CreateOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    theirs.delete_snapshot(&cx(), &options.id).await.unwrap();
    ours.create(&cx(), &from(options.id), CreateOptions::default()).await.unwrap();
}

#[tokio::test]
async fn garbage_is_no_snapshot() {
    let (world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    for body in [
        "<html></html>",
        "{}",
        r#"{"snapshotID":"../../x","names":[]}"#,
        r#"{"snapshotID":"other:default","names":[]}"#,
    ] {
        let garbage = answer("201 Created", "content-type: application/json\r\n", body);
        proxy.set(move |line| if saves(line) { garbage.clone() } else { Fault::Pass });
        let error = adapter.snapshot(&cx(), &id, SnapshotOptions::files()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider, "{body}: {error}");
    }
    for body in ["<html></html>", "{}", r#"[{"names":[]}]"#, r#"[{"snapshotID":"a b","names":["x"]}]"#] {
        let garbage = answer("200 OK", "content-type: application/json\r\n", body);
        proxy.set(move |line| if looks(line) { garbage.clone() } else { Fault::Pass });
        let made = adapter.create(&cx(), &from(SnapshotId::random()), CreateOptions::default()).await;
        assert_eq!(made.unwrap_err().kind(), ErrorKind::Provider, "{body}");
    }
    proxy.set(|_| Fault::Pass);
    assert_eq!((listed(&adapter).await.len(), world.alive().await), (1, 1));
}

#[tokio::test]
async fn a_lost_answer_leaves_what_can_be_removed() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let options = SnapshotOptions::files();
    proxy.set(|line| if saves(line) { Fault::LoseAnswer } else { Fault::Pass });
    adapter.snapshot(&cx(), &id, options).await.unwrap_err();
    proxy.set(|_| Fault::Pass);
    let again = adapter.snapshot(&cx(), &id, options).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict, "it is there, though nobody heard of it");
    adapter.delete_snapshot(&cx(), &options.id).await.unwrap();
    adapter.snapshot(&cx(), &id, options).await.unwrap();
    adapter.delete_snapshot(&cx(), &options.id).await.unwrap();
}

#[tokio::test]
async fn a_removal_that_did_not_happen_is_seen() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let options = SnapshotOptions::files();
    adapter.snapshot(&cx(), &id, options).await.unwrap();
    let lie = answer("204 No Content", "", "");
    proxy.set(move |line| if removes(line) { lie.clone() } else { Fault::Pass });
    let error = adapter.delete_snapshot(&cx(), &options.id).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Here), "{error}");
    proxy.set(|_| Fault::Pass);
    adapter.delete_snapshot(&cx(), &options.id).await.unwrap();
}
