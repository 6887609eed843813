//! Sandboxes: their lives, lists, ceilings, and the walls between tenants.

use std::collections::{BTreeMap, BTreeSet};

use sandstorm_store::{
    QuotaKind, Reservation, SandboxChanges, SandboxFilter, SandboxRow, StepOutcome, StoreError,
};
use sandstorm_types::{ByteSize, SandboxId, State, Step, TenantId};
use serde_json::json;

use crate::support::{Case, at, audit, exec, on_both, sandbox};

on_both!(
    a_life_is_recorded_step_by_step,
    steps_that_cannot_be_are_refused,
    of_two_steps_on_one_revision_one_is_lost,
    changes_are_kept_and_counted,
    lists_are_pages_newest_first,
    filters_narrow_the_list,
    another_tenant_sees_nothing,
    parallel_creations_stop_at_the_ceiling,
    each_ceiling_is_named,
    what_ended_frees_its_share,
    last_use_never_goes_back
);

async fn a_life_is_recorded_step_by_step(case: Case) {
    let row = sandbox(TenantId::LOCAL, 100);
    let event = case.store.insert_sandbox(&row, None, &audit("sandbox.create")).await.unwrap();
    assert_eq!((event.seq, event.sandbox), (1, Some(row.id)));
    assert_eq!(
        event.body,
        json!({"type": "sandbox:creating", "from": null, "to": "creating", "reason": null})
    );
    assert_eq!(case.store.sandbox(TenantId::LOCAL, row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(case.store.living_sandboxes().await.unwrap(), std::slice::from_ref(&row));

    let changes = SandboxChanges { walls: Some(json!({"nnp": true})), ..SandboxChanges::default() };
    let audit = audit("sandbox.created");
    let stepped =
        case.store.step_sandbox(row.tenant, row.id, 1, Step::Created, at(110), changes, Some(&audit));
    let StepOutcome::Stepped(ready, event) = stepped.await.unwrap() else { panic!("not stepped") };
    assert_eq!((&ready.state, ready.revision), (&State::Ready, 2));
    assert_eq!(ready.walls, Some(json!({"nnp": true})));
    assert_eq!(event.body["from"], "creating");
    assert_eq!(case.store.sandbox(row.tenant, row.id).await.unwrap(), Some(ready.clone()));

    let fail = Step::Fail { reason: "it broke\0".into() };
    let failed = case.step(&ready, &[fail]).await;
    let stored = case.store.sandbox(row.tenant, row.id).await.unwrap().unwrap();
    assert_eq!(stored, failed);
    assert_eq!(stored.state, State::Failed { reason: "it broke\u{fffd}".into() });
    assert_eq!((stored.ended_at, stored.revision), (Some(at(110)), 3));
    assert!(case.store.living_sandboxes().await.unwrap().is_empty());

    let names: Vec<String> = case
        .store
        .transitions(row.tenant, row.id)
        .await
        .unwrap()
        .iter()
        .map(|step| format!("{}:{}", step.revision, step.to))
        .collect();
    assert_eq!(names, ["1:creating", "2:ready", "3:failed"]);
    let events = case.store.events_after(row.tenant, Some(row.id), 0, 10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(events[2].body["reason"], "it broke\u{fffd}");
}

async fn steps_that_cannot_be_are_refused(case: Case) {
    let row = case.new_sandbox(TenantId::LOCAL, 1).await;
    let step = |id, revision, step| {
        let store = case.store.clone();
        async move {
            let changes = SandboxChanges { walls: Some(json!({})), ..SandboxChanges::default() };
            store.step_sandbox(TenantId::LOCAL, id, revision, step, at(2), changes, None).await.unwrap()
        }
    };
    assert_eq!(step(row.id, 1, Step::Pause).await, StepOutcome::Conflict(row.clone()));
    assert_eq!(step(row.id, 7, Step::Created).await, StepOutcome::Lost);
    assert_eq!(step(SandboxId::random(), 1, Step::Created).await, StepOutcome::Missing);
    assert_eq!(case.store.sandbox(TenantId::LOCAL, row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(case.store.transitions(TenantId::LOCAL, row.id).await.unwrap().len(), 1);
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 1);
}

async fn of_two_steps_on_one_revision_one_is_lost(case: Case) {
    let row = case.new_sandbox(TenantId::LOCAL, 1).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, row) = (case.store.clone(), row.clone());
        tasks.spawn(async move {
            let changes = SandboxChanges::default();
            store.step_sandbox(row.tenant, row.id, 1, Step::Created, at(2), changes, None).await.unwrap()
        });
    }
    let outcomes = tasks.join_all().await;
    let stepped = outcomes.iter().filter(|outcome| matches!(outcome, StepOutcome::Stepped(..))).count();
    let lost = outcomes.iter().filter(|outcome| matches!(outcome, StepOutcome::Lost)).count();
    assert_eq!((stepped, lost), (1, 19));
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 2, "a lost step uses no number");
}

async fn changes_are_kept_and_counted(case: Case) {
    let row = case.new_sandbox(TenantId::LOCAL, 1).await;
    let mut spec = row.spec.clone();
    spec.labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]).try_into().unwrap();
    let changes = SandboxChanges { expires_at: Some(None), spec: Some(spec.clone()), ..SandboxChanges::default() };
    let audit = audit("sandbox.update");
    let updated =
        case.store.update_sandbox(row.tenant, row.id, changes, Some(&audit)).await.unwrap().unwrap();
    assert_eq!((updated.expires_at, updated.revision, &updated.spec), (None, 2, &spec));
    assert_eq!(case.store.sandbox(row.tenant, row.id).await.unwrap(), Some(updated));
    let filter = SandboxFilter { labels: spec.labels, limit: 5, ..SandboxFilter::default() };
    assert_eq!(case.store.list_sandboxes(row.tenant, &filter).await.unwrap().len(), 1);
    let nobody = case.store.update_sandbox(row.tenant, SandboxId::random(), SandboxChanges::default(), None);
    assert_eq!(nobody.await.unwrap(), None);
}

async fn lists_are_pages_newest_first(case: Case) {
    for index in 0..25 {
        // Several of the same moment, so that the id decides.
        case.new_sandbox(TenantId::LOCAL, index / 4).await;
    }
    let mut filter = SandboxFilter { limit: 10, ..SandboxFilter::default() };
    let mut seen: Vec<SandboxRow> = Vec::new();
    loop {
        let page = case.store.list_sandboxes(TenantId::LOCAL, &filter).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some((last.created_at, last.id));
        seen.extend(page);
    }
    // By the text of the id, as everybody who sees it would sort.
    let order: Vec<_> = seen.iter().map(|row| (row.created_at, row.id.to_string())).collect();
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 25);
    assert!(order.windows(2).all(|pair| pair[0] > pair[1]));
}

async fn filters_narrow_the_list(case: Case) {
    let mut labelled = sandbox(TenantId::LOCAL, 1);
    let labels = BTreeMap::from([("app".to_owned(), "it's \"quoted\" $1 ?".to_owned())]);
    labelled.spec.labels = labels.try_into().unwrap();
    case.store.insert_sandbox(&labelled, None, &audit("sandbox.create")).await.unwrap();
    let ready = case.new_sandbox(TenantId::LOCAL, 2).await;
    let ready = case.step(&ready, &[Step::Created]).await;
    let ended = case.new_sandbox(TenantId::LOCAL, 3).await;
    let ended = case.step(&ended, &[Step::Terminate, Step::Terminated]).await;

    let list = |filter: SandboxFilter| {
        let store = case.store.clone();
        async move {
            let filter = SandboxFilter { limit: 10, ..filter };
            let rows = store.list_sandboxes(TenantId::LOCAL, &filter).await.unwrap();
            rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
        }
    };
    let all = SandboxFilter::default();
    assert_eq!(list(all.clone()).await, [ready.id, labelled.id]);
    assert_eq!(
        list(SandboxFilter { include_ended: true, ..all.clone() }).await,
        [ended.id, ready.id, labelled.id]
    );
    assert_eq!(
        list(SandboxFilter { labels: labelled.spec.labels.clone(), ..all.clone() }).await,
        [labelled.id]
    );
    let states = vec!["ready".to_owned(), "paused".to_owned(), "' OR 1=1 --".to_owned()];
    assert_eq!(list(SandboxFilter { states, ..all.clone() }).await, [ready.id]);
    let states = vec!["creating".to_owned()];
    let both = SandboxFilter { states, labels: labelled.spec.labels.clone(), ..all };
    assert_eq!(list(both).await, [labelled.id]);
}

async fn another_tenant_sees_nothing(case: Case) {
    let (one, two) = (case.new_tenant("one").await, case.new_tenant("two").await);
    let row = case.new_sandbox(one, 1).await;
    let theirs = exec(&row, 2);
    case.store.insert_exec(&theirs, &[json!({})], &audit("exec.start")).await.unwrap();

    let store = &case.store;
    assert_eq!(store.sandbox(two, row.id).await.unwrap(), None);
    assert!(store.transitions(two, row.id).await.unwrap().is_empty());
    assert_eq!(store.exec(two, row.id, theirs.id).await.unwrap(), None);
    assert!(store.list_execs(two, row.id, false, 10).await.unwrap().is_empty());
    assert!(store.events_after(two, Some(row.id), 0, 10).await.unwrap().is_empty());
    let changes = SandboxChanges::default();
    assert_eq!(store.update_sandbox(two, row.id, changes.clone(), None).await.unwrap(), None);
    let stepped = store.step_sandbox(two, row.id, 1, Step::Created, at(2), changes, None).await.unwrap();
    assert_eq!(stepped, StepOutcome::Missing);

    // Not even by writing: a row of one tenant cannot hang on a sandbox of another.
    let smuggled = sandstorm_store::ExecRow { tenant: two, ..exec(&row, 3) };
    let error = store.insert_exec(&smuggled, &[], &audit("exec.start")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    let error = store.note_file(two, row.id, "/x", 1, at(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
}

const AMPLE: Reservation = Reservation { sandboxes: 1000, cpu_milli: 1 << 40, memory_bytes: 1 << 60 };

async fn parallel_creations_stop_at_the_ceiling(case: Case) {
    let tenant = case.new_tenant("busy").await;
    let ceiling = Reservation { sandboxes: 17, ..AMPLE };
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..500 {
        let store = case.store.clone();
        tasks.spawn(async move {
            store.insert_sandbox(&sandbox(tenant, index), Some(ceiling), &audit("sandbox.create")).await
        });
    }
    let (created, refused): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().partition(Result::is_ok);
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::QuotaExceeded { which: QuotaKind::Sandboxes, .. }), "{error:?}");
    }
    assert_eq!(created.len(), 17);
    assert_eq!(case.store.living_sandboxes().await.unwrap().len(), 17);
    let seqs: BTreeSet<u64> = created.into_iter().map(|event| event.unwrap().seq).collect();
    assert_eq!(seqs, (1..=17).collect(), "refusals leave no gap");
}

async fn each_ceiling_is_named(case: Case) {
    let mut row = sandbox(TenantId::LOCAL, 1);
    row.spec.limits.memory = ByteSize::mib(100);
    for (ceiling, wanted) in [
        (
            Reservation { sandboxes: 0, ..AMPLE },
            "quota of sandboxes is used up: 0 in use, 1 wanted, 0 allowed",
        ),
        (
            Reservation { cpu_milli: 999, ..AMPLE },
            "quota of cpu is used up: 0 in use, 1000 wanted, 999 allowed",
        ),
        (
            Reservation { memory_bytes: 104_857_599, ..AMPLE },
            "quota of memory is used up: 0 in use, 104857600 wanted, 104857599 allowed",
        ),
    ] {
        let error =
            case.store.insert_sandbox(&row, Some(ceiling), &audit("sandbox.create")).await.unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
    let exact = Reservation { sandboxes: 1, cpu_milli: 1000, memory_bytes: 104_857_600 };
    case.store.insert_sandbox(&row, Some(exact), &audit("sandbox.create")).await.unwrap();
}

async fn what_ended_frees_its_share(case: Case) {
    let (one, two) = (case.new_tenant("one").await, case.new_tenant("two").await);
    let ceiling = Some(Reservation { sandboxes: 1, ..AMPLE });
    let first = sandbox(one, 1);
    let audit = audit("sandbox.create");
    case.store.insert_sandbox(&first, ceiling, &audit).await.unwrap();
    case.store.insert_sandbox(&sandbox(two, 1), ceiling, &audit).await.expect("another tenant has its own");
    case.store.insert_sandbox(&sandbox(one, 2), ceiling, &audit).await.unwrap_err();
    let ending = case.step(&first, &[Step::Terminate]).await;
    case.store.insert_sandbox(&sandbox(one, 2), ceiling, &audit).await.expect_err("not before it is gone");
    case.step(&ending, &[Step::Terminated]).await;
    case.store.insert_sandbox(&sandbox(one, 2), ceiling, &audit).await.unwrap();
}

async fn last_use_never_goes_back(case: Case) {
    let row = case.new_sandbox(TenantId::LOCAL, 100).await;
    for millis in [500, 400] {
        case.store.touch_sandboxes(&[(row.id, at(millis)), (SandboxId::random(), at(1))]).await.unwrap();
        let row = case.store.sandbox(row.tenant, row.id).await.unwrap().unwrap();
        assert_eq!((row.last_used_at, row.revision), (at(500), 1));
    }
}
