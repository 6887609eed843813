//! What runs and sandboxes cost, recorded with them and summed up.

use sandstorm_store::testing::commits;
use sandstorm_store::{
    EntryKind, GroupBy, LedgerEntry, LedgerQuery, LedgerSum, Retention, SandboxChanges, Spent, SpentBy,
    StepOutcome,
};
use sandstorm_types::{Labels, Step, TenantId, Usd};
use serde_json::json;

use crate::support::{Case, at, audit, bill, costed, ended, entry, on_both, sandbox};

on_both!(
    a_run_is_estimated_then_billed,
    a_sandbox_is_billed_by_the_step_that_ends_it,
    sums_are_exact_however_large,
    groups_come_in_pages,
    budgets_see_what_is_theirs,
    what_an_earlier_server_announced_is_billed,
    old_entries_go_but_not_those_that_used_credits
);

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let map: std::collections::BTreeMap<_, _> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    map.try_into().unwrap()
}

async fn all(case: &Case) -> LedgerSum {
    let query = LedgerQuery::of(Some(TenantId::LOCAL), at(0), at(i64::MAX));
    case.store.ledger_sums(&query).await.unwrap().remove(0)
}

async fn a_run_is_estimated_then_billed(case: Case) {
    let row = costed(TenantId::LOCAL, 1);
    case.store.insert_run(&row, &[json!(1)], &audit("run.create")).await.unwrap();
    let open = all(&case).await;
    assert_eq!((open.runs, open.open, open.estimate, open.cost()), (1, 1, Usd::picos(700), Usd::ZERO));
    let known = case.store.open_entries().await.unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!(Some(&known[0].entry), row.entry.as_deref());
    let mut whole = ended(row.clone());
    let failed = entry(EntryKind::Attempt, row.id.to_string(), 1);
    whole.end.attempts = vec![LedgerEntry { part: 1, bill: Some(bill(500)), ..failed }];
    case.store.end_run(row.tenant, row.id, &whole.end, &[]).await.unwrap().unwrap();
    assert!(case.store.end_run(row.tenant, row.id, &whole.end, &[]).await.unwrap().is_none());
    let over = all(&case).await;
    assert_eq!((over.runs, over.attempts, over.open, over.wall_ms, over.cpu_ms), (1, 1, 0, 38, 14));
    assert_eq!((over.charge, over.credit, over.margin), (Usd::picos(1500), Usd::picos(200), Usd::picos(90)));
    assert_eq!(over.cost(), Usd::picos(1390));
    assert_eq!(case.store.open_entries().await.unwrap(), []);
    // The same in one record.
    let before = commits(&case.store);
    case.store.whole_run(&ended(costed(TenantId::LOCAL, 2))).await.unwrap();
    assert_eq!(commits(&case.store) - before, 1);
    assert_eq!(all(&case).await.cost(), Usd::picos(1390 + 945));
}

async fn a_sandbox_is_billed_by_the_step_that_ends_it(case: Case) {
    let row = sandbox(TenantId::LOCAL, 1);
    let opened = LedgerEntry {
        labels: labels(&[("team", "blue")]),
        max_cost: Some(Usd::picos(9)),
        ..entry(EntryKind::Sandbox, row.id.to_string(), 1)
    };
    case.store.insert_sandbox_with(&row, None, &audit("sandbox.create"), Some(opened.clone())).await.unwrap();
    assert_eq!(case.store.open_entries().await.unwrap()[0].entry, opened);
    let row = case.store.sandbox(row.tenant, row.id).await.unwrap().unwrap();
    // Not by a step that does not end it.
    let changes = || SandboxChanges { bill: Some(bill(1000)), ..SandboxChanges::default() };
    let stepped =
        case.store.step_sandbox(row.tenant, row.id, row.revision, Step::Created, at(2), changes(), None);
    let StepOutcome::Stepped(row, _) = stepped.await.unwrap() else { panic!("it is made") };
    assert_eq!(all(&case).await.open, 1);
    let step = Step::Fail { reason: "stopped".into() };
    let ended = case.store.step_sandbox(row.tenant, row.id, row.revision, step, at(3), changes(), None);
    assert!(matches!(ended.await.unwrap(), StepOutcome::Stepped(..)));
    let over = all(&case).await;
    assert_eq!((over.open, over.sandboxes, over.cost()), (0, 1, Usd::picos(945)));
}

async fn sums_are_exact_however_large(case: Case) {
    // Five entries of nine million dollars: more than a column can hold in picodollars.
    for created_at in 0..5 {
        let mut whole = ended(costed(TenantId::LOCAL, created_at));
        let mut large = bill(0);
        (large.charge, large.credit) = (Usd::dollars(9_000_000) + Usd::picos(1), Usd::ZERO);
        whole.end.bill = Some(large);
        case.store.whole_run(&whole).await.unwrap();
    }
    assert_eq!(all(&case).await.charge, Usd::dollars(45_000_000) + Usd::picos(5));
    let mut too_much = ended(costed(TenantId::LOCAL, 9));
    too_much.end.bill.as_mut().unwrap().charge = Usd::dollars(i64::MAX);
    case.store.whole_run(&too_much).await.unwrap();
    assert!(all(&case).await.charge > Usd::dollars(54_000_000));
}

async fn groups_come_in_pages(case: Case) {
    let hour = 3_600_000;
    for (number, team) in [(0, Some("blue")), (1, Some("=red()")), (2, None), (30, Some("blue"))] {
        let mut row = costed(TenantId::LOCAL, number * hour);
        if let (Some(entry), Some(team)) = (&mut row.entry, team) {
            entry.labels = labels(&[("team", team), ("other", "x")]);
        }
        case.store.whole_run(&ended(row)).await.unwrap();
    }
    let group_by = vec![GroupBy::Label("team".into()), GroupBy::Day];
    let mut query =
        LedgerQuery { group_by, limit: 2, ..LedgerQuery::of(Some(TenantId::LOCAL), at(0), at(100 * hour)) };
    let mut found = Vec::new();
    loop {
        let page = case.store.ledger_sums(&query).await.unwrap();
        let Some(last) = page.last() else { break };
        query.after = Some(last.place.clone());
        found.extend(page.into_iter().map(|sum| (sum.place.join(" "), sum.runs)));
    }
    found.sort();
    let expected = [(" 0", 1), ("=red() 0", 1), ("blue 0", 1), ("blue 1", 1)];
    assert_eq!(found, expected.map(|(place, runs)| (place.to_owned(), runs)));
    let by = |group_by| LedgerQuery { group_by: vec![group_by], limit: 9, after: None, ..query.clone() };
    for (group_by, expected) in [
        (GroupBy::Tenant, TenantId::LOCAL.to_string()),
        (GroupBy::Key, "key1".to_owned()),
        (GroupBy::Provider, "e2b".to_owned()),
        (GroupBy::Region, "eu".to_owned()),
        (GroupBy::Kind, "run".to_owned()),
        (GroupBy::Label("none'; --".to_owned()), String::new()),
    ] {
        let sums = case.store.ledger_sums(&by(group_by)).await.unwrap();
        assert_eq!((sums.len(), sums[0].place.as_slice(), sums[0].runs), (1, [expected].as_slice(), 4));
    }
    assert_eq!(case.store.ledger_sums(&by(GroupBy::Hour)).await.unwrap().len(), 4);
    let stranger = LedgerQuery { tenant: Some(TenantId::from_bits(7)), ..by(GroupBy::Key) };
    assert_eq!(case.store.ledger_sums(&stranger).await.unwrap(), []);
    let nothing = LedgerQuery::of(None, at(200 * hour), at(300 * hour));
    assert_eq!(case.store.ledger_sums(&nothing).await.unwrap(), []);
}

async fn budgets_see_what_is_theirs(case: Case) {
    let mut row = costed(TenantId::LOCAL, 10);
    row.entry.as_mut().unwrap().labels = labels(&[("team", "blue")]);
    case.store.whole_run(&ended(row)).await.unwrap();
    case.store.insert_run(&costed(TenantId::LOCAL, 11), &[], &audit("run.create")).await.unwrap();
    let by = SpentBy { tenant: TenantId::LOCAL, key: None, label: None, from: at(0), to: at(100) };
    let spent = |settled, expected| Spent { settled: Usd::picos(settled), expected: Usd::picos(expected) };
    let label = |value: &str| Some(("team".to_owned(), value.to_owned()));
    for (by, expected) in [
        (by.clone(), spent(945, 700)),
        (SpentBy { key: Some("key1".into()), ..by.clone() }, spent(945, 700)),
        (SpentBy { key: Some("key2".into()), ..by.clone() }, spent(0, 0)),
        (SpentBy { label: label("blue"), ..by.clone() }, spent(945, 0)),
        (SpentBy { label: label("red"), key: Some("key1".into()), ..by.clone() }, spent(0, 0)),
        (SpentBy { from: at(11), ..by.clone() }, spent(0, 700)),
        (SpentBy { to: at(11), ..by.clone() }, spent(945, 0)),
    ] {
        assert_eq!(case.store.spent(&by).await.unwrap(), expected, "{by:?}");
    }
    assert_eq!(case.store.credit_used("e2b", at(0)).await.unwrap(), Usd::picos(100));
    assert_eq!(case.store.credit_used("e2b", at(11)).await.unwrap(), Usd::ZERO);
}

async fn what_an_earlier_server_announced_is_billed(case: Case) {
    let (begun, over) = (costed(TenantId::LOCAL, 1), costed(TenantId::LOCAL, 2));
    std::mem::forget(case.store.announce_run(&begun, &[json!(1)], &audit("run.create")));
    let announced = case.store.announce_run(&over, &[json!(1)], &audit("run.create")).unwrap();
    if case.store.is_shared() {
        case.store.whole_run(&ended(over)).await.unwrap();
    } else {
        assert!(case.store.record_run_soon(announced, ended(over)).is_none());
    }
    // Without a word: what is on file is all that is left.
    let next = case.reopen().await;
    next.catch_up().await.unwrap();
    let query = LedgerQuery::of(Some(TenantId::LOCAL), at(0), at(i64::MAX));
    let sum = next.ledger_sums(&query).await.unwrap().remove(0);
    assert_eq!((sum.runs, sum.open, sum.cost()), (2, 1, Usd::picos(945)));
}

async fn old_entries_go_but_not_those_that_used_credits(case: Case) {
    for (created_at, credit) in [(1, 0), (2, 5), (1000, 0)] {
        let mut row = costed(TenantId::LOCAL, created_at);
        row.entry.as_mut().unwrap().labels = labels(&[("a", "b")]);
        let mut whole = ended(row);
        whole.end.bill.as_mut().unwrap().credit = Usd::picos(credit);
        case.store.whole_run(&whole).await.unwrap();
    }
    case.store.insert_run(&costed(TenantId::LOCAL, 1), &[], &audit("run.create")).await.unwrap();
    let swept = case.store.sweep(Retention { ledger_before: Some(at(500)), ..Retention::default() }).await;
    assert_eq!(swept.unwrap().ledger, 1);
    let left = all(&case).await;
    assert_eq!((left.runs, left.open, left.credit), (3, 1, Usd::picos(5)));
}
