//! Names of sandboxes.

use sandstorm_store::Claimed;
use sandstorm_types::{SandboxId, TenantId};

use crate::support::{Case, on_both};

on_both!(of_many_claims_one_gets_the_name, a_name_can_be_released_by_its_owner_alone);

async fn of_many_claims_one_gets_the_name(case: Case) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let store = case.store.clone();
        tasks.spawn(async move {
            let id = SandboxId::random();
            (id, store.claim_name(TenantId::LOCAL, "session", "n", id).await.unwrap())
        });
    }
    let claims = tasks.join_all().await;
    let owners: Vec<SandboxId> =
        claims.iter().filter(|(_, claim)| *claim == Claimed::Claimed).map(|(id, _)| *id).collect();
    let [owner] = owners[..] else { panic!("{} owners", owners.len()) };
    assert!(claims.iter().all(|(id, claim)| *id == owner || *claim == Claimed::Taken(owner)));
    assert_eq!(case.store.name(TenantId::LOCAL, "session", "n").await.unwrap(), Some(owner));
    let again = case.store.claim_name(TenantId::LOCAL, "session", "n", owner).await.unwrap();
    assert_eq!(again, Claimed::Claimed, "its owner may ask again");
}

async fn a_name_can_be_released_by_its_owner_alone(case: Case) {
    let store = &case.store;
    let (tenant, id, other) = (case.new_tenant("one").await, SandboxId::random(), SandboxId::random());
    for name in ["b", "a"] {
        store.claim_name(tenant, "session", name, id).await.unwrap();
    }
    assert_eq!(store.claim_name(tenant, "other kind", "a", other).await.unwrap(), Claimed::Claimed);
    assert_eq!(store.claim_name(TenantId::LOCAL, "session", "a", other).await.unwrap(), Claimed::Claimed);
    assert!(!store.release_name(tenant, "session", "a", other).await.unwrap());
    let names: Vec<String> =
        store.names(tenant, "session").await.unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(store.release_name(tenant, "session", "a", id).await.unwrap());
    assert!(!store.release_name(tenant, "session", "a", id).await.unwrap());
    assert_eq!(store.claim_name(tenant, "session", "a", other).await.unwrap(), Claimed::Claimed);
}
