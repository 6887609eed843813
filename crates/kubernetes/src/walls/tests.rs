use sandstorm_types::SandboxId;
use serde_json::{Value, json};

use super::*;

fn good() -> Value {
    json!({
        "automountServiceAccountToken": false,
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{
            "name": "sandbox",
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [
                { "name": "agent", "mountPath": "/run/sandstorm", "readOnly": true },
                { "name": "work", "mountPath": "/workspace" },
            ],
        }, {
            "name": "agent",
            "volumeMounts": [{ "name": "agent", "mountPath": "/run/sandstorm" }],
        }],
    })
}

fn config() -> Config {
    Config::new("far", "me".parse().unwrap(), "python")
}

fn pod(spec: &Value) -> Pod {
    serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
}

/// The wall that a pod lacks which is good but for one field.
fn without(pointer: &str, value: Value) -> Option<String> {
    let mut spec = good();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[name] = value;
    check(&config(), &pod(&spec)).err().map(|error| {
        assert_eq!(error.kind(), ErrorKind::Isolation);
        error.to_string()
    })
}

#[test]
fn a_pod_that_is_less_than_ours_is_refused() {
    assert!(check(&config(), &pod(&good())).is_ok());
    for (pointer, value) in [
        ("/automountServiceAccountToken", Value::Null),
        ("/hostNetwork", true.into()),
        ("/hostPID", true.into()),
        ("/hostIPC", true.into()),
        ("/securityContext/runAsNonRoot", Value::Null),
        ("/securityContext/seccompProfile", Value::Null),
        ("/securityContext/seccompProfile", json!({ "type": "Unconfined" })),
        ("/containers/0/securityContext/allowPrivilegeEscalation", Value::Null),
        ("/containers/0/securityContext/capabilities", Value::Null),
        ("/containers/0/securityContext/capabilities", json!({ "drop": ["ALL"], "add": ["NET_ADMIN"] })),
        ("/containers/0/securityContext/privileged", true.into()),
        ("/containers/0/securityContext/runAsNonRoot", false.into()),
        ("/containers/0/securityContext/seccompProfile", json!({ "type": "Unconfined" })),
        ("/containers/0/name", "another".into()),
        ("/shareProcessNamespace", true.into()),
        ("/containers/0/volumeMounts", Value::Null),
        ("/containers/0/volumeMounts/0/readOnly", Value::Null),
        ("/containers/0/volumeMounts/0/readOnly", false.into()),
        ("/containers/0/volumeMounts/1/name", "agent".into()),
        ("/containers/0/volumeMounts/1/mountPath", "/run/sandstorm/agent".into()),
        ("/containers/1/name", "another".into()),
        ("/containers/1/volumeMounts/0/name", "another".into()),
        ("/volumes", json!([{ "name": "n", "hostPath": { "path": "/" } }])),
    ] {
        assert!(without(pointer, value.clone()).is_some(), "{pointer} {value}");
    }
}

#[test]
fn what_the_operator_counts_on_has_to_be_there() {
    let mut config = config();
    config.user_namespaces = true;
    config.runtime_class = Some("kata".to_owned());
    config.isolation = Isolation::MicroVm;
    // As a server answers that knows neither field.
    let dropped = pod(&good());
    assert!(check(&config, &dropped).is_err());
    assert_eq!(isolation(&config, &dropped), Isolation::Container);
    let mut spec = good();
    spec["hostUsers"] = false.into();
    assert!(check(&config, &pod(&spec)).is_err(), "the class is missing");
    spec["runtimeClassName"] = "kata".into();
    assert!(check(&config, &pod(&spec)).is_ok());
    assert_eq!(isolation(&config, &pod(&spec)), Isolation::MicroVm);
}

#[test]
fn a_network_counts_as_tried_only_if_it_was() {
    let mut config = config();
    let mut misses_net = |address: &str, network: Value| {
        config.enforced = Enforced::Tried(address.parse().unwrap());
        let network = serde_json::from_value(network).unwrap();
        let wanted = SandboxSpec { network, ..SandboxSpec::default() };
        let walls = report(&config, &wanted, &pod(&good()));
        walls.missing.iter().any(|wall| wall.name == "net")
    };
    for rule in ["ip:0.0.0.0/0:443", "ip:10.96.0.1:443"] {
        assert!(!misses_net("10.96.0.1:443", json!({ "allow": [rule] })), "{rule}");
    }
    for rule in ["ip:0.0.0.0/0:443", "ip:8.8.8.8:443"] {
        assert!(misses_net("8.8.8.8:443", json!({ "allow": [rule] })), "{rule}");
    }
    assert!(!misses_net("8.8.8.8:443", json!("none")) && misses_net("10.96.0.1:443", json!("open")));
}

/// A pod keeps its filter when the configuration changes.
#[test]
fn the_report_names_the_filter_of_the_pod() {
    let (wanted, opts) = (SandboxSpec::default(), sandstorm_provider::CreateOptions::default());
    let with = |strict_filter| Config { strict_filter, ..config() };
    for (strict_filter, named) in
        [(false, "RuntimeDefault, payload"), (true, "RuntimeDefault, payload-strict")]
    {
        let tenant = sandstorm_types::TenantId::LOCAL;
        let made = crate::pod::pod(&with(strict_filter), &wanted, &opts, tenant).unwrap();
        for config in [with(false), with(true)] {
            assert_eq!(report(&config, &wanted, &made).seccomp.unwrap().profile, named);
            let weaker = config.strict_filter && !strict_filter;
            assert_eq!(check(&config, &made).is_err(), weaker, "{named}");
        }
    }
}

#[test]
fn the_report_claims_what_the_pod_says_and_names_the_rest() {
    let (id, wanted) = (SandboxId::random(), SandboxSpec::default());
    let opts = sandstorm_provider::CreateOptions { id, ..Default::default() };
    let mut config = config();
    config.enforced = Enforced::Declared;
    config.loose_limits = true;
    let made = crate::pod::pod(&config, &wanted, &opts, sandstorm_types::TenantId::LOCAL).unwrap();
    assert!(check(&config, &made).is_ok(), "our own pods have every wall");
    let walls = report(&config, &wanted, &made);
    assert_eq!(walls.tier, Isolation::Container);
    assert!(walls.uid_wall && walls.pidns && walls.netns && walls.ipcns && walls.nnp && !walls.userns);
    assert_eq!((walls.caps.bounding, walls.net.mode), (0, NetMode::None));
    assert!(walls.seccomp.is_some_and(|seccomp| seccomp.profile.starts_with("RuntimeDefault")));
    let missing: Vec<_> = walls.missing.iter().map(|wall| wall.name.as_str()).collect();
    assert_eq!(missing, ["cgroupns", "pivot", "landlock", "cgroup", "userns", "net"]);
    let missing: Vec<_> = walls.limits.missing.iter().map(|limit| limit.name).collect();
    assert_eq!(missing, [LimitName::Memory, LimitName::Processes, LimitName::Inodes]);
    config.scratch = crate::config::Scratch::Disk;
    let on_disk = report(&config, &wanted, &made).limits;
    let missing: Vec<_> = on_disk.missing.iter().map(|limit| limit.name).collect();
    assert_eq!(missing, [LimitName::Processes, LimitName::Disk, LimitName::Inodes]);
    // A pod that says less has less.
    let bare =
        report(&config, &wanted, &pod(&json!({ "containers": [{ "name": "sandbox" }], "hostPID": true })));
    assert!(!bare.nnp && !bare.pidns && !bare.uid_wall && bare.seccomp.is_none());
    assert_eq!((bare.caps.bounding, bare.proc), (u64::MAX, ProcWall::Host));
    assert!(!report(&config, &wanted, &Pod::default()).mountns);
}
