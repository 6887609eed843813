//! Sandboxes out of a warm pool of agent-sandbox: a claim is made, and the pool's controller gives it a pod that runs already.
//!
//! What the pod is, its operator's template says. It is looked at before anything runs in it: one that is less than a pod of our
//! own would be is not handed out.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Retry, SandboxId, Timestamp};
use serde_json::json;

use crate::config::WarmPool;
use crate::error::{of, plain};
use crate::marks;
use crate::pod::CONTAINER;

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

    /// Whether a pod of the pool is no less than one of ours.
    pub(crate) fn check(&self, pod: &Pod) -> Result<()> {
        let lacking = |what: &'static str| {
            Err(Error::new(ErrorKind::Isolation, "a pod of the warm pool lacks a wall").with("wall", what))
        };
        let Some(spec) = &pod.spec else { return lacking("spec") };
        let Some(container) = spec.containers.iter().find(|container| container.name == CONTAINER) else {
            return lacking("a container of the name `sandbox`");
        };
        if let Some(what) = missing_wall(spec, container) {
            return lacking(what);
        }
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        let limit = |name: &str| limits?.get(name).and_then(|quantity| milli(&quantity.0));
        let memory = u128::from(self.pool.memory.as_u64()) * 1000;
        if limit("cpu") != Some(self.pool.cpus.milli().into()) || limit("memory") != Some(memory) {
            return lacking("limits as configured");
        }
        Ok(())
    }
}

fn missing_wall(spec: &PodSpec, container: &Container) -> Option<&'static str> {
    let of_pod = spec.security_context.as_ref();
    let own = container.security_context.as_ref();
    let walls = [
        (spec.automount_service_account_token == Some(false), "automountServiceAccountToken: false"),
        (![spec.host_network, spec.host_pid, spec.host_ipc].contains(&Some(true)), "namespaces of its own"),
        (
            own.and_then(|own| own.run_as_non_root).or(of_pod.and_then(|pod| pod.run_as_non_root))
                == Some(true),
            "runAsNonRoot: true",
        ),
        (
            own.and_then(|own| own.allow_privilege_escalation) == Some(false),
            "allowPrivilegeEscalation: false",
        ),
        (own.and_then(|own| own.privileged) != Some(true), "no privileges"),
        (
            own.and_then(|own| own.capabilities.as_ref()?.drop.as_ref())
                .is_some_and(|drop| drop.iter().any(|name| name == "ALL")),
            "capabilities.drop: [ALL]",
        ),
        (spec.volumes.iter().flatten().all(|volume| volume.host_path.is_none()), "no paths of the node"),
    ];
    walls.into_iter().find_map(|(stands, name)| (!stands).then_some(name))
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
    use serde_json::Value;

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

    fn good() -> Value {
        json!({
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true },
            "containers": [{
                "name": "sandbox",
                "resources": { "limits": { "cpu": "1", "memory": "512Mi" } },
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        })
    }

    fn verdict(spec: Value) -> Option<&'static str> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        missing_wall(&spec, &spec.containers[0])
    }

    #[test]
    fn a_pod_that_is_less_than_ours_is_refused() {
        assert_eq!(verdict(good()), None);
        let token = {
            let mut pod = good();
            pod["automountServiceAccountToken"] = Value::Null;
            pod
        };
        let network = {
            let mut pod = good();
            pod["hostNetwork"] = true.into();
            pod
        };
        let root = {
            let mut pod = good();
            pod["securityContext"] = Value::Null;
            pod
        };
        let node = {
            let mut pod = good();
            pod["volumes"] = json!([{ "name": "n", "hostPath": { "path": "/" } }]);
            pod
        };
        for field in ["allowPrivilegeEscalation", "capabilities"] {
            let mut pod = good();
            pod["containers"][0]["securityContext"][field] = Value::Null;
            assert!(verdict(pod).is_some(), "{field}");
        }
        for pod in [token, network, root, node] {
            assert!(verdict(pod.clone()).is_some(), "{pod}");
        }
        let mut privileged = good();
        privileged["containers"][0]["securityContext"]["privileged"] = true.into();
        assert_eq!(verdict(privileged), Some("no privileges"));
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
