//! Several servers on one database: what belongs to one, no other changes.

use std::time::Duration;

use sandstorm_store::testing::{meddle, occupy};
use sandstorm_store::{
    AuditKey, Begun, Claimed, ContextChanges, ExecEnd, Lease, RunEnd, SandboxChanges, SnapshotRoom,
    SnapshotRow, SnapshotState, StepOutcome, Store, StoreConfig, StoreError,
};
use sandstorm_types::{SandboxId, SandboxSpec, SnapshotId, State, Step, TenantId};

use crate::support::{Case, at, audit, context, costed, exec, on_both, sandbox};

on_both!(
    what_belongs_to_another_is_left_alone,
    what_a_server_left_is_settled_by_one_other,
    a_server_that_lives_is_not_taken_over,
    a_server_that_starts_again_goes_on_at_once,
    a_copy_of_a_state_directory_is_another_place,
    records_without_a_server_find_one,
    a_name_that_another_server_claimed_stays_claimed,
    a_server_without_a_lease_is_as_before,
    no_clock_gives_a_request_away,
    a_request_is_free_when_its_server_has_recovered,
    a_request_is_free_when_its_server_is_settled,
);

/// Another server on the same database.
async fn rival(case: &Case, number: u8) -> Store {
    Store::open(&StoreConfig {
        audit_key: AuditKey::from_bytes([number; 32]),
        audit_anchor: case.path(&format!("anchor.{number}")),
        intents: case.path(&format!("intents.{number}")),
        place: Some(format!("place {number}")),
        ..case.config.clone()
    })
    .await
    .unwrap()
}

async fn with_lease(store: Store) -> Store {
    assert!(store.claim_lease(None).await.unwrap());
    store
}

async fn lease_of(store: &Store, looking: &Store) -> Option<Lease> {
    looking.other_leases().await.unwrap().into_iter().find(|lease| lease.node == store.node())
}

fn snapshot(state: SnapshotState) -> SnapshotRow {
    SnapshotRow {
        id: SnapshotId::random(),
        tenant: TenantId::LOCAL,
        sandbox: SandboxId::random(),
        name: None,
        provider: "local".into(),
        spec: SandboxSpec::default(),
        state,
        size_bytes: 0,
        created_at: at(1),
        key: "k".into(),
        charged_until: at(1),
    }
}

const ROOM: SnapshotRoom = SnapshotRoom { count: 100, bytes: 1 << 40 };

fn exec_end() -> ExecEnd {
    ExecEnd { status: "killed".into(), result: None, at: at(9) }
}

fn run_end() -> RunEnd {
    RunEnd { status: None, result: None, problem: None, at: at(9), bill: None, attempts: Vec::new() }
}

async fn fail(store: &Store, row: &sandstorm_store::SandboxRow) -> Result<StepOutcome, StoreError> {
    let step = Step::Fail { reason: "gone".into() };
    store.step_sandbox(row.tenant, row.id, row.revision, step, at(9), SandboxChanges::default(), None).await
}

async fn what_belongs_to_another_is_left_alone(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    let row = case.new_sandbox(TenantId::LOCAL, 1).await;
    let program = exec(&row, 2);
    theirs.insert_exec(&program, &[], &audit("exec")).await.unwrap();
    let interpreter = context(&row);
    theirs.insert_context(&interpreter, &audit("context")).await.unwrap();
    let run = costed(TenantId::LOCAL, 3);
    theirs.insert_run(&run, &[], &audit("run")).await.unwrap();
    let saving = snapshot(SnapshotState::Making);
    theirs.insert_snapshot(&saving, ROOM, &audit("snapshot")).await.unwrap();

    // For recovery each has its own only.
    assert!(ours.living_sandboxes().await.unwrap().is_empty());
    assert!(ours.running_execs().await.unwrap().is_empty());
    assert!(ours.living_contexts().await.unwrap().is_empty());
    assert!(ours.unfinished_runs().await.unwrap().is_empty());
    assert!(ours.open_entries().await.unwrap().is_empty());
    assert!(ours.unsettled_snapshots(at(1000)).await.unwrap().is_empty());
    assert_eq!(theirs.living_sandboxes().await.unwrap().len(), 1);
    assert_eq!(theirs.running_execs().await.unwrap().len(), 1);
    assert_eq!(theirs.living_contexts().await.unwrap().len(), 1);
    assert_eq!(theirs.unfinished_runs().await.unwrap().len(), 1);
    assert_eq!(theirs.open_entries().await.unwrap().len(), 1);
    assert_eq!(theirs.unsettled_snapshots(at(1000)).await.unwrap().len(), 1);

    // It is seen by both, told apart, and changed by one.
    assert_eq!(ours.sandbox(row.tenant, row.id).await.unwrap().as_ref(), Some(&row));
    assert_eq!(ours.held_elsewhere(row.id).await.unwrap().as_deref(), Some(theirs.node()));
    assert_eq!(theirs.held_elsewhere(row.id).await.unwrap(), None);
    assert_eq!(ours.run_elsewhere(run.tenant, run.id).await.unwrap().as_deref(), Some(theirs.node()));
    let refused =
        |error: StoreError| matches!(error, StoreError::Elsewhere { node } if node == theirs.node());
    assert!(refused(fail(&ours, &row).await.unwrap_err()));
    let changes = SandboxChanges { expires_at: Some(None), ..SandboxChanges::default() };
    assert!(refused(ours.update_sandbox(row.tenant, row.id, changes, None).await.unwrap_err()));
    assert_eq!(ours.end_exec(row.tenant, program.id, &exec_end(), &[]).await.unwrap(), None);
    let ended = ContextChanges { ended_at: Some(at(9)), ..ContextChanges::default() };
    assert_eq!(ours.update_context(row.tenant, interpreter.id, &ended).await.unwrap(), None);
    assert_eq!(ours.end_run(run.tenant, run.id, &run_end(), &[]).await.unwrap(), None);
    assert!(refused(ours.end_snapshot(saving.tenant, saving.id, None).await.unwrap_err()));
    assert_eq!(theirs.sandbox(row.tenant, row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(theirs.running_execs().await.unwrap(), [program]);
    assert_eq!(theirs.living_contexts().await.unwrap(), [interpreter]);
    assert_eq!(theirs.unfinished_runs().await.unwrap().len(), 1);
    assert!(matches!(fail(&theirs, &row).await.unwrap(), StepOutcome::Stepped(..)));
}

async fn what_a_server_left_is_settled_by_one_other(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    let third = with_lease(rival(&case, 2).await).await;
    let row = case.new_sandbox(TenantId::LOCAL, 1).await;
    let program = exec(&row, 2);
    theirs.insert_exec(&program, &[], &audit("exec")).await.unwrap();
    let interpreter = context(&row);
    theirs.insert_context(&interpreter, &audit("context")).await.unwrap();
    let run = costed(TenantId::LOCAL, 3);
    theirs.insert_run(&run, &[], &audit("run")).await.unwrap();
    let saving = snapshot(SnapshotState::Making);
    theirs.insert_snapshot(&saving, ROOM, &audit("snapshot")).await.unwrap();

    let found = lease_of(&theirs, &ours).await.unwrap();
    assert!(ours.take_over(&found).await.unwrap());
    assert!(!third.take_over(&found).await.unwrap(), "of two one takes it over");
    let taken = lease_of(&theirs, &ours).await.unwrap();
    assert!(ours.has_taken(&taken) && !third.has_taken(&taken));
    assert_eq!(taken.taker.as_deref(), Some(ours.node()));

    // Whoever had it writes nothing any more, whatever it is.
    assert!(matches!(theirs.renew_lease().await, Err(StoreError::Superseded)));
    assert!(matches!(fail(&theirs, &row).await, Err(StoreError::Superseded)));
    let late = theirs.end_exec(row.tenant, program.id, &exec_end(), &[]).await;
    assert!(matches!(late, Err(StoreError::Superseded)));
    let late = theirs.insert_run(&costed(TenantId::LOCAL, 4), &[], &audit("run")).await;
    assert!(matches!(late, Err(StoreError::Superseded)));

    let left = ours.left_by(theirs.node()).await.unwrap();
    assert_eq!(left.sandboxes, std::slice::from_ref(&row));
    assert_eq!(left.execs, std::slice::from_ref(&program));
    assert_eq!(left.contexts, std::slice::from_ref(&interpreter));
    assert_eq!((left.runs[0].id, &left.entries[0].entry.object), (run.id, &run.id.to_string()));
    assert!(third.left_by(ours.node()).await.unwrap().sandboxes.is_empty());
    assert!(ours.end_exec(row.tenant, program.id, &exec_end(), &[]).await.unwrap().is_some());
    let ended = ContextChanges { ended_at: Some(at(9)), ..ContextChanges::default() };
    assert!(ours.update_context(row.tenant, interpreter.id, &ended).await.unwrap().is_some());
    assert!(ours.end_run(run.tenant, run.id, &run_end(), &[]).await.unwrap().is_some());
    assert!(matches!(fail(&ours, &row).await.unwrap(), StepOutcome::Stepped(..)));
    assert_eq!(ours.abandon_snapshots(theirs.node()).await.unwrap(), 1);
    ours.end_lease(theirs.node()).await.unwrap();
    assert_eq!(lease_of(&theirs, &ours).await, None);
    assert!(
        matches!(theirs.renew_lease().await, Err(StoreError::Superseded)),
        "it does not come back by itself"
    );

    // Started again it finds nothing that lives, and what of the snapshot it has to remove.
    let back = with_lease(case.reopen().await).await;
    assert!(back.living_sandboxes().await.unwrap().is_empty());
    assert!(back.unfinished_runs().await.unwrap().is_empty());
    let failed = back.sandbox(row.tenant, row.id).await.unwrap().unwrap();
    assert_eq!(failed.state, State::Failed { reason: "gone".into() });
    let unsettled = back.unsettled_snapshots(at(1000)).await.unwrap();
    assert_eq!((unsettled[0].id, unsettled[0].state), (saving.id, SnapshotState::Ending));
    back.record_audit(&audit("back")).await.unwrap();
}

async fn a_server_that_lives_is_not_taken_over(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    let found = lease_of(&theirs, &ours).await.unwrap();
    theirs.renew_lease().await.unwrap();
    assert_eq!(lease_of(&theirs, &ours).await.unwrap().beats, found.beats + 1);
    assert!(!ours.take_over(&found).await.unwrap());
    theirs.record_audit(&audit("alive")).await.unwrap();
    // Nor while it is writing, which nobody waits for.
    if case.is_sqlite() {
        return;
    }
    let found = lease_of(&theirs, &ours).await.unwrap();
    let writing = theirs.clone();
    let writing = tokio::spawn(async move { occupy(&writing, Duration::from_secs(3)).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let taken = ours.take_over(&found).await.unwrap();
    assert!(!writing.is_finished() && !taken, "the lease was taken from under a transaction");
    writing.await.unwrap().unwrap();
    assert!(ours.take_over(&found).await.unwrap());
}

async fn a_server_that_starts_again_goes_on_at_once(case: Case) {
    let first = with_lease(case.store.clone()).await;
    let row = case.new_sandbox(TenantId::LOCAL, 1).await;
    let second = case.reopen().await;
    let found = second.own_lease().await.unwrap().unwrap();
    assert!(second.is_of_earlier_self(&found));
    assert!(second.claim_lease(Some(&found)).await.unwrap());
    assert!(matches!(first.renew_lease().await, Err(StoreError::Superseded)));
    assert_eq!(second.living_sandboxes().await.unwrap(), [row]);
    assert!(!case.reopen().await.claim_lease(Some(&found)).await.unwrap(), "it is not as it was found");
}

async fn a_copy_of_a_state_directory_is_another_place(case: Case) {
    let first = with_lease(case.store.clone()).await;
    let copy = StoreConfig { place: Some("elsewhere".into()), ..case.config.clone() };
    let copy = Store::open(&copy).await.unwrap();
    let found = copy.own_lease().await.unwrap().unwrap();
    assert!(!copy.is_of_earlier_self(&found));
    first.part().await.unwrap();
    let found = copy.own_lease().await.unwrap().unwrap();
    assert!(copy.is_of_earlier_self(&found), "it stopped in order");
    let nowhere = Store::open(&StoreConfig { place: None, ..case.config.clone() }).await.unwrap();
    assert!(nowhere.claim_lease(Some(&found)).await.unwrap());
    let found = copy.own_lease().await.unwrap().unwrap();
    assert!(!copy.is_of_earlier_self(&found) && !nowhere.is_of_earlier_self(&found));
}

async fn records_without_a_server_find_one(case: Case) {
    let forget = async |table: &str| {
        meddle(
            &case.store,
            match table {
                "sandboxes" => "UPDATE sandboxes SET node = NULL",
                _ => "UPDATE runs SET node = NULL",
            },
        )
        .await
        .unwrap();
    };
    let (here, there) =
        (case.new_sandbox(TenantId::LOCAL, 1).await, case.new_sandbox(TenantId::LOCAL, 2).await);
    case.store.insert_run(&costed(TenantId::LOCAL, 3), &[], &audit("run")).await.unwrap();
    forget("sandboxes").await;
    forget("runs").await;
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    // Whose they are is known only of what somebody has.
    assert_eq!(ours.claim_unowned(&[here.id], at(10)).await.unwrap(), 1);
    assert_eq!(ours.living_sandboxes().await.unwrap(), [here]);
    assert!(ours.unfinished_runs().await.unwrap().is_empty());
    ours.take_over(&lease_of(&theirs, &ours).await.unwrap()).await.unwrap();
    ours.end_lease(theirs.node()).await.unwrap();
    // A server of an earlier version has no lease, but was heard of.
    let older = rival(&case, 3).await;
    let begun = older.begin_idempotent(TenantId::LOCAL, "POST /", "k", b"x", "x", at(100_000)).await.unwrap();
    assert_eq!(begun, Begun::New);
    assert_eq!(ours.claim_unowned(&[], at(100_000)).await.unwrap(), 0);
    assert_eq!(ours.claim_unowned(&[], at(160_000)).await.unwrap(), 1);
    assert!(ours.living_sandboxes().await.unwrap().contains(&there));
    assert_eq!(ours.unfinished_runs().await.unwrap().len(), 1);
}

async fn a_name_that_another_server_claimed_stays_claimed(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    let id = SandboxId::random();
    let tenant = TenantId::LOCAL;
    assert_eq!(theirs.claim_name(tenant, "session", "x", id).await.unwrap(), Claimed::Claimed);
    assert!(!ours.release_unmade(tenant, "session", "x", id).await.unwrap());
    assert_eq!(ours.name(tenant, "session", "x").await.unwrap(), Some(id));
    ours.take_over(&lease_of(&theirs, &ours).await.unwrap()).await.unwrap();
    ours.end_lease(theirs.node()).await.unwrap();
    assert!(ours.release_unmade(tenant, "session", "x", id).await.unwrap());
}

async fn a_server_without_a_lease_is_as_before(case: Case) {
    let row = sandbox(TenantId::LOCAL, 1);
    case.add_sandbox(&row).await;
    let other = rival(&case, 1).await;
    assert_eq!(other.living_sandboxes().await.unwrap(), std::slice::from_ref(&row));
    assert_eq!(other.held_elsewhere(row.id).await.unwrap(), None);
    assert!(matches!(fail(&other, &row).await.unwrap(), StepOutcome::Stepped(..)));
    other.part().await.unwrap();
}

/// A request with a key, by a server whose clock shows `millis`.
async fn begin(store: &Store, object: &str, millis: i64) -> Begun {
    begin_with(store, "k", object, millis).await
}

async fn begin_with(store: &Store, key: &str, object: &str, millis: i64) -> Begun {
    store.begin_idempotent(TenantId::LOCAL, "POST /", key, b"x", object, at(millis)).await.unwrap()
}

fn left_by_first(begun: &Begun) -> bool {
    matches!(begun, Begun::Left(left) if left.object.as_deref() == Some("first"))
}

const HOUR: i64 = 3_600_000;

async fn no_clock_gives_a_request_away(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    assert_eq!(begin(&theirs, "first", 2 * HOUR).await, Begun::New);
    // Our clock is ahead of theirs.
    assert_eq!(begin(&ours, "second", 3 * HOUR).await, Begun::InFlight);
    // Theirs is set back.
    theirs.beat(at(HOUR)).await.unwrap();
    assert_eq!(begin(&ours, "second", 2 * HOUR + 120_000).await, Begun::InFlight);
}

async fn a_request_is_free_when_its_server_has_recovered(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    assert_eq!(begin(&theirs, "first", HOUR).await, Begun::New);
    let again = case.reopen().await;
    assert!(again.claim_lease(again.own_lease().await.unwrap().as_ref()).await.unwrap());
    assert_eq!(begin_with(&again, "another", "new", HOUR).await, Begun::New);
    // It may still have to write down what began.
    assert_eq!(begin(&ours, "second", 2 * HOUR).await, Begun::InFlight);
    assert_eq!(again.release_earlier_claims().await.unwrap(), 1);
    assert!(left_by_first(&begin(&ours, "second", HOUR).await));
    assert_eq!(begin_with(&ours, "another", "old", 2 * HOUR).await, Begun::InFlight, "that is its own");
}

async fn a_request_is_free_when_its_server_is_settled(case: Case) {
    let (ours, theirs) = (with_lease(rival(&case, 1).await).await, with_lease(case.store.clone()).await);
    assert_eq!(begin(&theirs, "first", HOUR).await, Begun::New);
    assert!(ours.take_over(&lease_of(&theirs, &ours).await.unwrap()).await.unwrap());
    // What became of it is not on record yet.
    assert_eq!(begin(&ours, "second", 2 * HOUR).await, Begun::InFlight);
    ours.end_lease(theirs.node()).await.unwrap();
    assert!(left_by_first(&begin(&ours, "second", HOUR).await));
}
