//! The network of sandboxes that ask for none of their own.

use sandstorm_types::{AllowList, IpNetwork, Nat64Prefix, NetworkPolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Network of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// The policy of a run or sandbox that asks for none: `none` (only its own loopback), `allow` (only what
    /// `network.allow` names) or `open` (any public address).
    pub default: NetworkDefault,
    /// What may be reached under `allow`: hosts such as `example.com` or `*.example.com:443`, addresses such as
    /// `ip:192.0.2.1:22,80`. Without ports a rule means 80 and 443.
    #[schemars(with = "Vec<String>", example = examples())]
    pub allow: AllowList,
    /// Address ranges that no policy reaches, by address or by name, such as public addresses of your own network:
    /// `192.0.2.0/24`, `2001:db8::/32`. Private and link-local ranges, this machine and the metadata services of clouds are
    /// out of reach anyway. An index under `packages` that you name is reached all the same.
    #[schemars(with = "Vec<String>", example = ranges())]
    pub denied: Vec<IpNetwork>,
    /// Prefixes behind which this network reaches IPv4 addresses over IPv6 (NAT64). An address below one is judged by the
    /// IPv4 address in it. Prefixes that the name server knows (`ipv4only.arpa`) are found without this.
    #[schemars(with = "Vec<String>", example = prefixes())]
    pub nat64: Vec<Nat64Prefix>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkDefault {
    #[default]
    None,
    Allow,
    Open,
}

impl Network {
    /// The default policy.
    pub fn policy(&self) -> NetworkPolicy {
        match self.default {
            NetworkDefault::None => NetworkPolicy::None,
            NetworkDefault::Allow => NetworkPolicy::Allow(self.allow.clone()),
            NetworkDefault::Open => NetworkPolicy::Open,
        }
    }
}

fn examples() -> Vec<&'static str> {
    vec!["example.com", "*.example.com:443"]
}

fn ranges() -> Vec<&'static str> {
    vec!["192.0.2.0/24", "2001:db8::/32"]
}

fn prefixes() -> Vec<&'static str> {
    vec!["2001:db8:64::/96"]
}
