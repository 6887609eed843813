//! Tenants and keys.

use sandstorm_store::{StoreError, TenantRow};
use sandstorm_types::TenantId;
use serde_json::json;

use crate::support::{Case, at, audit, key, on_both};

on_both!(
    the_local_tenant_is_always_there,
    tenants_come_back_and_names_are_theirs_alone,
    keys_are_found_by_id_and_hash,
    revocation_and_expiry_are_never_put_off,
    last_use_never_goes_back,
    a_refused_change_leaves_no_audit
);

async fn the_local_tenant_is_always_there(case: Case) {
    let local = case.store.tenant(TenantId::LOCAL).await.unwrap().unwrap();
    assert_eq!((local.id, &*local.name), (TenantId::LOCAL, "local"));
    assert!(!case.store.has_keys().await.unwrap());
    case.store.health().await.unwrap();
}

async fn tenants_come_back_and_names_are_theirs_alone(case: Case) {
    let quota = Some(json!({"sandboxes": 3}));
    let row = TenantRow { id: TenantId::random(), name: "Ünï".into(), quota, created_at: at(9) };
    case.store.create_tenant(&row, &audit("tenant.create")).await.unwrap();
    assert_eq!(case.store.tenant(row.id).await.unwrap(), Some(row.clone()));
    let again = TenantRow { id: TenantId::random(), ..row.clone() };
    let error = case.store.create_tenant(&again, &audit("tenant.create")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");

    let quota = json!({"sandboxes": 5});
    assert!(case.store.set_tenant_quota(row.id, Some(&quota), &audit("tenant.quota")).await.unwrap());
    assert_eq!(case.store.tenant(row.id).await.unwrap().unwrap().quota, Some(quota));
    assert!(case.store.set_tenant_quota(row.id, None, &audit("tenant.quota")).await.unwrap());
    assert_eq!(case.store.tenants().await.unwrap()[1].quota, None);
    assert!(!case.store.set_tenant_quota(TenantId::random(), None, &audit("tenant.quota")).await.unwrap());
}

async fn keys_are_found_by_id_and_hash(case: Case) {
    let tenant = case.new_tenant("a").await;
    let (ours, theirs) = (key(TenantId::LOCAL, "one"), key(tenant, "two"));
    for row in [&ours, &theirs] {
        case.store.create_key(row, &audit("key.create")).await.unwrap();
    }
    assert!(case.store.has_keys().await.unwrap());
    assert_eq!(case.store.key("two").await.unwrap(), Some(theirs.clone()));
    assert_eq!(case.store.key_by_hash(&ours.hash).await.unwrap(), Some(ours.clone()));
    assert_eq!(case.store.key("three").await.unwrap(), None);
    assert_eq!(case.store.key("ONE").await.unwrap(), None);
    assert_eq!(case.store.key_by_hash(b"").await.unwrap(), None);
    assert_eq!(case.store.keys(Some(tenant)).await.unwrap(), std::slice::from_ref(&theirs));
    assert_eq!(case.store.keys(None).await.unwrap(), [ours, theirs]);

    let stranger = key(TenantId::random(), "four");
    let error = case.store.create_key(&stranger, &audit("key.create")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
}

async fn revocation_and_expiry_are_never_put_off(case: Case) {
    case.store.create_key(&key(TenantId::LOCAL, "one"), &audit("key.create")).await.unwrap();
    let expire = |millis| {
        let store = case.store.clone();
        async move { store.expire_key("one", at(millis), &audit("key.expire")).await.unwrap().unwrap().expires_at }
    };
    assert_eq!(expire(500).await, Some(at(500)));
    assert_eq!(expire(900).await, Some(at(500)));
    assert_eq!(expire(300).await, Some(at(300)));
    for millis in [100, 200] {
        let row = case.store.revoke_key("one", at(millis), &audit("key.revoke")).await.unwrap().unwrap();
        assert_eq!(row.revoked_at, Some(at(100)));
    }
    assert_eq!(case.store.revoke_key("none", at(1), &audit("key.revoke")).await.unwrap(), None);
}

async fn last_use_never_goes_back(case: Case) {
    case.store.create_key(&key(TenantId::LOCAL, "one"), &audit("key.create")).await.unwrap();
    for millis in [50, 40] {
        let used = [("one".to_owned(), at(millis)), ("gone".to_owned(), at(1))];
        case.store.touch_keys(&used).await.unwrap();
        assert_eq!(case.store.key("one").await.unwrap().unwrap().last_used_at, Some(at(50)));
    }
}

async fn a_refused_change_leaves_no_audit(case: Case) {
    case.store.create_key(&key(TenantId::LOCAL, "one"), &audit("key.create")).await.unwrap();
    let before = case.store.audit(None, 0, 100).await.unwrap().len();
    case.store.create_key(&key(TenantId::LOCAL, "one"), &audit("key.create")).await.unwrap_err();
    case.store.revoke_key("none", at(1), &audit("key.revoke")).await.unwrap();
    let mut with_nul = key(TenantId::LOCAL, "two");
    with_nul.name = "a\0b".into();
    let error = case.store.create_key(&with_nul, &audit("key.create")).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");
    assert_eq!(case.store.audit(None, 0, 100).await.unwrap().len(), before);
}
