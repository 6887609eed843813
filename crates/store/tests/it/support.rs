//! A fresh store for each case, and rows to put into it.

use std::path::PathBuf;
use std::sync::LazyLock;

use sandstorm_store::testing::Postgres;
use sandstorm_store::{
    Audit, AuditKey, ContextRow, Decision, EntryKind, ExecRow, KeyRow, LedgerBill, LedgerEntry, RunEnd,
    RunRow, SandboxChanges, SandboxRow, StepOutcome, Store, StoreConfig, TenantRow, WholeRun,
};
use sandstorm_types::{
    ContextId, ExecId, Labels, RunId, SandboxId, SandboxSpec, State, Step, TenantId, Timestamp, Usd,
};
use serde_json::json;
use tempfile::TempDir;

static POSTGRES: LazyLock<Result<Postgres, String>> = LazyLock::new(Postgres::start);

/// The one server of these tests. Without it cases are skipped, or fail where everything is required.
pub(crate) fn server() -> Option<&'static Postgres> {
    match &*POSTGRES {
        Ok(server) => Some(server),
        Err(reason) => {
            assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "{reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// Makes a test for each database from each function that takes a [`Case`].
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use crate::support::Case;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(Case::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                if let Some(case) = Case::postgres().await {
                    super::$name(case).await;
                }
            }
        }
    )*};
}

pub(crate) use on_both;

/// A store of one's own.
pub(crate) struct Case {
    pub(crate) store: Store,
    pub(crate) config: StoreConfig,
    pub(crate) directory: TempDir,
}

impl Case {
    pub(crate) async fn sqlite() -> Self {
        Self::open(None).await
    }

    pub(crate) async fn postgres() -> Option<Self> {
        let url = server()?.database().await.expect("a database for the case");
        Some(Self::open(Some(url)).await)
    }

    async fn open(url: Option<String>) -> Self {
        let (config, directory) = config(url);
        let store = Store::open(&config).await.expect("a new store");
        Self { store, config, directory }
    }

    /// Another opening of the same store, as after a restart.
    pub(crate) async fn reopen(&self) -> Store {
        Store::open(&self.config).await.expect("the store again")
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.config.url.is_none()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) async fn new_tenant(&self, name: &str) -> TenantId {
        let row = TenantRow { id: TenantId::random(), name: name.into(), quota: None, created_at: at(1) };
        self.store.create_tenant(&row, &audit("tenant.create")).await.unwrap();
        row.id
    }

    pub(crate) async fn new_sandbox(&self, tenant: TenantId, created_at: i64) -> SandboxRow {
        let row = sandbox(tenant, created_at);
        self.add_sandbox(&row).await;
        row
    }

    pub(crate) async fn add_sandbox(&self, row: &SandboxRow) {
        self.store.insert_sandbox(row, None, &audit("sandbox.create")).await.unwrap();
    }

    /// Takes a sandbox through steps that it allows.
    pub(crate) async fn step(&self, row: &SandboxRow, steps: &[Step]) -> SandboxRow {
        let mut row = row.clone();
        for step in steps {
            let stepped = self.store.step_sandbox(
                row.tenant,
                row.id,
                row.revision,
                step.clone(),
                at(row.created_at.millis() + 10),
                SandboxChanges::default(),
                None,
            );
            row = match stepped.await.unwrap() {
                StepOutcome::Stepped(row, _) => row,
                other => panic!("{step:?}: {other:?}"),
            };
        }
        row
    }
}

pub(crate) fn config(url: Option<String>) -> (StoreConfig, TempDir) {
    let directory = TempDir::new().expect("a temporary directory");
    let mut config = StoreConfig::in_directory(directory.path(), url, AuditKey::from_bytes([7; 32]));
    config.checkpoint_every = 10;
    (config, directory)
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn audit(action: &str) -> Audit {
    Audit {
        tenant: TenantId::LOCAL,
        principal: "<test>".into(),
        action: action.into(),
        object: "something".into(),
        decision: Decision::Allowed,
        request_id: "req_1".into(),
        detail: Some(json!({"because": "tests"})),
    }
}

pub(crate) fn sandbox(tenant: TenantId, created_at: i64) -> SandboxRow {
    SandboxRow {
        id: SandboxId::random(),
        tenant,
        spec: SandboxSpec::default(),
        state: State::Creating,
        idle_timeout_ms: Some(60_000),
        walls: None,
        provider: "memory".into(),
        created_at: at(created_at),
        expires_at: Some(at(created_at + 300_000)),
        ended_at: None,
        last_used_at: at(created_at),
        revision: 1,
    }
}

pub(crate) fn exec(sandbox: &SandboxRow, started_at: i64) -> ExecRow {
    ExecRow {
        id: ExecId::random(),
        tenant: sandbox.tenant,
        sandbox: sandbox.id,
        context: None,
        title: "echo hi".into(),
        kind: "command".into(),
        background: true,
        tty: false,
        lasting: true,
        timeout_ms: Some(30_000),
        started_at: at(started_at),
        ended_at: None,
        status: None,
        result: None,
        detail: Some(json!({"cwd": "/workspace"})),
    }
}

pub(crate) fn context(sandbox: &SandboxRow) -> ContextRow {
    ContextRow {
        id: ContextId::random(),
        tenant: sandbox.tenant,
        sandbox: sandbox.id,
        language: "python".into(),
        cwd: "/workspace".into(),
        env: json!({"A": "1"}),
        exec: ExecId::random(),
        created_at: at(5),
        ended_at: None,
        position: 0,
        next_cell: 1,
        cell_exec: None,
        execution_count: 0,
    }
}

pub(crate) fn run(tenant: TenantId, created_at: i64) -> RunRow {
    RunRow {
        id: RunId::random(),
        tenant,
        language: "python".into(),
        created_at: at(created_at),
        ended_at: None,
        status: None,
        result: None,
        problem: None,
        request_hash: Some("ab".into()),
        entry: None,
    }
}

/// A run that is in the ledger.
pub(crate) fn costed(tenant: TenantId, created_at: i64) -> RunRow {
    let mut row = run(tenant, created_at);
    row.entry = Some(Box::new(entry(EntryKind::Run, row.id.to_string(), created_at)));
    row
}

pub(crate) fn entry(kind: EntryKind, object: String, began_at: i64) -> LedgerEntry {
    LedgerEntry {
        object,
        part: 0,
        kind,
        key: "key1".into(),
        labels: Labels::default(),
        provider: "somewhere".into(),
        region: None,
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
        began_at: at(began_at),
        estimate: Usd::picos(700),
        max_cost: None,
        bill: None,
    }
}

/// A bill of so many picodollars, of which a hundred are paid by credits.
pub(crate) fn bill(charge: i128) -> LedgerBill {
    LedgerBill {
        provider: "e2b".into(),
        region: Some("eu".into()),
        ended_at: at(20),
        wall_ms: 19,
        cpu_ms: 7,
        peak_memory_bytes: 99,
        priced: true,
        metered: true,
        charge: Usd::picos(charge),
        credit: Usd::picos(100),
        margin: Usd::picos(45),
        snapshots: Usd::ZERO,
    }
}

/// A run that began and ended well.
pub(crate) fn ended(row: RunRow) -> WholeRun {
    WholeRun {
        audit: Audit { object: row.id.to_string(), ..audit("run.create") },
        end: RunEnd {
            status: Some("ok".into()),
            result: Some("{}".into()),
            problem: None,
            at: at(20),
            bill: row.entry.as_ref().map(|_| bill(1000)),
            attempts: Vec::new(),
        },
        started: vec![json!("start")],
        ended: vec![json!("how"), json!("complete")],
        row,
    }
}

pub(crate) fn key(tenant: TenantId, id: &str) -> KeyRow {
    KeyRow {
        id: id.into(),
        tenant,
        name: format!("key {id}"),
        hash: id.bytes().chain([0, 255]).collect(),
        scopes: "run,files".into(),
        form: "native".into(),
        created_at: at(1),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}
