//! What the API server says, and what becomes of it. There is no node: the tests say how the pods stand.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Patch, PatchParams, PostParams};
use sandstorm_kubernetes::{Enforced, KubernetesProvider};
use sandstorm_provider::{CreateOptions, Error, ListFilter, Provider, Sandbox};
use sandstorm_types::{ErrorKind, Retry, SandboxId};
use serde_json::{Value, json};

use crate::world::{Kind, World, cx, from, ready, spec};

/// Creates a sandbox and says how its pod stands once it is there.
async fn create_and_say(
    world: &World,
    provider: KubernetesProvider,
    status: Value,
) -> (SandboxId, Result<Sandbox, Error>) {
    let opts = CreateOptions::default();
    let id = opts.id;
    let creating = async { provider.create(&cx(), &spec(), opts).await };
    let saying = async {
        let pod = world.pod(id).await;
        world.say(pod.metadata.name.as_deref().unwrap(), status).await;
    };
    let (made, ()) = tokio::join!(creating, saying);
    (id, made)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_passes_the_strictest_standard_and_one_that_is_no_use_is_taken_back() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let (_, made) = create_and_say(&world, world.provider().await, ready()).await;
    // Nobody runs it, so nobody can be joined there.
    let error = made.unwrap_err();
    assert!(!error.is_not_started(), "{error:?}");
    assert_eq!(world.pod_count().await, 0, "the pod is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_there_before_pods() {
    let Some(world) = World::new(Kind::Api).await else { return };
    drop(world.provider().await);
    // Meeting it again changes nothing.
    drop(world.provider().await);
    let policies = world.api::<NetworkPolicy>();
    let none = policies.get("sandstorm-me-none").await.unwrap().spec.unwrap();
    assert!(none.egress.unwrap_or_default().is_empty() && none.ingress.unwrap_or_default().is_empty());
    assert_eq!(none.policy_types.unwrap(), ["Ingress", "Egress"]);
    let open = serde_json::to_value(policies.get("sandstorm-me-open").await.unwrap()).unwrap();
    assert!(open.to_string().contains("169.254.0.0/16"), "{open}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_nobody_vouches_for_is_not_offered() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let mut config = world.config();
    config.enforced = Enforced::No;
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let error = provider.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
    assert!(error.is_not_started() && error.reasons()[0].feature == "network_none", "{error}");
    assert_eq!(world.pod_count().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_quota_is_told_from_a_lack_of_rights() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let quotas = world.api::<ResourceQuota>();
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "0" } } });
    quotas.create(&PostParams::default(), &from(quota)).await.unwrap();
    // The part of the controller, which is not here.
    let counted = Patch::Merge(json!({ "status": { "hard": { "pods": "0" }, "used": { "pods": "0" } } }));
    quotas.patch_status("small", &PatchParams::default(), &counted).await.unwrap();
    let provider = world.provider().await;
    let mut error = None;
    for _ in 0..50 {
        // The server reads a new quota a moment later.
        let opts = CreateOptions::default();
        let id = opts.id;
        let create = async { provider.create(&cx(), &spec(), opts).await };
        match tokio::time::timeout(Duration::from_millis(300), create).await {
            Ok(Err(refused)) => {
                error = Some(refused);
                break;
            }
            _ => provider.destroy(&cx(), &id).await.unwrap(),
        }
    }
    let error = error.unwrap();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Quota, Retry::Elsewhere), "{error}");
    assert!(error.is_not_started());
    let nobody = KubernetesProvider::connect(world.config_of("nobody")).await.unwrap_err();
    assert_eq!((nobody.kind(), nobody.retry()), (ErrorKind::Forbidden, Retry::Elsewhere), "{nobody}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_had_is_told_by_its_kind() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let mut config = world.config();
    config.runtime_class = Some("kata".to_owned());
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let error = provider.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Isolation, true), "{error}");

    let mut config = world.config();
    config.namespace = "nowhere".to_owned();
    // Without rights there, a namespace that is not there looks like one that is.
    let error = KubernetesProvider::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    let mut config = world.config_of("admin");
    config.namespace = "nowhere".to_owned();
    let error = KubernetesProvider::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");

    let mut config = world.config();
    config.access = sandstorm_kubernetes::Access::File { path: "/nowhere".into(), context: None };
    let error = KubernetesProvider::connect(config).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::InvalidRequest, true), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_room_and_no_image_are_told_apart() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let full = json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu" }
    ] });
    let (_, made) = create_and_say(&world, world.provider().await, full).await;
    let error = made.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Capacity, Retry::Elsewhere), "{error}");
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    let container = json!({ "name": "sandbox", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": waiting });
    let status = json!({ "phase": "Pending", "containerStatuses": [container] });
    let (_, made) = create_and_say(&world, world.provider().await, status).await;
    let error = made.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere), "{error}");
    assert_eq!(world.pod_count().await, 0, "a pod is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_is_given_up_leaves_nothing() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let provider = Arc::new(world.provider().await);
    for after in [0, 5, 50, 300] {
        let opts = CreateOptions::default();
        let id = opts.id;
        let create = async { provider.create(&cx(), &spec(), opts.clone()).await };
        let _ = tokio::time::timeout(Duration::from_millis(after), create).await;
        provider.destroy(&cx(), &id).await.unwrap();
        assert_eq!(world.pod_count().await, 0, "given up after {after} ms");
        assert_eq!(provider.get(&cx(), &id).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    let listed: Vec<_> = provider.list(&cx(), ListFilter::default()).try_collect().await.unwrap();
    assert!(listed.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_given_once() {
    let Some(world) = World::new(Kind::Api).await else { return };
    let provider = world.provider().await;
    let opts = CreateOptions::default();
    let first = async { provider.create(&cx(), &spec(), opts.clone()).await };
    let second = async {
        world.pod(opts.id).await;
        let again = provider.create(&cx(), &spec(), opts.clone()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict);
        // Another server of ours that was given the same id does not take the pod for its own creation.
        let other = world.provider().await;
        let again = other.create(&cx(), &spec(), opts.clone()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict);
        assert_eq!(world.pod_count().await, 1, "the pod of the first one is gone");
    };
    tokio::select! {
        made = first => panic!("{made:?}"),
        () = second => {}
    }
    provider.destroy(&cx(), &opts.id).await.unwrap();
}
