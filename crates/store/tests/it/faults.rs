//! What the world does to a database.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sandstorm_store::testing::{anchored, hold_writer};
use sandstorm_store::{AuditKey, Durability, LedgerQuery, Store, StoreConfig, StoreError};
use sandstorm_types::{RunId, TenantId};
use serde_json::json;

use crate::support::{Case, at, audit, config, costed, ended, on_both, run, server};

on_both!(what_was_acknowledged_survives_kill_9);

/// Not a test by itself: what the next one starts and kills. Prints the id of each run once the store has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_inserts_until_it_is_killed() {
    let Some(directory) = std::env::var_os("STORE_TEST_CHILD") else { return };
    let url = std::env::var_os("STORE_TEST_CHILD_URL").map(|url| url.into_string().unwrap());
    let mut config = StoreConfig::in_directory(Path::new(&directory), url, AuditKey::from_bytes([7; 32]));
    config.checkpoint_every = 10;
    if std::env::var_os("STORE_TEST_CHILD_FULL").is_some() {
        config.durability = Durability::Full;
    }
    let store = Store::open(&config).await.unwrap();
    store.catch_up().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            loop {
                let row = costed(TenantId::LOCAL, 1);
                let id = row.id;
                let announce = || store.announce_run(&row, &[json!("start")], &audit("run.create"));
                match (number % 2 == 0).then(announce).flatten() {
                    Some(announced) => {
                        // Told of before it is recorded, where that is safe.
                        if let Some((announced, whole)) = store.record_run_soon(announced, ended(row)) {
                            store.whole_run(&whole).await.unwrap();
                            announced.recorded();
                        }
                    }
                    None => {
                        store.insert_run(&row, &[json!("start")], &audit("run.create")).await.unwrap();
                    }
                }
                println!("\n{id}");
            }
        });
    }
    tasks.join_all().await;
}

async fn what_was_acknowledged_survives_kill_9(case: Case) {
    let mut acknowledged: Vec<RunId> = Vec::new();
    for round in 1..=3 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "faults::child_that_inserts_until_it_is_killed", "--nocapture"]);
        command.env("STORE_TEST_CHILD", case.directory.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(url) = &case.config.url {
            command.env("STORE_TEST_CHILD_URL", url);
        }
        if round == 3 {
            command.env("STORE_TEST_CHILD_FULL", "1");
        }
        let mut child = command.spawn().unwrap();
        let mut seen = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Ok(id) = line.unwrap().parse() {
                acknowledged.push(id);
                seen += 1;
            }
            if seen == 40 * round {
                // SIGKILL. What it still managed to print is read on.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= 40 * round, "the child ended early");
    }
    let store = case.reopen().await;
    store.catch_up().await.unwrap();
    for id in &acknowledged {
        assert!(store.run(TenantId::LOCAL, *id).await.unwrap().is_some(), "{id} is missing");
    }
    let events = store.last_event(TenantId::LOCAL).await.unwrap();
    let runs = store.list_runs(TenantId::LOCAL, false, None, 1_000_000).await.unwrap();
    let stored = u64::try_from(runs.len()).unwrap();
    let with_end = u64::try_from(runs.iter().filter(|run| run.ended_at.is_some()).count()).unwrap();
    assert_eq!(events, stored + 2 * with_end, "no run without its events");
    assert!(with_end > 0 && with_end < stored, "both ways were taken");
    assert!(stored >= u64::try_from(acknowledged.len()).unwrap());
    let all = LedgerQuery::of(Some(TenantId::LOCAL), at(0), at(i64::MAX));
    let costs = store.ledger_sums(&all).await.unwrap().remove(0);
    assert_eq!((costs.runs, costs.runs - costs.open), (stored, with_end), "no run without its cost");
    let report = store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!((report.tampering, report.records), (vec![], stored), "no run without its record");
}

/// A file system of 3 MiB, for as long as the value lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(&at).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(at));
        }
        assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "a file system cannot be mounted here");
        eprintln!("skipped: only root may mount a small file system");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing() {
    let (_, directory) = config(None);
    let Some(disk) = SmallDisk::mount(directory.path().join("disk")) else { return };
    let config = StoreConfig::in_directory(&disk.0, None, AuditKey::from_bytes([7; 32]));
    let store = Store::open(&config).await.unwrap();
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let mut stored = Vec::new();
    let error = loop {
        let mut row = run(TenantId::LOCAL, 1);
        row.result = Some(json!("x".repeat(8000)));
        match store.insert_run(&row, &[], &audit("run.create")).await {
            Ok(_) => stored.push(row.id),
            Err(error) => break error,
        }
        assert!(stored.len() < 10_000, "the disk does not fill up");
    };
    assert!(matches!(error, StoreError::Full { .. }) && error.is_transient(), "{error:?}");
    // Fail closed: no act without its record. What was there can still be read.
    assert_eq!(store.unfinished_runs().await.unwrap().len(), stored.len());
    assert_eq!(store.audit(None, 0, 10_000).await.unwrap().len(), stored.len());
    store.record_audit(&audit("still.full")).await.map(|()| "a small one may fit").ok();

    std::fs::remove_file(&ballast).unwrap();
    let row = run(TenantId::LOCAL, 2);
    store.insert_run(&row, &[], &audit("run.create")).await.expect("space again");
    let report = store.verify_audit(&config.audit_key, &config.audit_anchor).await.unwrap();
    assert_eq!(report.tampering, []);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_does_not_let_go_is_reported() {
    let case = Case::sqlite().await;
    let held = hold_writer(&case.config).await.unwrap();
    let began = Instant::now();
    let error = case.store.record_audit(&audit("act")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }) && error.is_transient(), "{error:?}");
    assert!(began.elapsed() >= Duration::from_secs(4), "it waits its turn first");
    case.store.audit(None, 0, 1).await.expect("readers do not wait for a writer");
    drop(held);
    case.store.record_audit(&audit("act")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_made_anew() {
    let Some(case) = Case::postgres().await else { return };
    let url = case.config.url.clone().unwrap();
    for index in 0..5 {
        case.store.append_event(TenantId::LOCAL, None, at(index), &json!(index)).await.unwrap();
        server().unwrap().disconnect_all(&url).await.unwrap();
    }
    case.store.health().await.unwrap();
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 5);
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_reported_without_its_password() {
    for (url, transient) in [
        ("postgres://me:Canary@localhost/db?host=/nonexistent", true),
        ("postgres://me:Canary@[bad", false),
        ("mysql://me:Canary@host:port/db", false),
    ] {
        let (config, _directory) = config(Some(url.into()));
        let error = Store::open(&config).await.unwrap_err();
        assert_eq!(error.is_transient(), transient, "{error:?}");
        let mut text = format!("{error:?} {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            text += &inner.to_string();
            source = inner.source();
        }
        assert!(!text.contains("Canary"), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_reported() {
    let (config, _directory) = config(None);
    std::fs::write(&config.path, "this is not a database, not even a little".repeat(100)).unwrap();
    let error = Store::open(&config).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn the_file_is_for_its_owner_alone() {
    let (config, directory) = config(None);
    std::fs::write(&config.path, "").unwrap();
    std::fs::set_permissions(&config.path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = Store::open(&config).await.unwrap();
    store.record_audit(&audit("act")).await.unwrap();
    anchored(&store).await;
    let mut files = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        files += 1;
    }
    assert_eq!(files, 4, "database, log, shared memory, anchor");
}

#[tokio::test]
async fn an_existing_store_opens_fast() {
    let case = Case::sqlite().await;
    for _ in 0..50 {
        case.store.record_audit(&audit("act")).await.unwrap();
    }
    case.store.close().await;
    // One of each in turn, so that both have the same machine, however busy it is.
    let (mut again, mut anew) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        let began = Instant::now();
        let store = case.reopen().await;
        again = again.min(began.elapsed());
        store.close().await;
        let began = Instant::now();
        let fresh = Case::sqlite().await;
        anew = anew.min(began.elapsed());
        fresh.store.close().await;
    }
    println!("opened in {again:?}, made in {anew:?}");
    assert!(again < anew, "{again:?} to open, {anew:?} to make");
}
