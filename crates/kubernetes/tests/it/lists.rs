//! Sandboxes that may reach what a list names. There is no node: whether anybody keeps to it is tried elsewhere.

use k8s_openapi::api::networking::v1::NetworkPolicy as KubePolicy;
use kube::api::ListParams;
use sandstorm_kubernetes::{Enforced, KubernetesProvider};
use sandstorm_provider::{CreateOptions, Provider};
use sandstorm_types::{ErrorKind, SandboxSpec};
use serde_json::{Value, json};

use crate::world::{Kind, World, cx, spec};

fn listed(rules: &[&str]) -> SandboxSpec {
    SandboxSpec { network: serde_json::from_value(json!({ "allow": rules })).unwrap(), ..spec() }
}

async fn policies(world: &World) -> Vec<String> {
    let all = world.api::<KubePolicy>().list(&ListParams::default()).await.unwrap().items;
    all.into_iter()
        .filter_map(|policy| policy.metadata.name)
        .filter(|name| name.starts_with("sbx-"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_there_before_its_pod_and_goes_with_it() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let provider = world.provider().await;
    let opts = CreateOptions::default();
    let (id, name) = (opts.id, format!("sbx-{}", opts.id.bare()));
    let creating = async { provider.create(&cx(), &listed(&["ip:8.8.8.8:53", "ip:10.0.0.1"]), opts).await };
    let looking = async {
        let pod = world.pod(id).await;
        let policy = world.api::<KubePolicy>().get(&name).await.unwrap();
        let policy = serde_json::to_value(policy).unwrap();
        let selected = policy["spec"]["podSelector"]["matchLabels"].as_object().unwrap().clone();
        let labels = pod.metadata.labels.clone().unwrap();
        assert!(selected.iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str()));
        assert_eq!(labels["sandstorm.sandbox.users.io/network"], "allow");
        let port = json!({ "port": 53, "protocol": "TCP" });
        let only = json!([{ "ports": [port], "to": [{ "ipBlock": { "cidr": "8.8.8.8/32" } }] }]);
        assert_eq!(policy["spec"]["egress"], only);
        // Whatever becomes of us, the cluster removes the one with the other.
        for _ in 0..100 {
            let policy = world.api::<KubePolicy>().get(&name).await.unwrap();
            let owners = policy.metadata.owner_references.unwrap_or_default();
            if owners.iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the policy does not go with its pod");
    };
    tokio::select! {
        made = creating => panic!("{made:?}"),
        () = looking => {}
    }
    provider.destroy(&cx(), &id).await.unwrap();
    assert_eq!((world.pod_count().await, policies(&world).await.len()), (0, 0), "something is left");
    // Until a list says otherwise, such a pod reaches nothing.
    let base = world.api::<KubePolicy>().get("sandstorm-me-allow").await.unwrap().spec.unwrap();
    assert!(base.egress.unwrap_or_default().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_refused_leaves_no_list() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let mut config = world.config();
    config.runtime_class = Some("kata".to_owned());
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let made = provider.create(&cx(), &listed(&["ip:8.8.8.8"]), CreateOptions::default()).await;
    let error = made.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Isolation, true), "{error}");
    assert_eq!(policies(&world).await, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_refused_and_so_is_a_network_that_nobody_vouches_for() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let provider = world.provider().await;
    let unmet = provider.admits(&listed(&["ip:8.8.8.8", "example.com"])).unwrap_err();
    assert_eq!((unmet.len(), unmet[0].feature.as_str()), (1, "network_allow"));
    assert!(unmet[0].wanted.contains("example.com"), "{unmet:?}");
    assert!(provider.admits(&listed(&["ip:8.8.8.8"])).is_ok());
    let mut config = world.config();
    config.enforced = Enforced::No;
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let unmet = provider.admits(&listed(&["ip:8.8.8.8"])).unwrap_err();
    assert!(unmet[0].feature == "network_allow" && unmet[0].why.contains("policies"), "{unmet:?}");
    assert_eq!(serde_json::to_value(unmet).unwrap()[0]["offered"], Value::from("no"));
}
