//! The network policies that our pods are under: two for all of them, told apart by a label.
//!
//! A policy only allows; where none selects a pod, everything is allowed. So they are there before the first pod is, and each
//! pod carries its label from the beginning.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{Patch, PatchParams};
use sandstorm_provider::Result;
use serde_json::{Value, json};

use crate::config::Owner;
use crate::error::of;
use crate::marks;

/// What is not the public network: private, shared, loopback, link-local (where clouds keep their credentials), reserved.
const PRIVATE_V4: [&str; 10] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// All public addresses of version 6, and among them those in which one of version 4 may hide.
const PUBLIC_V6: &str = "2000::/3";
const TUNNELS: [&str; 2] = ["2001::/32", "2002::/16"];

/// Makes both policies, or makes them what they should be.
pub(crate) async fn ensure(api: &Api<NetworkPolicy>, owner: &Owner) -> Result<()> {
    for policy in [nothing(owner), open(owner)] {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let ours = PatchParams::apply("sandstorm").force();
        api.patch(&name, &ours, &Patch::Apply(&policy)).await.map_err(of)?;
    }
    Ok(())
}

fn policy(owner: &Owner, network: &str, egress: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": { "name": format!("sandstorm-{owner}-{network}"), "labels": { marks::OWNER: owner.as_str() } },
        "spec": {
            "podSelector": { "matchLabels": { marks::OWNER: owner.as_str(), marks::NETWORK: network } },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": egress,
        },
    })
}

/// Nobody in, nobody out. Our own way in is the node's, which no policy is about.
fn nothing(owner: &Owner) -> Value {
    policy(owner, "none", json!([]))
}

/// Nobody in; out to public addresses. The cluster's own resolver is not one, so names are asked of a public one.
fn open(owner: &Owner) -> Value {
    let to = json!([
        { "ipBlock": { "cidr": "0.0.0.0/0", "except": PRIVATE_V4 } },
        { "ipBlock": { "cidr": PUBLIC_V6, "except": TUNNELS } },
    ]);
    policy(owner, "open", json!([{ "to": to }]))
}
