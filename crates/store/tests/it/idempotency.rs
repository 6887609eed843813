//! Requests that are sent twice.

use std::time::Duration;

use sandstorm_store::{AuditKey, Begun, Store, StoredAnswer};
use sandstorm_types::TenantId;

use crate::support::{Case, at, on_both};

on_both!(
    a_finished_request_gives_its_answer,
    an_abandoned_key_is_free,
    of_parallel_requests_one_is_new,
    what_a_dead_server_left_is_taken_over,
    after_a_day_the_key_is_new
);

const DAY: i64 = 24 * 3600 * 1000;

fn answer(body: &'static [u8]) -> StoredAnswer {
    StoredAnswer { status: 201, content_type: "application/json".into(), body: body.into() }
}

async fn begin(store: &Store, tenant: TenantId, body: &[u8], millis: i64) -> Begun {
    store.begin_idempotent(tenant, "POST /v1/runs", "key", body, at(millis)).await.unwrap()
}

async fn a_finished_request_gives_its_answer(case: Case) {
    let (store, local) = (&case.store, TenantId::LOCAL);
    assert_eq!(begin(store, local, b"a", 1).await, Begun::New);
    assert_eq!(begin(store, local, b"a", 2).await, Begun::InFlight);
    assert_eq!(begin(store, local, b"b", 2).await, Begun::OtherBody);
    let answer = answer(b"\x00\xff{}");
    assert!(store.finish_idempotent(local, "POST /v1/runs", "key", &answer).await.unwrap());
    assert!(!store.finish_idempotent(local, "POST /v1/runs", "key", &answer).await.unwrap());
    assert_eq!(begin(store, local, b"a", 3).await, Begun::Stored(answer));
    assert_eq!(begin(store, local, b"b", 3).await, Begun::OtherBody);
    // Another route or tenant has keys of its own.
    let other = store.begin_idempotent(local, "POST /v1/sandboxes", "key", b"b", at(3)).await.unwrap();
    assert_eq!(other, Begun::New);
    let tenant = case.new_tenant("other").await;
    assert_eq!(begin(store, tenant, b"b", 3).await, Begun::New);
}

async fn an_abandoned_key_is_free(case: Case) {
    let local = TenantId::LOCAL;
    assert_eq!(begin(&case.store, local, b"a", 1).await, Begun::New);
    case.store.abandon_idempotent(local, "POST /v1/runs", "key").await.unwrap();
    assert_eq!(begin(&case.store, local, b"b", 2).await, Begun::New);
    case.store.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"x")).await.unwrap();
    case.store.abandon_idempotent(local, "POST /v1/runs", "key").await.unwrap();
    assert!(matches!(begin(&case.store, local, b"b", 3).await, Begun::Stored(_)), "what is done stays done");
}

async fn of_parallel_requests_one_is_new(case: Case) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = case.store.clone();
        tasks.spawn(async move { begin(&store, TenantId::LOCAL, b"a", 5).await });
    }
    let begun = tasks.join_all().await;
    assert_eq!(begun.iter().filter(|begun| **begun == Begun::New).count(), 1);
    assert_eq!(begun.iter().filter(|begun| **begun == Begun::InFlight).count(), 49);
}

async fn what_a_dead_server_left_is_taken_over(case: Case) {
    let local = TenantId::LOCAL;
    let minute = i64::try_from(Duration::from_secs(60).as_millis()).unwrap();
    assert_eq!(begin(&case.store, local, b"a", 1).await, Begun::New);
    // The next server of the same state directory knows at once that the one before it is gone.
    let next = case.reopen().await;
    assert_eq!(begin(&next, local, b"b", 2).await, Begun::OtherBody);
    assert_eq!(begin(&next, local, b"a", 2).await, Begun::New);
    assert!(!case.store.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"late")).await.unwrap());

    // One elsewhere is asked for signs of life.
    let mut config = case.config.clone();
    config.audit_key = AuditKey::from_bytes([8; 32]);
    config.audit_anchor = case.path("other.anchor");
    let elsewhere = Store::open(&config).await.unwrap();
    assert_eq!(begin(&elsewhere, local, b"a", minute).await, Begun::InFlight);
    next.beat(at(minute)).await.unwrap();
    assert_eq!(begin(&elsewhere, local, b"a", 2 * minute - 1).await, Begun::InFlight);
    assert_eq!(begin(&elsewhere, local, b"a", 2 * minute).await, Begun::New);
    assert!(elsewhere.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"x")).await.unwrap());
}

async fn after_a_day_the_key_is_new(case: Case) {
    let local = TenantId::LOCAL;
    assert_eq!(begin(&case.store, local, b"a", 1).await, Begun::New);
    case.store.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"x")).await.unwrap();
    assert!(matches!(begin(&case.store, local, b"a", DAY).await, Begun::Stored(_)));
    assert_eq!(begin(&case.store, local, b"other", DAY + 1).await, Begun::New);
    assert_eq!(begin(&case.store, local, b"other", DAY + 2).await, Begun::InFlight);
}
