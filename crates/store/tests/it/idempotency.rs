//! Requests that are sent twice.

use std::time::Duration;

use sandstorm_store::{AuditKey, Begun, Left, Store, StoredAnswer};
use sandstorm_types::TenantId;

use crate::support::{Case, at, on_both};

on_both!(
    a_finished_request_gives_its_answer,
    an_abandoned_key_is_free,
    of_parallel_requests_one_is_new,
    what_a_dead_server_left_is_taken_over,
    what_this_server_left_is_known_by_what_it_makes,
    after_a_day_the_key_is_new
);

const DAY: i64 = 24 * 3600 * 1000;

fn answer(body: &'static [u8]) -> StoredAnswer {
    StoredAnswer { status: 201, content_type: "application/json".into(), body: body.into() }
}

async fn begin(store: &Store, tenant: TenantId, body: &[u8], millis: i64) -> Begun {
    begin_as(store, tenant, body, "another", millis).await
}

async fn begin_as(store: &Store, tenant: TenantId, body: &[u8], object: &str, millis: i64) -> Begun {
    store.begin_idempotent(tenant, "POST /v1/runs", "key", body, object, at(millis)).await.unwrap()
}

/// A claim without an answer.
fn left(object: &str, note: Option<&str>, millis: i64) -> Begun {
    let (object, note) = (Some(object.to_owned()), note.map(str::to_owned));
    Begun::Left(Left { object, note, begun_at: at(millis) })
}

async fn a_finished_request_gives_its_answer(case: Case) {
    let (store, local) = (&case.store, TenantId::LOCAL);
    assert_eq!(begin_as(store, local, b"a", "first", 1).await, Begun::New);
    assert_eq!(begin(store, local, b"a", 2).await, left("first", None, 1));
    assert_eq!(begin(store, local, b"b", 2).await, Begun::OtherBody);
    let answer = answer(b"\x00\xff{}");
    assert!(store.finish_idempotent(local, "POST /v1/runs", "key", &answer).await.unwrap());
    assert!(!store.finish_idempotent(local, "POST /v1/runs", "key", &answer).await.unwrap());
    assert_eq!(begin(store, local, b"a", 3).await, Begun::Stored(answer));
    assert_eq!(begin(store, local, b"b", 3).await, Begun::OtherBody);
    // Another route or tenant has keys of its own.
    let other = store.begin_idempotent(local, "POST /v1/sandboxes", "key", b"b", "x", at(3)).await.unwrap();
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
    // Which of them goes on is for the one server to say that they all are of.
    assert_eq!(begun.iter().filter(|begun| **begun == left("another", None, 5)).count(), 49);
}

async fn what_a_dead_server_left_is_taken_over(case: Case) {
    let local = TenantId::LOCAL;
    let minute = i64::try_from(Duration::from_secs(60).as_millis()).unwrap();
    assert_eq!(begin_as(&case.store, local, b"a", "first", 1).await, Begun::New);
    assert!(case.store.note_idempotent(local, "POST /v1/runs", "key", "so far").await.unwrap());
    // The next server of the same state directory knows at once that the one before it is gone.
    let next = case.reopen().await;
    assert_eq!(begin(&next, local, b"b", 2).await, Begun::OtherBody);
    assert_eq!(begin_as(&next, local, b"a", "second", 2).await, left("first", Some("so far"), 1));
    // It is no longer the first one's: neither its answer nor its notes count.
    assert!(!case.store.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"late")).await.unwrap());
    assert!(!case.store.note_idempotent(local, "POST /v1/runs", "key", "late").await.unwrap());
    assert!(!case.store.restart_idempotent(local, "POST /v1/runs", "key", "late").await.unwrap());
    case.store.abandon_idempotent(local, "POST /v1/runs", "key").await.unwrap();
    assert_eq!(begin(&next, local, b"a", 2).await, left("first", Some("so far"), 1));

    // One elsewhere is asked for signs of life.
    let mut config = case.config.clone();
    config.audit_key = AuditKey::from_bytes([8; 32]);
    config.audit_anchor = case.path("other.anchor");
    let elsewhere = Store::open(&config).await.unwrap();
    assert_eq!(begin(&elsewhere, local, b"a", minute).await, Begun::InFlight);
    next.beat(at(minute)).await.unwrap();
    assert_eq!(begin(&elsewhere, local, b"a", 2 * minute - 1).await, Begun::InFlight);
    assert_eq!(begin(&elsewhere, local, b"a", 2 * minute).await, left("first", Some("so far"), 1));
    assert!(elsewhere.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"x")).await.unwrap());
}

async fn what_this_server_left_is_known_by_what_it_makes(case: Case) {
    let (store, local) = (&case.store, TenantId::LOCAL);
    assert_eq!(begin_as(store, local, b"a", "first", 1).await, Begun::New);
    assert!(store.note_idempotent(local, "POST /v1/runs", "key", "so far").await.unwrap());
    assert_eq!(begin(store, local, b"a", 2).await, left("first", Some("so far"), 1));
    // What comes to nothing begins once more as something else.
    assert!(store.restart_idempotent(local, "POST /v1/runs", "key", "second").await.unwrap());
    assert_eq!(begin(store, local, b"a", 3).await, left("second", None, 1));
    assert!(store.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"x")).await.unwrap());
    assert!(!store.note_idempotent(local, "POST /v1/runs", "key", "late").await.unwrap());
    assert!(!store.restart_idempotent(local, "POST /v1/runs", "key", "third").await.unwrap());
}

async fn after_a_day_the_key_is_new(case: Case) {
    let local = TenantId::LOCAL;
    assert_eq!(begin(&case.store, local, b"a", 1).await, Begun::New);
    case.store.finish_idempotent(local, "POST /v1/runs", "key", &answer(b"x")).await.unwrap();
    assert!(matches!(begin(&case.store, local, b"a", DAY).await, Begun::Stored(_)));
    assert_eq!(begin_as(&case.store, local, b"other", "next", DAY + 1).await, Begun::New);
    assert_eq!(begin(&case.store, local, b"other", DAY + 2).await, left("next", None, DAY + 1));
}
