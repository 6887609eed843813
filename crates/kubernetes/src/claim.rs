//! Sandboxes out of a warm pool of agent-sandbox: a claim is made, and the pool's controller gives it a pod that runs already.
//!
//! What the pod is, its operator's template says. It is looked at before anything runs in it: one that is less than a pod of our
//! own would be is not handed out.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Retry, SandboxId, Timestamp};
use serde_json::json;

use crate::config::WarmPool;
use crate::error::{of, plain};
use crate::{marks, walls};

const GROUP: &str = "extensions.agents.x-k8s.io";
const VERSION: &str = "v1beta1";

/// Reasons of a claim that is not ready which no waiting changes.
const FINAL: [&str; 8] = [
    "InvalidMetadata",
    "EnvVarsInjectionRejected",
    "VolumeClaimTemplatesError",
    "ClaimExpired",
    "SandboxExpired",
    "InvalidConfiguration",
    "PodFailed",
    "PodSucceeded",
];

#[derive(Debug, Clone)]
pub(crate) struct Claims {
    api: Api<DynamicObject>,
    kind: ApiResource,
    pub(crate) pool: WarmPool,
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

impl Claims {
    /// Whether the cluster has such pools, and this one.
    pub(crate) async fn meet(client: &Client, namespace: &str, pool: WarmPool) -> Result<Self> {
        let pools = resource("SandboxWarmPool", "sandboxwarmpools");
        let pools: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &pools);
        if pools.get_opt(&pool.name).await.map_err(of)?.is_none() {
            let message = "the cluster has no such warm pool, or agent-sandbox is not installed there";
            return Err(Error::new(ErrorKind::InvalidRequest, message)
                .with("pool", &pool.name)
                .with_not_started());
        }
        let kind = resource("SandboxClaim", "sandboxclaims");
        Ok(Self { api: Api::namespaced_with(client.clone(), namespace, &kind), kind, pool })
    }

    /// Claims a sandbox that the cluster ends by itself after `longest`.
    pub(crate) async fn make(
        &self,
        id: SandboxId,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        longest: Duration,
    ) -> Result<()> {
        let mut claim = DynamicObject::new(&marks::name_of(id), &self.kind);
        claim.metadata.labels = Some(labels.clone());
        let until = SystemTime::now() + longest;
        claim.data = json!({ "spec": {
            "warmPoolRef": { "name": self.pool.name },
            "lifecycle": { "shutdownTime": Timestamp::from(until).to_string(), "shutdownPolicy": "Delete" },
            "additionalPodMetadata": { "labels": labels, "annotations": annotations },
        } });
        self.api.create(&PostParams::default(), &claim).await.map(drop).map_err(of)
    }

    /// Why the claim will never have a sandbox, if so.
    pub(crate) async fn refusal(&self, id: SandboxId) -> Result<Option<Error>> {
        let claim = self.api.get(&marks::name_of(id)).await.map_err(of)?;
        let conditions = claim.data["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        let Some(ready) = ready.filter(|ready| ready["status"] == "False") else { return Ok(None) };
        let reason = ready["reason"].as_str().unwrap_or_default();
        Ok(FINAL.contains(&reason).then(|| {
            Error::new(ErrorKind::Provider, "the warm pool refused the sandbox")
                .with_retry(Retry::Elsewhere)
                .with("reason", plain(reason))
                .with("message", plain(ready["message"].as_str().unwrap_or_default()))
        }))
    }

    /// Gives a claim up; absent is success.
    pub(crate) async fn delete(&self, id: SandboxId) -> Result<()> {
        match self.api.delete(&marks::name_of(id), &DeleteParams::foreground()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(of(error)),
        }
    }

    /// Whether a pod of the pool has the size that was told.
    pub(crate) fn check(&self, pod: &Pod) -> Result<()> {
        if has_size(&self.pool, pod) {
            return Ok(());
        }
        let message = "a pod of the warm pool has other limits than those that were configured";
        Err(Error::new(ErrorKind::Isolation, message).with("pool", &self.pool.name))
    }
}

/// Whether a pod has the limits of a pool. Files that lie in memory need room beside the memory of programs.
fn has_size(pool: &WarmPool, pod: &Pod) -> bool {
    let resources = walls::container(pod).and_then(|container| container.resources.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let limit = |name: &str| limits?.get(name).and_then(|quantity| milli(&quantity.0));
    let space = if walls::writes_to_memory(pod) { pool.disk.as_u64() } else { 0 };
    let memory = u128::from(pool.memory.as_u64().saturating_add(space)) * 1000;
    limit("cpu") == Some(pool.cpus.milli().into()) && limit("memory") == Some(memory)
}

/// A quantity as Kubernetes writes it, in thousandths.
fn milli(text: &str) -> Option<u128> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        _ => return None,
    };
    number.parse::<u128>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{ByteSize, MilliCpus, NetworkPolicy};

    use super::*;

    fn pool() -> WarmPool {
        WarmPool {
            name: "warm".to_owned(),
            cpus: MilliCpus::ONE,
            memory: ByteSize::mib(512),
            disk: ByteSize::mib(512),
            network: NetworkPolicy::None,
        }
    }

    #[test]
    fn files_in_memory_have_room_beside_programs() {
        let pod = |medium: &str, memory: &str| -> Pod {
            let container = json!({
                "name": "sandbox",
                "resources": { "limits": { "cpu": "1", "memory": memory } },
                "volumeMounts": [{ "name": "work", "mountPath": "/workspace" }],
            });
            let volume = json!({ "name": "work", "emptyDir": { "medium": medium } });
            let spec = json!({ "containers": [container], "volumes": [volume] });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        for (medium, memory, fits) in
            [("", "512Mi", true), ("", "1Gi", false), ("Memory", "512Mi", false), ("Memory", "1Gi", true)]
        {
            assert_eq!(has_size(&pool(), &pod(medium, memory)), fits, "{medium:?} {memory}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (one, other) in [("1", "1000m"), ("512Mi", "536870912"), ("1Gi", "1024Mi"), ("1k", "1000")] {
            assert_eq!(milli(one), milli(other), "{one} {other}");
        }
        assert_eq!((milli("1.5"), milli(""), milli("1Xi")), (None, None, None));
        assert_eq!(u128::from(pool().memory.as_u64()) * 1000, milli("512Mi").unwrap());
    }
}
