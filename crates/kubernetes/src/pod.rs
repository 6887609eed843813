//! The pod of a sandbox.

use std::time::SystemTime;

use k8s_openapi::api::core::v1::Pod;
use sandstorm_provider::{CreateOptions, Error, Result};
use sandstorm_types::{ErrorKind, SandboxId, SandboxSpec, Template, TenantId};
use serde_json::{Value, json};

use crate::config::{Config, Scratch};
use crate::marks;

/// The container in which everything runs.
pub(crate) const CONTAINER: &str = "sandbox";

/// The container through which the agent's program comes into the pod. No program of a sandbox runs in it.
pub(crate) const CARRIER: &str = "agent";

/// Where the agent's program is. Only the carrier can write there: what this server executes in a pod is its own program,
/// whatever ran there before.
pub(crate) const AGENT_DIR: &str = "/run/sandstorm";

/// Where the agent's socket is, which comes and goes with the agent. Programs can write there: one that puts
/// something else in its place speaks for its own sandbox and no other.
pub(crate) const DOOR_DIR: &str = "/run/sandstorm-door";

/// The places that can be written, all on one file system.
const WRITABLE: [(&str, &str); 3] = [("/workspace", "workspace"), ("/home/user", "home"), ("/tmp", "tmp")];

/// Waits for the end of the pod: the agent is a process beside it.
const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// The user of carriers: not that of the programs, whose number is limited.
const CARRIER_USER: i64 = 65532;

/// What a carrier takes of its node: a shell that sleeps, and for a moment one that copies.
const CARRIER_CPU: &str = "50m";
const CARRIER_MEMORY: &str = "32Mi";
const CARRIER_STORAGE: &str = "16Mi";

/// What a pod may write beside its scratch: the agent's program and what the runtime logs.
const OWN_STORAGE: u64 = 64 << 20;

/// How much longer than its program a pod for one run may live.
const RUN_MARGIN: u64 = 300;

/// Longest annotations that the cluster takes, all together, with room for what others add.
const MOST_ANNOTATION: usize = 200 << 10;

pub(crate) fn pod(
    config: &Config,
    spec: &SandboxSpec,
    opts: &CreateOptions,
    tenant: TenantId,
) -> Result<Pod> {
    let annotations = marks::annotations(spec, config.strict_filter);
    if annotations.values().map(String::len).sum::<usize>() > MOST_ANNOTATION {
        let message = "the variables of the sandbox are too long to be kept with its pod";
        return Err(Error::new(ErrorKind::InvalidRequest, message).with_not_started());
    }
    let mut labels = marks::labels(&config.owner, opts.id, tenant, spec, SystemTime::now());
    labels.insert(marks::MANAGED.0.to_owned(), marks::MANAGED.1.to_owned());
    let user = user_of(opts.id);
    let described = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": marks::name_of(opts.id),
            "namespace": config.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "shareProcessNamespace": false,
            "hostname": "sandbox",
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": deadline(config, spec, opts),
            "runtimeClassName": config.runtime_class,
            "hostUsers": config.user_namespaces.then_some(false),
            "nodeSelector": config.node_labels,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": user,
                "runAsGroup": user,
                "fsGroup": user,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [container(config, spec), carrier(config)],
            "volumes": [
                { "name": "agent", "emptyDir": { "sizeLimit": "16Mi" } },
                { "name": "door", "emptyDir": { "sizeLimit": "1Mi" } },
                { "name": "scratch", "emptyDir": scratch(config, spec) },
            ],
        },
    });
    serde_json::from_value(described).map_err(|error| {
        Error::new(ErrorKind::Internal, "the pod cannot be described").with_not_started().with_source(error)
    })
}

/// The image of a sandbox; `None`: it starts from something else.
pub(crate) fn image<'a>(config: &'a Config, spec: &'a SandboxSpec) -> Option<&'a str> {
    match &spec.template {
        Template::Host => Some(&config.image),
        Template::Image(image) => Some(image),
        Template::Snapshot(_) => None,
    }
}

fn container(config: &Config, spec: &SandboxSpec) -> Value {
    let mut mounts = vec![
        json!({ "name": "agent", "mountPath": AGENT_DIR, "readOnly": true }),
        json!({ "name": "door", "mountPath": DOOR_DIR }),
    ];
    mounts.extend(
        WRITABLE.map(|(path, part)| json!({ "name": "scratch", "mountPath": path, "subPath": part })),
    );
    let resources = resources(config, spec);
    json!({
        "name": CONTAINER,
        "image": image(config, spec),
        "imagePullPolicy": config.pull.as_str(),
        "command": ["/bin/sh", "-c", WAIT],
        "resources": { "limits": resources, "requests": resources },
        "securityContext": context(None),
        "volumeMounts": mounts,
    })
}

/// Its shell writes the agent, so its image is the operator's, whatever image the sandbox has.
fn carrier(config: &Config) -> Value {
    let resources =
        json!({ "cpu": CARRIER_CPU, "memory": CARRIER_MEMORY, "ephemeral-storage": CARRIER_STORAGE });
    json!({
        "name": CARRIER,
        "image": config.image,
        "imagePullPolicy": config.pull.as_str(),
        "command": ["/bin/sh", "-c", WAIT],
        "resources": { "limits": resources, "requests": resources },
        "securityContext": context(Some(CARRIER_USER)),
        "volumeMounts": [{ "name": "agent", "mountPath": AGENT_DIR }],
    })
}

fn context(user: Option<i64>) -> Value {
    json!({
        "runAsUser": user,
        "allowPrivilegeEscalation": false,
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// The kernel charges files in memory to the container that writes them: the container gets that memory on top of its
/// programs', so that a full file system ends none of them. It is requested as well, because full sandboxes really use it.
fn resources(config: &Config, spec: &SandboxSpec) -> Value {
    let space = spec.limits.disk.as_u64();
    let (in_memory, on_disk) = match config.scratch {
        Scratch::Memory => (space, 0),
        Scratch::Disk => (0, space),
    };
    json!({
        "cpu": format!("{}m", spec.limits.cpus.milli()),
        "memory": spec.limits.memory.as_u64().saturating_add(in_memory).to_string(),
        "ephemeral-storage": on_disk.saturating_add(OWN_STORAGE).to_string(),
    })
}

fn scratch(config: &Config, spec: &SandboxSpec) -> Value {
    let medium = match config.scratch {
        Scratch::Memory => "Memory",
        Scratch::Disk => "",
    };
    json!({ "medium": medium, "sizeLimit": spec.limits.disk.as_u64().to_string() })
}

/// When the cluster ends the pod by itself: the last wall, behind our own clocks.
fn deadline(config: &Config, spec: &SandboxSpec, opts: &CreateOptions) -> u64 {
    let longest = config.longest_life.as_secs().max(1);
    match opts.ephemeral {
        true => spec.limits.wall.as_secs().saturating_add(RUN_MARGIN).min(longest),
        false => longest,
    }
}

/// A user that no other pod has: the kernel counts processes by it, on the whole node.
pub(crate) fn user_of(id: SandboxId) -> i64 {
    const FIRST: u128 = 1 << 20;
    const MANY: u128 = (1 << 31) - 2 - FIRST;
    (FIRST + id.bits() % MANY) as i64
}

#[cfg(test)]
mod tests {
    use sandstorm_types::ByteSize;

    use super::*;

    fn made(change: impl FnOnce(&mut Config, &mut SandboxSpec, &mut CreateOptions)) -> Value {
        let mut config = Config::new("far", "me".parse().unwrap(), "python");
        let (mut spec, mut opts) = (SandboxSpec::default(), CreateOptions::default());
        change(&mut config, &mut spec, &mut opts);
        serde_json::to_value(pod(&config, &spec, &opts, TenantId::LOCAL).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_has_no_more_than_it_needs() {
        let pod = made(|_, _, _| {});
        let (of_pod, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
        assert_eq!(of_pod["automountServiceAccountToken"], false);
        assert_eq!(of_pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(of_pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["resources"]["limits"], container["resources"]["requests"]);
        let limits = SandboxSpec::default().limits;
        assert_eq!(
            pod["metadata"]["annotations"].as_object().unwrap().len(),
            1,
            "the strict filter is not asked for"
        );
        let both = limits.memory.as_u64() + limits.disk.as_u64();
        assert_eq!(container["resources"]["limits"]["memory"], both.to_string(), "files lie in memory");
        assert_eq!(of_pod["volumes"][2]["emptyDir"]["sizeLimit"], limits.disk.as_u64().to_string());
        for absent in ["hostNetwork", "hostPID", "hostIPC", "runtimeClassName", "hostUsers"] {
            assert!(of_pod.get(absent).is_none(), "{absent}");
        }
    }

    /// Programs find the agent where they cannot write; it comes through a container in which none of them runs.
    #[test]
    fn the_agents_program_cannot_be_replaced() {
        let pod = made(|_, spec, _| spec.template = Template::Image("a-tenants-own".to_owned()));
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(
            (&containers[0]["image"], &containers[1]["image"]),
            (&json!("a-tenants-own"), &json!("python"))
        );
        let mounts = |index: usize| containers[index]["volumeMounts"].as_array().unwrap().clone();
        let of_agent = |mount: &&Value| mount["name"] == "agent" || mount["mountPath"] == AGENT_DIR;
        assert_eq!((containers.len(), &containers[1]["name"]), (2, &json!(CARRIER)));
        for mount in mounts(0).iter().filter(of_agent) {
            assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(AGENT_DIR), &json!(true)));
        }
        assert_eq!(mounts(0).iter().filter(of_agent).count(), 1);
        assert_eq!(mounts(1), [json!({ "name": "agent", "mountPath": AGENT_DIR })]);
        assert_ne!(
            pod["spec"]["securityContext"]["runAsUser"],
            containers[1]["securityContext"]["runAsUser"]
        );
        assert_eq!(pod["spec"]["shareProcessNamespace"], false);
    }

    #[test]
    fn what_is_asked_for_is_in_it() {
        let pod = made(|config, spec, opts| {
            config.runtime_class = Some("gvisor".to_owned());
            config.scratch = Scratch::Disk;
            config.user_namespaces = true;
            config.strict_filter = true;
            spec.limits.memory = ByteSize::mib(64);
            spec.limits.disk = ByteSize::mib(1);
            spec.template = Template::Image("busybox".to_owned());
            opts.ephemeral = true;
        });
        let container = &pod["spec"]["containers"][0];
        assert_eq!(pod["spec"]["runtimeClassName"], "gvisor");
        assert_eq!(pod["spec"]["hostUsers"], false);
        assert_eq!(pod["spec"]["activeDeadlineSeconds"], 330);
        assert_eq!(pod["metadata"]["annotations"]["sandstorm.sandbox.users.io/system-calls"], "strict");
        assert_eq!(container["image"], "busybox");
        assert_eq!(container["resources"]["limits"]["memory"], "67108864", "files lie on the disk");
        assert_eq!(container["resources"]["limits"]["cpu"], "1000m");
        assert_eq!(container["resources"]["limits"]["ephemeral-storage"], (65 << 20).to_string());
    }

    #[test]
    fn users_are_not_shared() {
        let ids: Vec<_> = (0..100).map(|_| user_of(SandboxId::random())).collect();
        assert!(ids.iter().all(|id| (1 << 20..(1 << 31) - 1).contains(id)));
        assert_eq!(user_of(SandboxId::from_bits(u128::MAX)), user_of(SandboxId::from_bits(u128::MAX)));
    }

    #[test]
    fn variables_without_end_are_refused() {
        let config = Config::new("far", "me".parse().unwrap(), "python");
        let mut env = sandstorm_types::EnvMap::new();
        for name in ["A", "B"] {
            env.insert(name.parse().unwrap(), "x".repeat(110 << 10)).unwrap();
        }
        let spec = SandboxSpec { env, ..SandboxSpec::default() };
        let error = pod(&config, &spec, &CreateOptions::default(), TenantId::LOCAL).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidRequest && error.is_not_started());
    }
}
