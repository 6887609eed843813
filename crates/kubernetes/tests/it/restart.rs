//! Pods outlive us: whoever comes next finds them by their labels, and hears what happens to them.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, PostParams};
use sandstorm_kubernetes::KubernetesProvider;
use sandstorm_provider::{ListFilter, Provider, ProviderEvent};
use sandstorm_types::{ErrorKind, SandboxId, State};
use serde_json::{Value, json};

use crate::world::{Kind, World, cx, from, ready};

/// A pod as an earlier server of this owner left it.
fn left_behind(owner: &str, id: SandboxId) -> Value {
    json!({
        "metadata": {
            "name": format!("sbx-{}", id.bare()),
            "labels": { "sandstorm.sandbox.users.io/owner": owner, "sandstorm.sandbox.users.io/sandbox": id.bare(), "sandstorm.sandbox.users.io/expires": "1700000000" },
            "annotations": { "sandstorm.sandbox.users.io/spec": r#"{"labels": {"a": "b"}}"# },
        },
        "spec": {
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "sandbox",
                "image": "x",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

async fn leave(world: &World, owner: &str) -> SandboxId {
    let id = SandboxId::random();
    world.pods().create(&PostParams::default(), &from(left_behind(owner, id))).await.unwrap();
    id
}

async fn listed(provider: &KubernetesProvider) -> Vec<SandboxId> {
    let all: Vec<_> = provider.list(&cx(), ListFilter::default()).try_collect().await.unwrap();
    all.into_iter().map(|sandbox| sandbox.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_an_earlier_server_are_found_and_removed_but_nobody_elses() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let (ours, theirs) = (leave(&world, "me").await, leave(&world, "another").await);
    world.say(&format!("sbx-{}", ours.bare()), ready()).await;
    let provider = world.provider().await;
    assert_eq!(listed(&provider).await, [ours]);
    let seen = provider.get(&cx(), &ours).await.unwrap();
    assert_eq!((seen.state, seen.labels.get("a")), (State::Ready, Some("b")));
    assert!(seen.expires_at.is_some());
    assert_eq!(provider.get(&cx(), &theirs).await.unwrap_err().kind(), ErrorKind::NotFound);
    provider.destroy(&cx(), &theirs).await.unwrap();
    provider.destroy(&cx(), &ours).await.unwrap();
    provider.destroy(&cx(), &ours).await.unwrap();
    assert_eq!(world.pod_count().await, 1, "the other one's pod is its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_to_pods_is_followed() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let provider = world.provider().await;
    let id = leave(&world, "me").await;
    let name = format!("sbx-{}", id.bare());
    world.say(&name, ready()).await;
    let is = async |state: fn(&State) -> bool| {
        for _ in 0..200 {
            if provider.get(&cx(), &id).await.is_ok_and(|seen| state(&seen.state)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it is {:?}", provider.get(&cx(), &id).await);
    };
    is(State::is_ready).await;
    // Somebody works with it, so its end is news.
    let mut events = provider.events();
    let _ = provider.usage(&cx(), &id).await.unwrap_err();
    world.say(&name, json!({ "phase": "Failed", "reason": "Evicted", "message": "the node is full" })).await;
    is(|state| matches!(state, State::Failed { .. })).await;
    let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap();
    let ProviderEvent::Ended { sandbox, reason } = event else { panic!("{event:?}") };
    assert_eq!((sandbox, reason.as_str()), (id, "Evicted: the node is full"));
    world.pods().delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    for _ in 0..200 {
        if listed(&provider).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a pod that is gone is still listed");
}
