//! The network policies that our pods are under: three for all of them, told apart by a label, and one for each sandbox that
//! has a list of its own.
//!
//! A policy only allows; where none selects a pod, everything is allowed. So they are there before the first pod is, and each
//! pod carries its label from the beginning.

mod blocks;
mod lists;

use std::net::SocketAddr;

use k8s_openapi::api::networking::v1::NetworkPolicy as KubePolicy;
use kube::Api;
use kube::api::{Patch, PatchParams};
use sandstorm_provider::Result;
use sandstorm_types::{IpNetwork, NetworkPolicy, Target, Unmet, is_public};
use serde_json::{Value, json};

pub(crate) use self::lists::Lists;
use crate::config::{Enforced, Owner};
use crate::error::of;
use crate::marks;

/// Makes the policies of all pods, or makes them what they should be.
pub(crate) async fn ensure(api: &Api<KubePolicy>, owner: &Owner, denied: &[IpNetwork]) -> Result<()> {
    // Nobody in, nobody out. Our own way in is the node's, which no policy is about. What a list allows is added to that.
    for policy in [of_all(owner, "none", json!([])), of_all(owner, "allow", json!([])), open(owner, denied)] {
        apply(api, &policy).await?;
    }
    Ok(())
}

/// Nobody in; out to public addresses. The cluster's own resolver is not one, so names are asked of a public one.
fn open(owner: &Owner, denied: &[IpNetwork]) -> Value {
    let to: Vec<_> =
        sandstorm_types::public_networks().filter_map(|network| blocks::public(&network, denied)).collect();
    of_all(owner, "open", json!([{ "to": to }]))
}

fn of_all(owner: &Owner, network: &str, egress: Value) -> Value {
    let selected = json!({ marks::OWNER: owner.as_str(), marks::NETWORK: network });
    policy(&format!("sandstorm-{owner}-{network}"), json!({ marks::OWNER: owner.as_str() }), selected, egress)
}

fn policy(name: &str, labels: Value, selected: Value, egress: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "podSelector": { "matchLabels": selected },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": egress,
        },
    })
}

async fn apply(api: &Api<KubePolicy>, policy: &Value) -> Result<()> {
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    let ours = PatchParams::apply("sandstorm").force();
    api.patch(name, &ours, &Patch::Apply(policy)).await.map(drop).map_err(of)
}

/// The address that a sandbox tries before anything runs in it, since its policy forbids it. `None`: nothing is tried.
pub(crate) fn tried(enforced: Enforced, network: &NetworkPolicy) -> Option<SocketAddr> {
    let Enforced::Tried(address) = enforced else { return None };
    // Whatever a list says, its policy lets out to nothing that is not public: else whoever writes lists decides what is tried.
    let let_out = is_public(address.ip().to_canonical()) && network.allows_ip(address.ip(), address.port());
    (*network != NetworkPolicy::Open && !let_out).then_some(address)
}

/// What of a list a cluster's network cannot keep to.
pub(crate) fn unmet(network: &NetworkPolicy) -> Option<Unmet> {
    let named = |why: &str, rule: &sandstorm_types::Rule| {
        Unmet::new("network_allow", rule.to_string(), "public addresses and networks (`ip:…`)", why)
    };
    if matches!(network, NetworkPolicy::Filter(_)) {
        let why = "the network of a cluster is closed or open or keeps to a list, and knows no filter";
        return Some(Unmet::new("network_allow", "a filter", "a list of what may be reached", why));
    }
    network.rules().iter().find_map(|rule| match rule.target() {
        Target::Host(_) => Some(named("the network of a cluster knows no names, only addresses", rule)),
        // The operator meant an address here, and there it is somebody else's.
        _ if rule.is_internal() => Some(named("the rule is about the network of this machine", rule)),
        Target::Ip(_) | Target::Network(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_the_public_network_only() {
        let open = open(&"me".parse().unwrap(), &["8.8.8.0/24".parse().unwrap()]).to_string();
        for private in
            ["10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16", "100.64.0.0/10", "2002::/16", "8.8.8.0/24"]
        {
            assert!(open.contains(private), "{private}: {open}");
        }
        assert!(open.contains(r#""cidr":"2000::/3""#) && !open.contains("::/0"), "{open}");
    }

    fn list(rules: &[&str]) -> NetworkPolicy {
        serde_json::from_value(json!({ "allow": rules })).unwrap()
    }

    #[test]
    fn no_list_keeps_a_private_address_from_being_tried() {
        for text in ["10.96.0.1:443", "[::ffff:10.96.0.1]:443", "[fd00::1]:443"] {
            let address: SocketAddr = text.parse().unwrap();
            let all = ["ip:0.0.0.0/0:443", "ip:[::/0]:443"];
            for network in [NetworkPolicy::None, list(&all), list(&["ip:10.96.0.1:443", "ip:[fd00::1]:443"])]
            {
                assert_eq!(tried(Enforced::Tried(address), &network), Some(address), "{text} {network:?}");
            }
            assert_eq!(tried(Enforced::Tried(address), &NetworkPolicy::Open), None);
        }
        // A public one may be reached where the list says so.
        let public: SocketAddr = "8.8.8.8:443".parse().unwrap();
        for (rule, expected) in
            [("ip:0.0.0.0/0:443", None), ("ip:8.8.8.8:443", None), ("ip:8.8.8.8:53", Some(public))]
        {
            assert_eq!(tried(Enforced::Tried(public), &list(&[rule])), expected, "{rule}");
        }
        assert_eq!(tried(Enforced::Declared, &NetworkPolicy::None), None);
        assert_eq!(tried(Enforced::No, &NetworkPolicy::None), None);
    }

    #[test]
    fn names_are_refused_and_addresses_are_not() {
        assert_eq!(unmet(&list(&["ip:192.0.2.1", "ip:198.51.100.0/24:22"])), None);
        let refused = unmet(&list(&["ip:8.8.8.8", "*.example.com:443"])).unwrap();
        assert_eq!(
            (refused.feature.as_str(), refused.wanted.as_str()),
            ("network_allow", "*.example.com:443")
        );
        let rule: sandstorm_types::Rule = "ip:10.0.0.1:80".parse().unwrap();
        let internal = sandstorm_types::AllowList::new(vec![rule.internal()]).unwrap();
        assert!(unmet(&NetworkPolicy::Allow(internal)).is_some());
        assert_eq!((unmet(&NetworkPolicy::None), unmet(&NetworkPolicy::Open)), (None, None));
    }
}
