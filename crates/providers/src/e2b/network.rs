//! What a sandbox may reach, as they take it.

use sandstorm_provider::Result;
use sandstorm_types::{HeaderRule, NetworkFilter, NetworkPolicy, Rule, SandboxId, Target, Unmet};
use serde_json::{Map, Value, json};

use super::cloud::Cloud;
use super::error::of;

/// All addresses.
const EVERYTHING: &str = "0.0.0.0/0";
/// Ports on which their filter sees the name of a host.
const BY_NAME: [u16; 2] = [80, 443];

impl Cloud {
    pub(super) async fn set_network(&self, id: &SandboxId, policy: &NetworkPolicy) -> Result<()> {
        let place = self.place(id).await?;
        let (internet, mut network) =
            wish(policy).map_err(|reason| sandstorm_provider::Error::unmet(vec![reason]))?;
        network["allow_internet_access"] = internet.into();
        match self.client.set_network(place.theirs(), &network).await {
            Ok(()) => Ok(()),
            Err(failure) if failure.is_not_found() => Err(self.lost(&place).await),
            Err(failure) => Err(of(failure)),
        }
    }
}

/// Whether the internet is open, and the rules. Their filter knows names on two ports and addresses on all: a rule that
/// would let more through there than it says is refused.
pub(super) fn wish(policy: &NetworkPolicy) -> Result<(bool, Value), Unmet> {
    match policy {
        NetworkPolicy::None => Ok((false, json!({"denyOut": [EVERYTHING]}))),
        NetworkPolicy::Open => Ok((true, json!({}))),
        NetworkPolicy::Filter(filter) => Ok((!filter.denies_everything(), filtered(filter))),
        NetworkPolicy::Allow(list) => {
            let names = list.rules().iter().map(name).collect::<Result<Vec<_>, _>>()?;
            Ok((false, json!({"allowOut": names, "denyOut": [EVERYTHING]})))
        }
    }
}

/// A filter means the same there: what is allowed goes first, addresses on every port and names on two.
fn filtered(filter: &NetworkFilter) -> Value {
    let allowed: Vec<String> = filter.allowed().iter().map(theirs).collect();
    let denied: Vec<String> = filter.denied().iter().map(ToString::to_string).collect();
    let headers =
        |rule: &HeaderRule| (rule.host.to_string(), json!([{"transform": {"headers": rule.headers}}]));
    let rules: Map<String, Value> = filter.header_rules().iter().map(headers).collect();
    json!({"allowOut": allowed, "denyOut": denied, "rules": rules})
}

fn theirs(target: &Target) -> String {
    match target {
        Target::Host(pattern) => pattern.to_string(),
        Target::Ip(address) => address.to_string(),
        Target::Network(network) => network.to_string(),
    }
}

fn name(rule: &Rule) -> Result<String, Unmet> {
    match rule.target() {
        Target::Host(pattern) if rule.ports() == BY_NAME && !rule.is_internal() => Ok(pattern.to_string()),
        _ => {
            let why =
                "only hosts by name, on both ports 80 and 443, can be let through there and nothing else";
            Err(Unmet::new("network_allow", rule.to_string(), "names of hosts", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::AllowList;

    use super::*;

    fn allow(rules: &[&str]) -> NetworkPolicy {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        NetworkPolicy::Allow(AllowList::new(rules).unwrap())
    }

    #[test]
    fn a_filter_is_theirs_word_for_word() {
        let filter: NetworkPolicy = serde_json::from_value(json!({"filter": {
            "deny": ["192.0.2.0/24"], "allow": ["ip:192.0.2.7", "example.com"],
            "headers": [{"host": "api.test", "headers": {"X-Token": "t"}}]}}))
        .unwrap();
        let wanted = json!({"allowOut": ["192.0.2.7", "example.com"], "denyOut": ["192.0.2.0/24"],
            "rules": {"api.test": [{"transform": {"headers": {"X-Token": "t"}}}]}});
        assert_eq!(wish(&filter).unwrap(), (true, wanted));
    }

    #[test]
    fn no_rule_lets_through_more_than_it_says() {
        assert_eq!(wish(&NetworkPolicy::None).unwrap(), (false, json!({"denyOut": ["0.0.0.0/0"]})));
        let (internet, rules) = wish(&allow(&["example.com", "*.example.org"])).unwrap();
        assert_eq!((internet, &rules["allowOut"]), (false, &json!(["example.com", "*.example.org"])));
        for wide in ["ip:192.0.2.1", "ip:192.0.2.0/24", "example.com:443", "example.com:22"] {
            assert_eq!(wish(&allow(&["example.com", wide])).unwrap_err().feature, "network_allow", "{wide}");
        }
    }
}
