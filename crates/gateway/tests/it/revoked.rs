//! A key that was revoked, at every route.

use sandstorm_types::TenantId;

use crate::access::{ask, guarded};
use crate::world::{World, eventually};

#[tokio::test]
async fn a_revoked_key_opens_no_route() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let key = world.make_key(TenantId::LOCAL, "run,sandbox,files,admin", None).await;
    let me = async || world.send(world.request("GET", "/v1/me").header("x-api-key", &key), "").await.status;
    assert_eq!(me().await, 200);
    let id = key.split('_').nth(1).unwrap();
    world.control.revoke_key(&world.control.developer(), id).await.unwrap();
    eventually("it is refused", || async { me().await == 401 }).await;
    for (admin, route) in guarded() {
        let reply = ask(&world, admin, route, Some(&key), &sandbox).await;
        assert_eq!(reply.status, 401, "{route:?}");
    }
    assert_eq!(world.call("GET", &format!("/v1/sandboxes/{sandbox}"), "").await.json()["state"], "ready");
}
