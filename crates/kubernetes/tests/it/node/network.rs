//! What sandboxes reach, where the cluster's network keeps to policies and where it does not.

use std::net::TcpListener;

use k8s_openapi::api::networking::v1::NetworkPolicy as KubePolicy;
use kube::api::ListParams;
use sandstorm_kubernetes::{Enforced, KubernetesProvider};
use sandstorm_provider::conformance;
use sandstorm_provider::{CreateOptions, ExecRequest, Provider, ProviderExt};
use sandstorm_types::{Enforcement, ErrorKind, NetMode, NetworkPolicy, SandboxSpec};
use serde_json::json;

use super::{PYTHON, tell, world};
use crate::world::{World, cx, spec};

/// The node's own address, and another one of it that looks like a public one.
const NODE: &str = "10.88.77.1";
const PUBLIC: &str = "223.255.255.1";

const REACHES: &str = "import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(':')
    try:
        socket.create_connection((host, int(port)), 2).close()
        print(place)
    except OSError:
        pass
";

/// Which of these addresses a sandbox with such a network reaches.
async fn reaches(provider: &KubernetesProvider, network: NetworkPolicy, places: &[String]) -> Vec<String> {
    let wanted = SandboxSpec { network: network.clone(), ..spec() };
    let made = provider.create(&cx(), &wanted, CreateOptions::default()).await.unwrap();
    let walls = made.walls.unwrap();
    let mode = match network {
        NetworkPolicy::None => NetMode::None,
        NetworkPolicy::Allow(_) => NetMode::Allow,
        NetworkPolicy::Open | NetworkPolicy::Filter(_) => NetMode::Open,
    };
    assert_eq!(walls.net.mode, mode);
    let line = [PYTHON, "-c", REACHES].map(str::to_owned).into_iter().chain(places.iter().cloned());
    let done = provider.exec_collect(&cx(), &made.id, ExecRequest::program(line)).await.unwrap();
    provider.destroy(&cx(), &made.id).await.unwrap();
    String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
}

fn listen(host: &str) -> (TcpListener, String, u16) {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address.to_string(), address.port())
}

async fn policies(world: &World) -> usize {
    world.api::<KubePolicy>().list(&ListParams::default()).await.unwrap().items.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn each_policy_lets_out_what_it_says() {
    let world = world().await;
    world.keep_policies().await;
    let (_node, node, _) = listen(NODE);
    let (_first, first, port) = listen(PUBLIC);
    let (_second, second, _) = listen(PUBLIC);
    let places = [node.clone(), first.clone(), second.clone()];
    let mut config = world.config();
    config.enforced = Enforced::Tried(node.parse().unwrap());
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let list =
        |rules: &[String]| -> NetworkPolicy { serde_json::from_value(json!({ "allow": rules })).unwrap() };
    let one = list(&[format!("ip:{PUBLIC}:{port}")]);
    let block = list(&[format!("ip:223.255.254.0/23:{port}"), format!("ip:{node}")]);
    for (network, expected) in [
        (NetworkPolicy::None, vec![]),
        (NetworkPolicy::Open, vec![first.clone(), second]),
        (one, vec![first.clone()]),
        // A list is no way to what is not public.
        (block, vec![first]),
    ] {
        let reached = reaches(&provider, network.clone(), &places).await;
        tell(&format!("{network:?} reaches {reached:?} of {places:?}"));
        assert_eq!(reached, expected, "{network:?}");
    }
    assert_eq!((world.pod_count().await, policies(&world).await), (0, 3), "something is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn the_suite_tells_a_network_that_keeps_to_policies_from_one_that_does_not() {
    for keeps in [true, false] {
        let world = world().await;
        if keeps {
            world.keep_policies().await;
        }
        let provider = world.provider().await;
        let base = SandboxSpec { enforcement: Enforcement::BestEffort, ..spec() };
        let report = conformance::run_with(&provider, base, "network/none").await;
        tell(&format!("policies are kept: {keeps}; {report}"));
        assert_eq!(report.passed(), keeps, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn a_network_that_keeps_to_no_policy_is_found_out() {
    let world = world().await;
    let mut config = world.config();
    // The bridge of this node knows no policies, and something listens at the node's address.
    let listener = std::net::TcpListener::bind("10.88.77.1:0").unwrap();
    config.enforced = Enforced::Tried(listener.local_addr().unwrap());
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let error = provider.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
    tell(&error.to_string());
    assert_eq!(error.kind(), ErrorKind::Isolation, "{error}");
    assert_eq!(world.pod_count().await, 0, "the pod is left");
    drop(listener);
}
