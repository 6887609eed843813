//! Files, samples, use by day.

use sandstorm_store::{SampleRow, UsageDelta, UsageRow};
use sandstorm_types::{SandboxId, TenantId};

use crate::support::{Case, at, on_both};

on_both!(files_are_noted_once_each, samples_come_back_in_order, use_adds_up_by_day);

async fn files_are_noted_once_each(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    for (path, size) in [("/workspace/b", 1), ("/workspace/a", 2), ("/workspace/b", 3)] {
        case.store.note_file(TenantId::LOCAL, sandbox.id, path, size, at(size as i64)).await.unwrap();
    }
    let files = case.store.noted_files(TenantId::LOCAL, sandbox.id).await.unwrap();
    let files: Vec<_> = files.iter().map(|file| (&*file.path, file.size, file.at)).collect();
    assert_eq!(files, [("/workspace/a", 2, at(2)), ("/workspace/b", 3, at(3))]);
    assert!(case.store.noted_files(TenantId::random(), sandbox.id).await.unwrap().is_empty());
}

async fn samples_come_back_in_order(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let sample = |sandbox: SandboxId, millis: i64| SampleRow {
        sandbox,
        at: at(millis),
        cpu_ms: 5,
        memory_bytes: u64::MAX,
        peak_memory_bytes: 7,
        processes: 2,
        disk_bytes: 9,
        inodes: 3,
    };
    let rows = [
        sample(sandbox.id, 30),
        sample(sandbox.id, 10),
        sample(SandboxId::random(), 10),
        sample(sandbox.id, 20),
    ];
    case.store.add_samples(&rows).await.unwrap();
    case.store.add_samples(&rows[..1]).await.unwrap();
    let samples = |tenant, from, to, limit| {
        let store = case.store.clone();
        async move {
            let rows = store.samples(tenant, sandbox.id, at(from), at(to), limit).await.unwrap();
            rows.iter().map(|row| row.at.millis()).collect::<Vec<_>>()
        }
    };
    assert_eq!(samples(TenantId::LOCAL, 0, 100, 10).await, [10, 20, 30]);
    assert_eq!(samples(TenantId::LOCAL, 10, 30, 10).await, [10, 20]);
    assert_eq!(samples(TenantId::LOCAL, 0, 100, 1).await, [10]);
    assert!(samples(TenantId::random(), 0, 100, 10).await.is_empty());
    let row = case.store.samples(TenantId::LOCAL, sandbox.id, at(0), at(100), 1).await.unwrap()[0];
    assert_eq!((row.memory_bytes, row.inodes), (i64::MAX as u64, 3));
}

async fn use_adds_up_by_day(case: Case) {
    let delta = UsageDelta {
        runs: 1,
        cached_runs: 6,
        execs: 2,
        sandboxes_created: 3,
        cpu_ms: 4,
        memory_mib_seconds: 5,
    };
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..20 {
        let store = case.store.clone();
        tasks
            .spawn(async move { store.add_usage(TenantId::LOCAL, 20_000 + index % 2, delta).await.unwrap() });
    }
    tasks.join_all().await;
    let used = UsageDelta {
        runs: 10,
        cached_runs: 60,
        execs: 20,
        sandboxes_created: 30,
        cpu_ms: 40,
        memory_mib_seconds: 50,
    };
    let rows = case.store.usage(TenantId::LOCAL, 20_000, 20_001).await.unwrap();
    assert_eq!(rows, [UsageRow { day: 20_000, used }, UsageRow { day: 20_001, used }]);
    assert_eq!(case.store.usage(TenantId::LOCAL, 20_001, 30_000).await.unwrap().len(), 1);
    assert!(case.store.usage(TenantId::random(), 0, 30_000).await.unwrap().is_empty());
}
