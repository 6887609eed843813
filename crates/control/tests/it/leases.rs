//! Several servers on one PostgreSQL.

#![expect(clippy::print_stderr, reason = "a skipped case says why")]
#![expect(clippy::disallowed_methods, reason = "what CI sets is read")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_control::server::{Caller, Control, NewExec, NewSnapshot, Quota, Readiness, Setup};
use sandstorm_control::{Runner, Tools};
use sandstorm_language::Roots;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Error, ExecSignal, ListFilter, OpContext, Provider};
use sandstorm_store::testing::Postgres;
use sandstorm_store::{Audit, AuditKey, Begun, Decision, RunRow, Store, StoreConfig};
use sandstorm_types::{ErrorKind, Phase, RunId, Status, TenantId, Timestamp};

use crate::world::{all, eventually, plain, settings, shell};

static POSTGRES: LazyLock<Result<Postgres, String>> = LazyLock::new(Postgres::start);
const GONE: &str = "the server that held it is gone";

/// One of several servers.
struct Member {
    control: Control,
    store: Store,
    provider: Arc<dyn Provider>,
    config: StoreConfig,
    _dir: tempfile::TempDir,
}

async fn database() -> Option<String> {
    match &*POSTGRES {
        Ok(server) => Some(server.database().await.unwrap()),
        Err(reason) => {
            assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "{reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}

async fn control_on(config: &StoreConfig, provider: &Arc<dyn Provider>) -> Result<(Control, Store), Error> {
    let mut settings = settings();
    settings.quota = Quota { sandboxes: 2, ..settings.quota };
    let store = Store::open(config).await.unwrap();
    let roots = Roots::host().with_program("bash", "/bin/cat").with_program("python", "/bin/cat");
    let tools =
        Tools { provider: Arc::clone(provider), limits: settings.limits, roots, cache: None, layers: None };
    let runner = Runner::new(tools);
    let setup = Setup { store: store.clone(), provider: Arc::clone(provider), runner, settings };
    match Box::pin(Control::start(setup)).await {
        Ok(control) => Ok((control, store)),
        Err(error) => {
            store.close().await;
            Err(error)
        }
    }
}

impl Member {
    async fn start(url: &str, number: u8, lease: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = AuditKey::from_bytes([number; 32]);
        let config =
            StoreConfig { lease, ..StoreConfig::in_directory(dir.path(), Some(url.to_owned()), key) };
        let provider: Arc<dyn Provider> = Arc::new(MemoryProvider::default());
        let (control, store) = control_on(&config, &provider).await.unwrap();
        Self { control, store, provider, config, _dir: dir }
    }

    fn caller(&self) -> Caller {
        self.control.developer()
    }

    /// It is gone without a word: its hand on the store does no more than that of a dead process.
    async fn dies(&self) {
        self.store.close().await;
    }

    async fn comes_back(self) -> Self {
        let Self { provider, config, _dir, .. } = self;
        let (control, store) = control_on(&config, &provider).await.unwrap();
        Self { control, store, provider, config, _dir }
    }
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
/// Long enough for a busy machine to renew it in time.
const SHORT: Duration = Duration::from_secs(10);

fn kept_off<T: std::fmt::Debug>(refused: Result<T, Error>) {
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().starts_with("another server holds this"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_holds_the_other_shows_and_leaves_alone() {
    let Some(url) = database().await else { return };
    let first = Member::start(&url, 1, LONG).await;
    let caller = first.caller();
    let id = first.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let long = NewExec { background: true, stdin_stream: true, ..shell("echo one; read go; echo two") };
    let exec = first.control.exec(&caller, id, long).await.unwrap().view.id;
    let second = Member::start(&url, 2, LONG).await;
    let other = &second.control;
    assert_eq!(other.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
    assert_eq!(other.exec_view(&caller, id, exec).await.unwrap().ended_at, None);
    kept_off(other.delete_sandbox(&caller, id).await);
    kept_off(other.pause_sandbox(&caller, id).await);
    kept_off(other.extend_sandbox(&caller, id, Duration::from_secs(60)).await);
    kept_off(other.set_public_ports(&caller, id, true).await);
    kept_off(other.exec(&caller, id, shell("true")).await.map(|attached| attached.view.id));
    kept_off(other.signal(&caller, id, exec, ExecSignal::Kill).await);
    kept_off(other.write_stdin(&caller, id, exec, "\n".into()).await);
    kept_off(other.attach(&caller, id, exec, None).await.map(|attached| attached.view.id));
    kept_off(other.create_snapshot(&caller, id, NewSnapshot::default()).await);
    let run = RunRow {
        id: RunId::random(),
        tenant: TenantId::LOCAL,
        language: "bash".to_owned(),
        created_at: Timestamp::now(),
        ended_at: None,
        status: None,
        result: None,
        problem: None,
        request_hash: None,
        entry: None,
    };
    first.store.insert_run(&run, &[], &audit()).await.unwrap();
    kept_off(other.cancel_run(&caller, run.id).await);
    // Again and again, in order and not.
    let second = second.comes_back().await;
    second.control.drain(Duration::ZERO).await;
    second.dies().await;
    let second = second.comes_back().await;
    assert!(first.store.run(run.tenant, run.id).await.unwrap().unwrap().ended_at.is_none());
    assert_eq!(second.control.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
    first.control.write_stdin(&caller, id, exec, "\n".into()).await.unwrap();
    all(first.control.attach(&caller, id, exec, None).await.unwrap()).await;
    eventually("it ended well", || async {
        second.control.exec_view(&caller, id, exec).await.unwrap().status == Some(Status::Ok)
    })
    .await;
    first.control.delete_sandbox(&caller, id).await.unwrap();
    second.control.delete_sandbox(&caller, id).await.unwrap();
    assert_eq!(second.control.sandbox(&caller, id).await.unwrap().phase, Phase::Terminated);
}

fn audit() -> Audit {
    Audit {
        tenant: TenantId::LOCAL,
        principal: "<test>".to_owned(),
        action: "test".to_owned(),
        object: "test".to_owned(),
        decision: Decision::Allowed,
        request_id: String::new(),
        detail: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_left_for_good_ends_once_its_lease_is_over() {
    let Some(url) = database().await else { return };
    let first = Member::start(&url, 1, SHORT).await;
    let second = Member::start(&url, 2, SHORT).await;
    let caller = first.caller();
    let id = first.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let mine = second.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let long = NewExec { background: true, ..shell("sleep 60") };
    let exec = first.control.exec(&caller, id, long).await.unwrap().view.id;
    let full = second.control.create_sandbox(&caller, plain()).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Quota);
    first.dies().await;
    eventually("it has failed", || async {
        second.control.sandbox(&caller, id).await.unwrap().phase == Phase::Failed
    })
    .await;
    assert_eq!(second.control.sandbox(&caller, id).await.unwrap().reason.as_deref(), Some(GONE));
    eventually("nobody has its lease", || async { second.store.other_leases().await.unwrap().is_empty() })
        .await;
    let view = second.control.exec_view(&caller, id, exec).await.unwrap();
    assert!(view.status == Some(Status::Killed) && view.ended_at.is_some(), "{view:?}");
    second.store.open_entries().await.unwrap();
    let open = second.store.left_by(first.store.node()).await.unwrap();
    assert_eq!(open, sandstorm_store::Estate::default(), "records or entries of the ledger are open");
    second.control.create_sandbox(&caller, plain()).await.expect("the quota is free again");
    assert_eq!(second.control.sandbox(&caller, mine).await.unwrap().phase, Phase::Ready);

    // It comes back: what is left of its sandbox ends, and what is on record stays as it is.
    let cx = OpContext::new(TenantId::LOCAL);
    assert_eq!(first.provider.list(&cx, ListFilter::default()).count().await, 1);
    let first = first.comes_back().await;
    assert_eq!(first.provider.list(&cx, ListFilter::default()).count().await, 0);
    assert_eq!(first.control.sandbox(&caller, id).await.unwrap().reason.as_deref(), Some(GONE));
    assert_eq!(second.control.sandbox(&caller, mine).await.unwrap().phase, Phase::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_claimed_before_it_started_again_can_be_had_by_others() {
    let Some(url) = database().await else { return };
    let (first, second) = (Member::start(&url, 1, LONG).await, Member::start(&url, 2, LONG).await);
    let begin = async |store: &Store, object: &str| {
        store.begin_idempotent(TenantId::LOCAL, "POST /", "k", b"x", object, Timestamp::now()).await.unwrap()
    };
    assert_eq!(begin(&first.store, "first").await, Begun::New);
    first.dies().await;
    assert_eq!(begin(&second.store, "second").await, Begun::InFlight);
    let _again = first.comes_back().await;
    let begun = begin(&second.store, "second").await;
    assert!(matches!(&begun, Begun::Left(left) if left.object.as_deref() == Some("first")), "{begun:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_records_are_anothers_takes_no_work() {
    let Some(url) = database().await else { return };
    let first = Member::start(&url, 1, SHORT).await;
    let caller = first.caller();
    let id = first.control.create_sandbox(&caller, plain()).await.unwrap().id;
    assert!(first.control.readiness().await.ready);
    // Somebody who did not hear of it for long, though it lives.
    let other = Member::start(&url, 2, LONG).await;
    eventually("it is taken over", || async {
        let lease = other.store.other_leases().await.unwrap().remove(0);
        other.store.take_over(&lease).await.unwrap()
    })
    .await;
    let superseded = first.control.superseded();
    tokio::time::timeout(Duration::from_secs(45), superseded).await.expect("it hears of it");
    assert_eq!(first.control.readiness().await, Readiness { ready: false, reason: Some("lease") });
    let refused = first.control.create_sandbox(&caller, plain()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    assert!(refused.retry_after().is_some());
    assert!(first.control.delete_sandbox(&caller, id).await.is_err());
    assert_eq!(other.store.sandbox(TenantId::LOCAL, id).await.unwrap().unwrap().ended_at, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_renewed_stops_new_work_until_it_can() {
    let Some(url) = database().await else { return };
    let first = Member::start(&url, 1, SHORT).await;
    let caller = first.caller();
    let id = first.control.create_sandbox(&caller, plain()).await.unwrap().id;
    // The writer stands still for longer than the lease lasts.
    let (store, busy) = (first.store.clone(), SHORT + Duration::from_secs(4));
    let stuck = tokio::spawn(async move { sandstorm_store::testing::occupy(&store, busy).await });
    eventually("it takes no work", || async { first.control.readiness().await.reason == Some("lease") })
        .await;
    let refused = first.control.exec(&caller, id, shell("true")).await.map(|attached| attached.view.id);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Capacity);
    stuck.await.unwrap().unwrap();
    eventually("it works again", || async { first.control.readiness().await.ready }).await;
    let attached = first.control.exec(&caller, id, shell("echo back")).await.unwrap();
    assert_eq!(first.control.finish(attached).await.unwrap().stdout, "back\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_server_is_refused_while_that_lives() {
    let Some(url) = database().await else { return };
    let first = Member::start(&url, 1, SHORT).await;
    let caller = first.caller();
    let id = first.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let copy = StoreConfig { place: Some("elsewhere".to_owned()), ..first.config.clone() };
    let refused = control_on(&copy, &first.provider).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.message().contains("its state directory was copied"), "{refused}");
    assert!(first.control.readiness().await.ready);
    assert_eq!(first.control.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
    // It moved, and the one before is gone: once that is certain it goes on with what is there.
    first.dies().await;
    let (moved, store) = control_on(&copy, &first.provider).await.unwrap();
    assert_eq!(moved.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
    let attached = moved.exec(&caller, id, shell("echo here")).await.unwrap();
    assert_eq!(moved.finish(attached).await.unwrap().stdout, "here\n");
    moved.drain(Duration::ZERO).await;
    store.close().await;
}
