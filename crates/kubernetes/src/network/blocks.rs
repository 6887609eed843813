//! Blocks of addresses as network policies have them.

use sandstorm_types::{IpNetwork, public_networks, special_networks};
use serde_json::{Value, json};

/// What of a network is public: neither private nor link-local, where clouds keep their credentials, nor one in which an
/// address of the other version may hide, nor what the operator denies. `None`: nothing.
pub(super) fn public(network: &IpNetwork, denied: &[IpNetwork]) -> Option<Value> {
    // Of two networks one is inside the other, or they have nothing in common.
    let mut within = public_networks().filter_map(|public| {
        let smaller = if public.covers(network) { *network } else { public };
        (public.covers(&smaller) && network.covers(&smaller)).then_some(smaller)
    });
    let network = within.next()?;
    let closed = || special_networks().chain(denied.iter().copied());
    if closed().any(|special| special.covers(&network)) {
        return None;
    }
    let without: Vec<_> =
        closed().filter(|special| network.covers(special)).map(|special| special.to_string()).collect();
    let block = if without.is_empty() {
        json!({ "cidr": network.to_string() })
    } else {
        json!({ "cidr": network.to_string(), "except": without })
    };
    Some(json!({ "ipBlock": block }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_public_is_let_out() {
        let of = |text: &str| public(&text.parse().unwrap(), &[]);
        let cidr = |text: &str| json!({ "ipBlock": { "cidr": text } });
        for kept in ["8.8.8.8/32", "8.8.0.0/16", "2a00::/32"] {
            assert_eq!(of(kept), Some(cidr(kept)), "{kept}");
        }
        for gone in [
            "10.1.0.0/16",
            "10.0.0.0/8",
            "127.0.0.1/32",
            "169.254.169.254/32",
            "168.63.129.16/32",
            "fe80::/10",
            "2002::/16",
            "::1/128",
        ] {
            assert_eq!(of(gone), None, "{gone}");
        }
        let wide = of("8.0.0.0/5").unwrap();
        assert_eq!(wide["ipBlock"]["except"], json!(["10.0.0.0/8"]));
        let all = of("::/0").unwrap();
        assert_eq!(all["ipBlock"]["cidr"], "2000::/3");
        assert_eq!(of("0.0.0.0/0").unwrap()["ipBlock"]["except"].as_array().unwrap().len(), 17);
    }
    #[test]
    fn what_the_operator_denies_is_left_out_as_well() {
        let denied = ["8.8.8.0/24", "2a00:64::/96"].map(|text| text.parse().unwrap());
        let of = |text: &str| public(&text.parse().unwrap(), &denied);
        assert_eq!(of("8.8.8.8/32"), None);
        assert_eq!(of("8.8.0.0/16").unwrap()["ipBlock"]["except"], json!(["8.8.8.0/24"]));
        assert_eq!(of("2a00::/16").unwrap()["ipBlock"]["except"], json!(["2a00:64::/96"]));
    }
}
