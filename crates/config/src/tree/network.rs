//! The network of sandboxes that ask for none of their own.

use sandstorm_types::{AllowList, NetworkPolicy};
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
