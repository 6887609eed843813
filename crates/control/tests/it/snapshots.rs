//! Sandboxes that are saved, and what is made from them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sandstorm_catalog::Catalog;
use sandstorm_control::server::{
    Caller, NewSandbox, NewSnapshot, Settings, SnapshotLimits, SnapshotQuery, SnapshotView,
};
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    CreateOptions, OpContext, Provider, ProviderExt, SnapshotKind, SnapshotOptions, Tasks,
};
use sandstorm_store::{Audit, Decision, SnapshotRoom, SnapshotRow, SnapshotState};
use sandstorm_types::{
    ErrorKind, GuestPath, Routing, SandboxId, SandboxSpec, SnapshotId, Template, TenantId, Timestamp,
};

use crate::world::{World, eventually, plain, settings};

fn kept() -> GuestPath {
    "kept".parse().unwrap()
}

fn from(snapshot: SnapshotId) -> NewSandbox {
    NewSandbox { template: Template::Snapshot(snapshot), ..plain() }
}

async fn sandbox(world: &World, caller: &Caller, content: &'static str) -> SandboxId {
    let id = world.control.create_sandbox(caller, plain()).await.unwrap().id;
    let cx = OpContext::new(caller.tenant());
    world.provider.write_bytes(&cx, &id, &kept(), Bytes::from_static(content.as_bytes())).await.unwrap();
    id
}

async fn content(world: &World, caller: &Caller, id: SandboxId) -> Bytes {
    world.provider.read_bytes(&OpContext::new(caller.tenant()), &id, &kept(), 1000).await.unwrap()
}

async fn save(world: &World, caller: &Caller, id: SandboxId, name: Option<&str>) -> SnapshotView {
    let new = NewSnapshot { name: name.map(str::to_owned) };
    world.control.create_snapshot(caller, id, new).await.unwrap()
}

async fn listed(world: &World, caller: &Caller, query: SnapshotQuery) -> Vec<SnapshotId> {
    let page = world.control.snapshots(caller, query).await.unwrap();
    page.items.into_iter().map(|view| view.id).collect()
}

#[tokio::test]
async fn one_is_made_found_started_from_and_removed() {
    let world = World::new().await;
    let caller = world.caller();
    let id = sandbox(&world, &caller, "then").await;
    let first = save(&world, &caller, id, Some("golden")).await;
    assert_eq!((first.sandbox, first.name.as_deref(), &*first.provider), (id, Some("golden"), "memory"));
    assert!(first.size.is_some() && first.left_out.is_empty());
    world.control.delete_sandbox(&caller, id).await.unwrap();
    let world = world.restarted().await;
    let new = world.control.create_sandbox(&caller, from(first.id)).await.unwrap();
    assert_eq!(new.spec.template, Template::Snapshot(first.id));
    assert_eq!(content(&world, &caller, new.id).await, "then");
    let second = save(&world, &caller, new.id, Some("golden")).await;
    assert_eq!(listed(&world, &caller, SnapshotQuery::default()).await, [second.id, first.id]);
    let named = SnapshotQuery { name: Some("golden".to_owned()), ..SnapshotQuery::default() };
    assert_eq!(listed(&world, &caller, named).await, [second.id]);
    let of_new = SnapshotQuery { sandbox: Some(new.id), ..SnapshotQuery::default() };
    assert_eq!(listed(&world, &caller, of_new).await, [second.id]);
    let one = SnapshotQuery { limit: Some(1), ..SnapshotQuery::default() };
    let page = world.control.snapshots(&caller, one.clone()).await.unwrap();
    let rest = SnapshotQuery { cursor: page.next_cursor, ..one };
    assert_eq!(listed(&world, &caller, rest).await, [first.id]);
    world.control.delete_snapshot(&caller, first.id).await.unwrap();
    for error in [
        world.control.delete_snapshot(&caller, first.id).await.unwrap_err(),
        world.control.snapshot(&caller, first.id).await.unwrap_err(),
        world.control.create_sandbox(&caller, from(first.id)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert_eq!(content(&world, &caller, new.id).await, "then", "what was made from it lives on");
}

#[tokio::test]
async fn another_tenants_is_not_found() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let id = sandbox(&world, &caller, "secret").await;
    let saved = save(&world, &caller, id, Some("golden")).await;
    for error in [
        world.control.snapshot(&stranger, saved.id).await.unwrap_err(),
        world.control.create_sandbox(&stranger, from(saved.id)).await.unwrap_err(),
        world.control.delete_snapshot(&stranger, saved.id).await.unwrap_err(),
        world.control.create_snapshot(&stranger, id, NewSnapshot::default()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert!(listed(&world, &stranger, SnapshotQuery::default()).await.is_empty());
    let theirs = sandbox(&world, &stranger, "theirs").await;
    let other = save(&world, &stranger, theirs, Some("golden")).await;
    assert_eq!(world.control.snapshot(&caller, saved.id).await.unwrap().name.as_deref(), Some("golden"));
    assert_eq!(listed(&world, &stranger, SnapshotQuery::default()).await, [other.id]);
}

#[tokio::test]
async fn what_may_be_kept_is_bounded_and_a_refusal_leaves_nothing() {
    let snapshots = SnapshotLimits { count: 2, bytes: 10 };
    let world = World::with(Settings { snapshots, ..settings() }).await;
    let caller = world.caller();
    let id = sandbox(&world, &caller, "7 bytes").await;
    let first = save(&world, &caller, id, None).await;
    let refused = world.control.create_snapshot(&caller, id, NewSnapshot::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Quota, "its 7 bytes do not fit: {refused}");
    let later = Timestamp::now().after(Duration::from_secs(1));
    assert!(world.store.unsettled_snapshots(later).await.unwrap().is_empty());
    world.control.delete_snapshot(&caller, first.id).await.unwrap();
    let empty = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    save(&world, &caller, empty, None).await;
    save(&world, &caller, empty, None).await;
    let refused = world.control.create_snapshot(&caller, empty, NewSnapshot::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Quota);
    for name in ["", "UPPER", "a b", "a/b", "a:b", &"x".repeat(129)] {
        let new = NewSnapshot { name: Some(name.to_owned()) };
        let error = world.control.create_snapshot(&caller, id, new).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name:?}");
    }
    world.control.pause_sandbox(&caller, id).await.unwrap();
    let asleep = world.control.create_snapshot(&caller, id, NewSnapshot::default()).await.unwrap_err();
    assert_eq!(asleep.kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn what_a_dead_server_was_at_is_removed() {
    let world = World::new().await;
    let caller = world.caller();
    let id = sandbox(&world, &caller, "half").await;
    let row = SnapshotRow {
        id: SnapshotId::random(),
        tenant: caller.tenant(),
        sandbox: id,
        name: None,
        provider: "memory".to_owned(),
        spec: SandboxSpec::default(),
        state: SnapshotState::Making,
        size_bytes: 0,
        created_at: Timestamp::now().before(Duration::from_secs(3600)),
        key: "<test>".to_owned(),
        charged_until: Timestamp::now().before(Duration::from_secs(3600)),
    };
    let audit = Audit {
        tenant: TenantId::LOCAL,
        principal: "<test>".to_owned(),
        action: "snapshot.create".to_owned(),
        object: row.id.to_string(),
        decision: Decision::Allowed,
        request_id: String::new(),
        detail: None,
    };
    let room = SnapshotRoom { count: 9, bytes: 1000 };
    world.store.insert_snapshot(&row, room, &audit).await.unwrap();
    let young = SnapshotRow { id: SnapshotId::random(), created_at: Timestamp::now(), ..row.clone() };
    world.store.insert_snapshot(&young, room, &audit).await.unwrap();
    let cx = OpContext::new(caller.tenant());
    let options = SnapshotOptions { id: row.id, kind: SnapshotKind::Files, most: None };
    world.provider.snapshot(&cx, &id, options).await.unwrap();
    let error = world.control.create_sandbox(&caller, from(row.id)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "it never became ready");
    let error = world.control.delete_snapshot(&caller, young.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "somebody may be at it");
    let world = world.crashed().await;
    let later = Timestamp::now().after(Duration::from_secs(60));
    eventually("it is forgotten", async || world.store.unsettled_snapshots(later).await.unwrap().len() == 1)
        .await;
    let spec = SandboxSpec { template: Template::Snapshot(row.id), ..SandboxSpec::default() };
    let spec = SandboxSpec { enforcement: sandstorm_types::Enforcement::BestEffort, ..spec };
    let made = world.provider.create(&cx, &spec, CreateOptions::default()).await;
    assert_eq!(made.unwrap_err().kind(), ErrorKind::NotFound, "its keeper has removed it");
}

#[tokio::test]
async fn among_several_places_it_is_started_from_where_it_is_kept() {
    let json = r#"{"one": {"like": "local", "price": {"model": "owned", "vcpu_hour": 1}},
        "two": {"like": "local", "price": {"model": "owned", "vcpu_hour": 2}}}"#;
    let catalog = Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap();
    let member = |name: &str| {
        let provider: Arc<dyn Provider> = Arc::new(MemoryProvider::named(name));
        Member::new(provider, Arc::new(catalog.get(name).unwrap().clone()))
    };
    let members = vec![member("one"), member("two")];
    let fleet = Fleet::new(members, FleetSettings::default(), 7, Tasks::default());
    let world = World::among(fleet, settings()).await;
    let caller = world.caller();
    let routed = |routing: Routing| Some(Box::new(routing));
    // The one that nobody would choose by its price.
    let there = Routing { order: vec!["two".to_owned()], ..Routing::default() };
    let new = NewSandbox { routing: routed(there), ..plain() };
    let id = world.control.create_sandbox(&caller, new).await.unwrap().id;
    let cx = OpContext::new(caller.tenant());
    world.provider.write_bytes(&cx, &id, &kept(), Bytes::from_static(b"there")).await.unwrap();
    let saved = save(&world, &caller, id, None).await;
    assert_eq!(saved.provider, "two");
    let made = world.control.create_sandbox(&caller, from(saved.id)).await.unwrap();
    assert_eq!(made.provider, "two");
    assert_eq!(content(&world, &caller, made.id).await, "there");
    let elsewhere = Routing { exclude_providers: vec!["two".to_owned()], ..Routing::default() };
    let refused = NewSandbox { routing: routed(elsewhere), ..from(saved.id) };
    let error = world.control.create_sandbox(&caller, refused).await.unwrap_err();
    let said = format!("{error} {:?}", error.reasons());
    assert!(said.contains("kept by another provider"), "{said}");
    world.control.delete_snapshot(&caller, saved.id).await.unwrap();
    let error = world.control.create_sandbox(&caller, from(saved.id)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
