//! Databases of every earlier version, with what a program of that day left in them, brought to the newest.

use std::fs;

use sandstorm_store::testing::{VERSIONS, look, meddle, open_at_version};
use sandstorm_store::{
    Begun, LedgerQuery, LedgerSum, Left, SandboxFilter, SnapshotFilter, Store, StoreError,
};
use sandstorm_types::{ByteSize, ContextId, ExecId, RunId, SandboxId, State, TenantId, Usd};
use serde_json::json;

use crate::support::{Case, at, audit, config, on_both, server};

const FIXTURES: [&str; 10] = [
    include_str!("fixtures/v1.sql"),
    include_str!("fixtures/v2.sql"),
    include_str!("fixtures/v3.sql"),
    include_str!("fixtures/v4.sql"),
    include_str!("fixtures/v5.sql"),
    include_str!("fixtures/v6.sql"),
    include_str!("fixtures/v7.sql"),
    include_str!("fixtures/v8.sql"),
    include_str!("fixtures/v9.sql"),
    include_str!("fixtures/v10.sql"),
];

on_both!(a_newer_database_is_refused, a_changed_migration_is_refused, opening_twice_changes_nothing);

#[tokio::test]
async fn every_version_reaches_the_newest_on_sqlite() {
    for version in VERSIONS {
        from_version(version, None).await;
    }
}

#[tokio::test]
async fn every_version_reaches_the_newest_on_postgres() {
    let Some(server) = server() else { return };
    for version in VERSIONS {
        from_version(version, Some(server.database().await.unwrap())).await;
    }
}

async fn from_version(version: i64, url: Option<String>) {
    let (config, _directory) = config(url);
    let old = open_at_version(&config, version).await.unwrap();
    let known = usize::try_from(version).unwrap();
    for statement in FIXTURES[..known].iter().flat_map(|fixture| fixture.split(";\n")) {
        if !statement.trim().is_empty() {
            meddle(&old, statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    }
    fs::write(&config.audit_anchor, include_str!("fixtures/v1.anchor")).unwrap();
    drop(old);

    let store = Store::open(&config).await.unwrap();
    assert_eq!(
        look(&store, "SELECT CAST(MAX(version) AS TEXT) AS value FROM schema_versions").await.unwrap(),
        ["10"]
    );
    check_version_1(&store).await;
    if version >= 2 {
        check_version_2(&store).await;
    } else {
        assert_eq!(store.last_event(tenant()).await.unwrap(), 0);
    }
    if version >= 3 {
        check_version_3(&store).await;
        let cached = store.usage(tenant(), 19675, 19675).await.unwrap()[0].used.cached_runs;
        assert_eq!(cached, if version >= 4 { 6 } else { 0 });
    }
    if version >= 9 {
        check_version_9(&store).await;
    }
    let everything = LedgerQuery::of(Some(tenant()), at(0), at(i64::MAX));
    let cost = store.ledger_sums(&everything).await.unwrap();
    let expected = if version >= 6 { vec![Usd::picos(10_500_000)] } else { Vec::new() };
    assert_eq!(cost.iter().map(LedgerSum::cost).collect::<Vec<_>>(), expected);
    let kept = store
        .list_snapshots(tenant(), &SnapshotFilter { limit: 9, ..SnapshotFilter::default() })
        .await
        .unwrap();
    let kept: Vec<_> = kept.iter().map(|row| (row.sandbox, row.name.as_deref(), row.size_bytes)).collect();
    assert_eq!(kept, if version >= 8 { vec![(sandbox(), Some("golden"), 4096)] } else { Vec::new() });
    let lease = store.own_lease().await.unwrap();
    assert!(lease.is_none(), "another server's lease is not this one's");
    let others = store.other_leases().await.unwrap();
    let others: Vec<_> = others.iter().map(|lease| (&*lease.node, lease.beats)).collect();
    assert_eq!(others, if version >= 10 { vec![("node_elsewhere", 7)] } else { Vec::new() });
    // What was there before was measured where it was.
    let estimated: u64 = cost.iter().map(|sum| sum.estimated).sum();
    assert_eq!(estimated, u64::from(version >= 7));
    // The chain that was begun then goes on.
    store.record_audit(&audit("after.migration")).await.unwrap();
    let report = store.verify_audit(&config.audit_key, &config.audit_anchor).await.unwrap();
    assert_eq!((report.tampering, report.records), (vec![], 3), "from version {version}");
    let next = store.append_event(tenant(), None, at(1), &json!({})).await.unwrap();
    assert_eq!(next, if version >= 2 { 3 } else { 1 }, "its events are numbered on");
}

fn tenant() -> TenantId {
    "ten_bbbbbbbbbbbbbbbbbbbbbbbbba".parse().unwrap()
}

fn sandbox() -> SandboxId {
    "sbx_bbbbbbbbbbbbbbbbbbbbbbbbba".parse().unwrap()
}

fn exec() -> ExecId {
    "exec_bbbbbbbbbbbbbbbbbbbbbbbbba".parse().unwrap()
}

fn context() -> ContextId {
    "ctx_bbbbbbbbbbbbbbbbbbbbbbbbba".parse().unwrap()
}

async fn check_version_1(store: &Store) {
    assert_eq!(store.tenants().await.unwrap().len(), 2);
    let row = store.tenant(tenant()).await.unwrap().unwrap();
    assert_eq!((&*row.name, row.quota), ("Zwölf", Some(json!({"sandboxes": 12}))));
    let key = store.key_by_hash(&[0, 255, 16]).await.unwrap().unwrap();
    assert_eq!(
        (&*key.id, key.tenant, key.expires_at),
        ("abcdefghijkl", tenant(), Some(at(1_800_000_000_000)))
    );
    let row = store.sandbox(tenant(), sandbox()).await.unwrap().unwrap();
    assert_eq!((&row.state, row.spec.limits.memory, row.revision), (&State::Ready, ByteSize::mib(64), 2));
    assert_eq!(store.living_sandboxes().await.unwrap(), std::slice::from_ref(&row));
    let filter =
        SandboxFilter { labels: row.spec.labels, include_ended: true, limit: 9, ..SandboxFilter::default() };
    assert_eq!(store.list_sandboxes(tenant(), &filter).await.unwrap().len(), 1);
    let all = SandboxFilter { include_ended: true, limit: 9, ..SandboxFilter::default() };
    let failed = store.list_sandboxes(tenant(), &all).await.unwrap().remove(0);
    assert_eq!(failed.state, State::Failed { reason: "it's gone".into() });
    assert_eq!(store.transitions(tenant(), sandbox()).await.unwrap()[1].from, Some(State::Creating));
    let row = store.exec(tenant(), sandbox(), exec()).await.unwrap().unwrap();
    assert_eq!((row.background, row.tty, row.status.as_deref()), (true, false, Some("ok")));
    assert_eq!(store.audit(None, 1, 9).await.unwrap()[0].audit.detail, Some(json!({"template": "host"})));
}

async fn check_version_2(store: &Store) {
    assert_eq!(store.exec(tenant(), sandbox(), exec()).await.unwrap().unwrap().context, Some(context()));
    let row = store.context(tenant(), sandbox(), context()).await.unwrap().unwrap();
    assert_eq!((row.position, row.next_cell, row.exec, row.env), (42, 3, exec(), json!({"A": "1"})));
    let run: RunId = "run_bbbbbbbbbbbbbbbbbbbbbbbbba".parse().unwrap();
    assert_eq!(store.run(tenant(), run).await.unwrap().unwrap().result, Some(json!({"stdout": "hi"})));
    let events = store.events_after(tenant(), None, 0, 9).await.unwrap();
    assert_eq!(
        events.iter().map(|event| (event.seq, event.sandbox)).collect::<Vec<_>>(),
        [(1, Some(sandbox())), (2, None)]
    );
    let left = Left { object: None, note: None, begun_at: at(1_700_000_000_013) };
    assert_eq!(claim(store, "k").await, Begun::Left(left), "whoever began it is not known to live");
}

async fn check_version_9(store: &Store) {
    let (object, note) = (Some("what it makes".to_owned()), Some("a note".to_owned()));
    let left = Left { object, note, begun_at: at(1_700_000_000_014) };
    assert_eq!(claim(store, "claimed").await, Begun::Left(left));
}

async fn claim(store: &Store, key: &str) -> Begun {
    let at = at(1_700_000_000_015);
    store.begin_idempotent(tenant(), "POST /v1/runs", key, b"a", "x", at).await.unwrap()
}

async fn check_version_3(store: &Store) {
    let row = store.exec(tenant(), sandbox(), exec()).await.unwrap().unwrap();
    assert_eq!(row.detail, Some(json!({"cwd": "/"})));
    assert_eq!(store.noted_files(tenant(), sandbox()).await.unwrap()[0].size, 5);
    let samples = store.samples(tenant(), sandbox(), at(0), at(i64::MAX), 9).await.unwrap();
    assert_eq!((samples[0].cpu_ms, samples[0].inodes), (1, 6));
    assert_eq!(store.usage(tenant(), 19_675, 19_675).await.unwrap()[0].used.memory_mib_seconds, 5);
    assert_eq!(store.name(tenant(), "session", "mine").await.unwrap(), Some(sandbox()));
}

async fn a_newer_database_is_refused(case: Case) {
    meddle(&case.store, "INSERT INTO schema_versions VALUES (11, 'x', 'x', 0)").await.unwrap();
    meddle(&case.store, "INSERT INTO schema_versions VALUES (99, 'x', 'x', 0)").await.unwrap();
    let error = Store::open(&case.config).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 10 }), "{error:?}");
    let text = "the database has version 99, this program knows versions up to 10: use the newer program";
    assert_eq!(error.to_string(), text);
}

async fn a_changed_migration_is_refused(case: Case) {
    for statement in [
        "UPDATE schema_versions SET checksum = 'x' WHERE version = 2",
        "DELETE FROM schema_versions WHERE version = 2",
    ] {
        meddle(&case.store, statement).await.unwrap();
        let error = Store::open(&case.config).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
}

async fn opening_twice_changes_nothing(case: Case) {
    let versions = "SELECT CAST(applied_at AS TEXT) AS value FROM schema_versions ORDER BY version";
    let before = look(&case.store, versions).await.unwrap();
    assert_eq!(before.len(), 10);
    assert_eq!(look(&case.reopen().await, versions).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_migrate_once() {
    let mut urls = vec![None];
    if let Some(server) = server() {
        urls.push(Some(server.database().await.unwrap()));
    }
    for url in urls {
        let (config, _directory) = config(url);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let config = config.clone();
            tasks.spawn(async move { Store::open(&config).await.unwrap() });
        }
        let stores = tasks.join_all().await;
        let versions = "SELECT name AS value FROM schema_versions ORDER BY version";
        let names = look(&stores[0], versions).await.unwrap();
        assert_eq!(
            names,
            [
                "0001_core",
                "0002_work",
                "0003_tracking",
                "0004_lists",
                "0005_fewer_pages",
                "0006_ledger",
                "0007_metered",
                "0008_snapshots",
                "0009_claims",
                "0010_leases"
            ]
        );
    }
}

/// Databases out there remember these. A test that fails here means that a released migration was edited: put it back
/// and write another one.
#[tokio::test]
async fn released_migrations_are_frozen() {
    let case = Case::sqlite().await;
    let checksums = "SELECT checksum AS value FROM schema_versions ORDER BY version";
    let mut found = look(&case.store, checksums).await.unwrap();
    if let Some(case) = Case::postgres().await {
        found.extend(look(&case.store, checksums).await.unwrap());
    }
    let frozen = include_str!("fixtures/checksums.txt").lines().collect::<Vec<_>>();
    assert!(found.iter().zip(&frozen).all(|(found, frozen)| found == frozen), "{found:#?}");
    assert_eq!(frozen.len(), 20);
}
