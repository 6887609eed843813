//! Sandboxes out of a warm pool. The pool's controller is played here: the API is real.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use sandstorm_kubernetes::{Config, KubernetesProvider, WarmPool};
use sandstorm_provider::{CreateOptions, Provider};
use sandstorm_types::{ErrorKind, SandboxId};
use serde_json::{Value, json};

use crate::world::{Kind, World, cx, from, ready, spec};

const GROUP: &str = "extensions.agents.x-k8s.io";

fn definition(kind: &str, plural: &str) -> Value {
    json!({
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1beta1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

fn objects(world: &World, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1beta1", kind), plural);
    Api::namespaced_with(world.admin.clone(), &world.namespace, &resource)
}

fn claims(world: &World) -> Api<DynamicObject> {
    objects(world, "SandboxClaim", "sandboxclaims")
}

/// What agent-sandbox installs, and a pool.
async fn install(world: &World) {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.admin.clone());
    for (kind, plural) in [("SandboxClaim", "sandboxclaims"), ("SandboxWarmPool", "sandboxwarmpools")] {
        // Another test may have been first.
        let _ = definitions.create(&PostParams::default(), &from(definition(kind, plural))).await;
    }
    let pool = json!({
        "apiVersion": format!("{GROUP}/v1beta1"),
        "kind": "SandboxWarmPool",
        "metadata": { "name": "warm" },
        "spec": { "replicas": 1, "sandboxTemplateRef": { "name": "python" } },
    });
    let pools = objects(world, "SandboxWarmPool", "sandboxwarmpools");
    for _ in 0..100 {
        if pools.create(&PostParams::default(), &from(pool.clone())).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the definitions are not served");
}

fn pooled(world: &World) -> Config {
    let limits = spec().limits;
    let mut config = world.config();
    config.warm_pool = Some(WarmPool {
        name: "warm".to_owned(),
        cpus: limits.cpus,
        memory: limits.memory,
        disk: limits.disk,
        network: spec().network,
    });
    config
}

async fn claim_of(world: &World, id: SandboxId) -> DynamicObject {
    for _ in 0..200 {
        if let Some(claim) = claims(world).get_opt(&format!("sbx-{}", id.bare())).await.unwrap() {
            return claim;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing was claimed");
}

/// Gives a claim a pod out of the pool, under another name.
async fn give(world: &World, id: SandboxId, walls: bool) {
    let claim = claim_of(world, id).await;
    let metadata = &claim.data["spec"]["additionalPodMetadata"];
    let context = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let pod = json!({
        "metadata": { "name": format!("warm-{}", id.bare()), "labels": metadata["labels"], "annotations": metadata["annotations"] },
        "spec": {
            "automountServiceAccountToken": if walls { json!(false) } else { Value::Null },
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "sandbox",
                "image": "x",
                "resources": { "limits": { "cpu": "1", "memory": "512Mi" } },
                "securityContext": context,
                "volumeMounts": [{ "name": "agent", "mountPath": "/run/sandstorm", "readOnly": true }],
            }, {
                "name": "agent",
                "image": "x",
                "securityContext": context,
                "volumeMounts": [{ "name": "agent", "mountPath": "/run/sandstorm" }],
            }],
            "volumes": [{ "name": "agent", "emptyDir": {} }],
        },
    });
    world.pods().create(&PostParams::default(), &from(pod)).await.unwrap();
    world.say(&format!("warm-{}", id.bare()), ready()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_not_there_is_told() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let mut config = pooled(&world);
    config.warm_pool.as_mut().unwrap().name = "another".to_owned();
    let error = KubernetesProvider::connect(config).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::InvalidRequest, true), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fitting_sandbox_is_claimed_and_its_walls_are_looked_at() {
    let Some(world) = World::new(Kind::Api).await else { return };
    install(&world).await;
    let provider = KubernetesProvider::connect(pooled(&world)).await.unwrap();
    for (walls, kind) in [(false, ErrorKind::Isolation), (true, ErrorKind::Provider)] {
        let opts = CreateOptions::default();
        let id = opts.id;
        let creating = async { provider.create(&cx(), &spec(), opts).await };
        let (made, ()) = tokio::join!(creating, give(&world, id, walls));
        let error = made.unwrap_err();
        // With all its walls it is joined, for which there is no node here.
        let isolation = error.kind() == ErrorKind::Isolation;
        assert_eq!(isolation, kind == ErrorKind::Isolation, "{error}");
        assert_eq!(world.pod_count().await, 0, "a pod is left");
        let left = claims(&world).list(&kube::api::ListParams::default()).await.unwrap().items;
        assert!(left.iter().all(|claim| claim.metadata.deletion_timestamp.is_some()), "a claim is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_refused_is_not_waited_for() {
    let Some(world) = World::new(Kind::Api).await else { return };
    install(&world).await;
    let provider = KubernetesProvider::connect(pooled(&world)).await.unwrap();
    let opts = CreateOptions::default();
    let id = opts.id;
    let creating = async { provider.create(&cx(), &spec(), opts).await };
    let refusing = async {
        claim_of(&world, id).await;
        let condition =
            json!({ "type": "Ready", "status": "False", "reason": "InvalidMetadata", "message": "no" });
        let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let name = format!("sbx-{}", id.bare());
        claims(&world).patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    };
    let (made, ()) = tokio::join!(creating, refusing);
    let error = made.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error}");
    assert!(error.to_string().contains("InvalidMetadata"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_the_pool_is_made_as_a_pod() {
    let Some(world) = World::new(Kind::Api).await else { return };
    install(&world).await;
    let provider = KubernetesProvider::connect(pooled(&world)).await.unwrap();
    let mut large = spec();
    large.limits.memory = sandstorm_types::ByteSize::mib(1024);
    for (spec, pooled) in [(large, true), (spec(), false)] {
        let opts = CreateOptions { pooled, ..CreateOptions::default() };
        let id = opts.id;
        let creating = async { provider.create(&cx(), &spec, opts).await };
        tokio::select! {
            made = creating => panic!("{made:?}"),
            _ = world.pod(id) => {}
        }
        provider.destroy(&cx(), &id).await.unwrap();
        assert_eq!(world.pod_count().await, 0);
    }
}
