//! Sandboxes out of a warm pool whose controller is agent-sandbox's own.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use sandstorm_kubernetes::{KubernetesProvider, WarmPool};
use sandstorm_provider::{CreateOptions, ExecRequest, Provider, ProviderExt};
use sandstorm_types::{ByteSize, MilliCpus};
use serde_json::{Value, json};

use super::{PYTHON, tell, world};
use crate::world::{cx, spec};

fn pool_object(kind: &str, plural: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("extensions.agents.x-k8s.io", "v1beta1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// A pool of one pod that is what ours are.
fn pool_template() -> Value {
    let resources = json!({ "cpu": "250m", "memory": "256Mi" });
    let mounts = [
        ("agent", "/run/sandstorm"),
        ("door", "/run/sandstorm-door"),
        ("work", "/workspace"),
        ("home", "/home/user"),
        ("tmp", "/tmp"),
    ];
    let small = json!({ "cpu": "50m", "memory": "32Mi" });
    let walls = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let wait = json!(["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]);
    json!({
        "networkPolicyManagement": "Unmanaged",
        "podTemplate": { "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 2_000_000, "fsGroup": 2_000_000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "sandbox",
                "image": "docker.io/sandstorm/python:1",
                "imagePullPolicy": "Never",
                "command": wait,
                "resources": { "limits": resources, "requests": resources },
                "securityContext": walls,
                "volumeMounts": mounts.map(|(name, path)| {
                    json!({ "name": name, "mountPath": path, "readOnly": name == "agent" })
                }),
            }, {
                "name": "agent",
                "image": "docker.io/sandstorm/python:1",
                "imagePullPolicy": "Never",
                "command": wait,
                "resources": { "limits": small, "requests": small },
                "securityContext": walls,
                "volumeMounts": [{ "name": "agent", "mountPath": "/run/sandstorm" }],
            }],
            "volumes": mounts.map(|(name, _)| json!({ "name": name, "emptyDir": {} })),
        } },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn a_sandbox_comes_out_of_a_warm_pool() {
    let world = world().await;
    let templates = pool_object("SandboxTemplate", "sandboxtemplates");
    let pools = pool_object("SandboxWarmPool", "sandboxwarmpools");
    let mut template = DynamicObject::new("python", &templates);
    template.data = json!({ "spec": pool_template() });
    let mut pool = DynamicObject::new("warm", &pools);
    pool.data = json!({ "spec": { "replicas": 1, "sandboxTemplateRef": { "name": "python" } } });
    let templates: Api<DynamicObject> =
        Api::namespaced_with(world.admin.clone(), &world.namespace, &templates);
    let pools: Api<DynamicObject> = Api::namespaced_with(world.admin.clone(), &world.namespace, &pools);
    templates.create(&PostParams::default(), &template).await.unwrap();
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let mut waited = 0;
    while pools.get("warm").await.unwrap().data["status"]["readyReplicas"] != json!(1) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waited += 1;
        assert!(waited < 600, "the pool does not fill: {:?}", pools.get("warm").await.unwrap().data);
    }
    let mut wanted = spec();
    (wanted.limits.cpus, wanted.limits.memory) = (MilliCpus::new(250), ByteSize::mib(256));
    let mut config = world.config();
    config.warm_pool = Some(WarmPool {
        name: "warm".to_owned(),
        cpus: wanted.limits.cpus,
        memory: wanted.limits.memory,
        disk: wanted.limits.disk,
        network: wanted.network.clone(),
    });
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let begin = Instant::now();
    let id = provider.create(&cx(), &wanted, CreateOptions::default()).await.unwrap().id;
    tell(&format!("out of the warm pool after {} ms", begin.elapsed().as_millis()));
    let done = provider
        .exec_collect(&cx(), &id, ExecRequest::program([PYTHON, "-c", "print(6 * 7)"]))
        .await
        .unwrap();
    assert_eq!(done.stdout, "42\n");
    provider.destroy(&cx(), &id).await.unwrap();
    let claims = pool_object("SandboxClaim", "sandboxclaims");
    let claims: Api<DynamicObject> = Api::namespaced_with(world.admin.clone(), &world.namespace, &claims);
    // It goes when its controller has let go of it.
    let left = claims.list(&kube::api::ListParams::default()).await.unwrap().items;
    assert!(left.iter().all(|claim| claim.metadata.deletion_timestamp.is_some()), "a claim is left");
    pools.delete("warm", &DeleteParams::foreground()).await.unwrap();
}
