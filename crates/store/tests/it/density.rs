//! Ten thousand known sandboxes: what a page, a look and a step cost then.

use std::time::Instant;

use sandstorm_store::testing::{meddle, plan};
use sandstorm_store::{SandboxFilter, SandboxRow};
use sandstorm_types::TenantId;

use crate::support::{Case, at, audit, on_both, run, sandbox};

const KNOWN: i64 = 10_000;
const ALIVE: i64 = 100;

on_both!(pages_touch_what_they_show);

/// The living ones are the oldest: the worst case for a list of those that live, newest first.
async fn fill(case: &Case) -> SandboxRow {
    let mut labelled = sandbox(TenantId::LOCAL, 1);
    let labels = std::collections::BTreeMap::from([("team".to_owned(), "one".to_owned())]);
    labelled.spec.labels = labels.try_into().unwrap();
    case.store.insert_sandbox(&labelled, None, &audit("sandbox.create")).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for first in (2..=KNOWN).step_by(200) {
        let store = case.store.clone();
        tasks.spawn(async move {
            for created_at in first..(first + 200).min(KNOWN + 1) {
                let row = sandbox(TenantId::LOCAL, created_at);
                store.insert_sandbox(&row, None, &audit("sandbox.create")).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let end =
        format!("UPDATE sandboxes SET state = 'terminated', ended_at = 20000 WHERE created_at > {ALIVE}");
    assert_eq!(meddle(&case.store, &end).await.unwrap(), u64::try_from(KNOWN - ALIVE).unwrap());
    labelled
}

#[expect(clippy::print_stdout, reason = "times are for people, and no promise")]
async fn pages_touch_what_they_show(case: Case) {
    let row = fill(&case).await;
    let tenant = TenantId::LOCAL;
    let page = SandboxFilter { limit: 51, ..SandboxFilter::default() };
    for (name, filter) in [
        ("living", page.clone()),
        ("all", SandboxFilter { include_ended: true, ..page.clone() }),
        (
            "the next page",
            SandboxFilter {
                include_ended: true,
                before: Some((at(5000), sandbox(tenant, 1).id)),
                ..page.clone()
            },
        ),
        ("labelled", SandboxFilter { labels: row.spec.labels.clone(), ..page.clone() }),
    ] {
        let began = Instant::now();
        let rows = case.store.list_sandboxes(tenant, &filter).await.unwrap();
        println!("{name}: {} of {KNOWN} in {:?}", rows.len(), began.elapsed());
        assert_eq!(rows.len(), if name == "labelled" { 1 } else { 51 });
        assert!(rows.is_sorted_by(|newer, older| newer.created_at >= older.created_at));
    }
    let began = Instant::now();
    assert!(case.store.sandbox(tenant, row.id).await.unwrap().is_some());
    println!("one: {:?}", began.elapsed());
    let new = run(tenant, 1);
    case.store.insert_run(&new, &[], &audit("run.create")).await.unwrap();
    if !case.is_sqlite() {
        return;
    }
    // Each list comes from an index in its order: no sorting, no look at all rows.
    for (query, index) in [
        (
            "SELECT * FROM sandboxes WHERE tenant = 'x' AND ended_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 5",
            "sandboxes_living_by_age",
        ),
        (
            "SELECT * FROM sandboxes WHERE tenant = 'x' AND (created_at, id) < (5, 'y')
                ORDER BY created_at DESC, id DESC LIMIT 5",
            "sandboxes_by_age",
        ),
        (
            "SELECT * FROM runs WHERE tenant = 'x' AND (created_at, id) < (5, 'y')
                ORDER BY created_at DESC, id DESC LIMIT 5",
            "runs_by_age",
        ),
        (
            "SELECT * FROM runs WHERE tenant = 'x' AND ended_at IS NULL AND (created_at, id) < (5, 'y')
                ORDER BY created_at DESC, id DESC LIMIT 5",
            "runs_unfinished",
        ),
        (
            "SELECT * FROM execs WHERE tenant = 'x' AND sandbox = 'y' AND ended_at IS NULL
                ORDER BY started_at DESC, id DESC LIMIT 5",
            "execs_running",
        ),
        (
            "SELECT * FROM execs WHERE tenant = 'x' AND sandbox = 'y' ORDER BY started_at DESC, id DESC LIMIT 5",
            "execs_by_sandbox",
        ),
        (
            "SELECT * FROM samples WHERE tenant = 'x' AND sandbox = 'y' AND at >= 1 AND at < 2 ORDER BY at LIMIT 5",
            "sqlite_autoindex_samples",
        ),
        (
            "SELECT * FROM events INDEXED BY events_by_sandbox
                WHERE tenant = 'x' AND seq > 4 AND sandbox = 'y' ORDER BY seq LIMIT 5",
            "events_by_sandbox (tenant=? AND sandbox=? AND seq>?)",
        ),
        (
            "SELECT * FROM audit INDEXED BY audit_by_tenant
                WHERE node = 'x' AND seq > 4 AND tenant = 'y' ORDER BY seq LIMIT 5",
            "audit_by_tenant (tenant=? AND node=? AND seq>?)",
        ),
        (
            // What is forgotten first.
            "SELECT id FROM runs WHERE tenant = 'x' AND created_at < 5 AND ended_at < 5 ORDER BY created_at LIMIT 5",
            "runs_by_age (tenant=? AND created_at<?)",
        ),
        (
            "SELECT COUNT(*), SUM(cpu_milli), SUM(memory_bytes) FROM sandboxes
                WHERE tenant = 'x' AND ended_at IS NULL",
            "COVERING INDEX sandboxes_living",
        ),
        (
            // Once for each run that takes a while.
            "UPDATE ledger SET wall_ms = 1 WHERE tenant = 'x' AND object = 'y' AND part = 0 AND ended_at IS NULL",
            "ledger_open (object=? AND tenant=?)",
        ),
    ] {
        let plan = plan(&case.store, query).await.unwrap();
        assert!(plan.contains(index) && plan.contains("SEARCH"), "{query}: {plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{query}: {plan}");
    }
}
