//! What a sandbox may reach.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::body::Body;
use http::StatusCode;
use sandstorm_types::{AllowList, HeaderRule, IpNetwork, NetworkFilter, NetworkPolicy, Rule, Target};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Meant;
use crate::body::{self, SMALL};
use crate::refusal::Refusal;
use crate::state::Dialect;

/// All addresses, as E2B's clients write it.
const EVERYTHING: &str = "0.0.0.0/0";
/// What stands for the number of the port in the host that programs see.
const PORT: &str = "${PORT}";
const LONGEST_HOST: usize = 253;

/// What was asked for about the network.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NetworkWish {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    rules: Option<BTreeMap<String, Vec<HostRule>>>,
    egress_proxy: Option<Value>,
    dns_servers: Option<Vec<Value>>,
    https_ports: Option<Vec<Value>>,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
}

/// What happens to requests to a host. A part that this server does not know is refused by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostRule {
    transform: Option<Transform>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transform {
    headers: Option<BTreeMap<String, String>>,
}

impl NetworkWish {
    /// Whether everybody may connect to ports, where that was said.
    pub(crate) fn public_ports(&self) -> Option<bool> {
        self.allow_public_traffic
    }

    /// The host that programs behind ports see, where that was said.
    pub(crate) fn request_host(&self) -> Result<Option<String>, Refusal> {
        let Some(mask) = self.mask_request_host.as_deref().filter(|mask| !mask.is_empty()) else {
            return Ok(None);
        };
        match masked(mask, u16::MAX) {
            Some(_) => Ok(Some(mask.to_owned())),
            None => Err(Refusal::invalid(
                "maskRequestHost is not a host of at most 253 letters, digits, '-', '.', ':' and ${PORT}",
            )),
        }
    }

    /// Whether nothing but public ports was asked for: what can be reached stays as it is.
    fn is_about_ports_only(&self) -> bool {
        let Self { allow_out, deny_out, rules, egress_proxy, allow_public_traffic, internet, .. } = self;
        let silent = allow_out.is_none() && deny_out.is_none() && rules.is_none();
        allow_public_traffic.is_some() && silent && egress_proxy.is_none() && internet.is_none()
    }

    fn check_offered(&self) -> Result<(), Refusal> {
        let given = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        for (asked, what, instead) in [
            (
                self.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()),
                "egressProxy",
                "sandboxes reach what they may through this server",
            ),
            (given(&self.dns_servers), "dnsServers", "names are looked up by this server"),
            (
                given(&self.https_ports),
                "httpsPorts",
                "programs behind ports are spoken to in plain HTTP: serve HTTP on another port",
            ),
        ] {
            if asked {
                return Err(Refusal::invalid(format!("{what} is not offered by this server: {instead}")));
            }
        }
        Ok(())
    }
}

/// The host that a program on this port sees. `None`: the mask is no host.
pub(crate) fn masked(mask: &str, port: u16) -> Option<String> {
    let host = mask.replace(PORT, &port.to_string());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    ((1..=LONGEST_HOST).contains(&host.len()) && host.bytes().all(plain)).then_some(host)
}

impl Dialect {
    pub(crate) fn network(
        &self,
        internet: Option<bool>,
        wish: Option<NetworkWish>,
    ) -> Result<NetworkPolicy, Refusal> {
        let wish = wish.unwrap_or_default();
        wish.check_offered()?;
        let asked = internet.or(wish.internet);
        // Without a word sandboxes reach the internet where that is possible here.
        let possible = self.settings.network && self.control.capabilities().network_open;
        policy(wish, asked, possible || asked == Some(true))
    }
}

/// The policy that was asked for. `open`: what is not denied can be reached.
fn policy(wish: NetworkWish, asked: Option<bool>, open: bool) -> Result<NetworkPolicy, Refusal> {
    let headers = header_rules(wish.rules.unwrap_or_default())?;
    let denied = wish.deny_out.unwrap_or_default();
    let allowed = wish.allow_out.unwrap_or_default();
    let deny = denied.iter().map(|one| block(one)).collect::<Result<Vec<_>, _>>()?;
    let closed = asked == Some(false) || denied.iter().any(|one| one == EVERYTHING);
    if closed && headers.is_empty() {
        let rules = allowed.iter().map(|one| rule(one)).collect::<Result<Vec<_>, _>>()?;
        if rules.is_empty() {
            return Ok(NetworkPolicy::None);
        }
        let list = AllowList::new(rules).map_err(|error| Refusal::invalid(error.to_string()))?;
        return Ok(NetworkPolicy::Allow(list));
    }
    let allow = allowed.iter().map(|one| target(one)).collect::<Result<Vec<_>, _>>()?;
    if (closed && allow.is_empty()) || (!closed && !open) {
        return Ok(NetworkPolicy::None);
    }
    if deny.is_empty() && headers.is_empty() && !closed {
        // What was allowed beside everything else adds nothing.
        return Ok(NetworkPolicy::Open);
    }
    let everything = closed.then(|| block(EVERYTHING)).transpose()?;
    let filter = NetworkFilter::new(deny.into_iter().chain(everything).collect(), allow, headers);
    Ok(NetworkPolicy::Filter(Box::new(filter.map_err(|error| Refusal::invalid(error.to_string()))?)))
}

/// An address or a network that is denied.
fn block(text: &str) -> Result<IpNetwork, Refusal> {
    let single = text.parse::<IpAddr>().map(IpNetwork::of).ok();
    single.or_else(|| text.parse().ok()).ok_or_else(|| {
        let shown: String = text.chars().take(128).collect();
        Refusal::invalid(format!(
            "denyOut takes addresses and networks such as 192.0.2.1 and 192.0.2.0/24, not '{shown}'"
        ))
    })
}

/// An address, a network or a name as our own rules write it.
fn written(text: &str) -> String {
    match text.split('/').next().unwrap_or_default().parse::<IpAddr>() {
        Ok(address) if address.is_ipv6() => format!("ip:[{text}]"),
        Ok(_) => format!("ip:{text}"),
        Err(_) => text.to_owned(),
    }
}

/// An address, a network or a name with every port that is usual.
fn rule(text: &str) -> Result<Rule, Refusal> {
    written(text).parse().map_err(unusable)
}

fn target(text: &str) -> Result<Target, Refusal> {
    written(text).parse().map_err(unusable)
}

fn unusable(error: sandstorm_types::NetworkPolicyError) -> Refusal {
    Refusal::invalid(format!("network rule cannot be used: {error}"))
}

/// Headers by host. A later rule of a host goes before an earlier one.
fn header_rules(rules: BTreeMap<String, Vec<HostRule>>) -> Result<Vec<HeaderRule>, Refusal> {
    let mut all = Vec::new();
    for (host, rules) in rules {
        let transforms = rules.into_iter().filter_map(|rule| rule.transform?.headers);
        let headers = merged(transforms);
        if headers.is_empty() {
            // A host that is only named changes nothing.
            continue;
        }
        if let Some(name) = headers.iter().find_map(|(name, value)| value.contains("${").then_some(name)) {
            return Err(Refusal::invalid(format!(
                "the value of header '{name}' has a placeholder, and this server has no workload identities"
            )));
        }
        let Target::Host(pattern) = target(&host)? else {
            return Err(Refusal::invalid(format!("network.rules are by name, and '{host}' is an address")));
        };
        all.push(HeaderRule { host: pattern, headers });
    }
    Ok(all)
}

/// The last of headers with the same name, however that is spelled.
fn merged(all: impl Iterator<Item = BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut merged: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in all.flatten() {
        merged.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        merged.insert(name, value);
    }
    merged
}

/// What can be reached, as clients are shown it.
pub(crate) fn shown(policy: &NetworkPolicy) -> Value {
    let plain = |target: &Target| match target {
        Target::Host(pattern) => pattern.to_string(),
        Target::Ip(address) => address.to_string(),
        Target::Network(network) => network.to_string(),
    };
    match policy {
        NetworkPolicy::None | NetworkPolicy::Open => json!({}),
        NetworkPolicy::Allow(list) => {
            let allowed: Vec<String> = list.rules().iter().map(|rule| plain(rule.target())).collect();
            json!({"allowOut": allowed, "denyOut": [EVERYTHING]})
        }
        NetworkPolicy::Filter(filter) => {
            let denied: Vec<String> = filter.denied().iter().map(ToString::to_string).collect();
            let allowed: Vec<String> = filter.allowed().iter().map(plain).collect();
            let mut shown = json!({"allowOut": allowed, "denyOut": denied});
            if !filter.header_rules().is_empty() {
                let rule = |rule: &HeaderRule| {
                    (rule.host.to_string(), json!([{"transform": {"headers": rule.headers}}]))
                };
                shown["rules"] =
                    filter.header_rules().iter().map(rule).collect::<serde_json::Map<_, _>>().into();
            }
            shown
        }
    }
}

/// Replaces what a sandbox may reach. Who may reach it changes where that is said.
pub(crate) async fn update(meant: Meant, body: Body) -> Result<StatusCode, Refusal> {
    let mut room = meant.body_room();
    let wish: NetworkWish = body::read(body, SMALL, &mut room).await?;
    let view = meant.living().await?;
    let (public, ports_only) = (wish.public_ports(), wish.is_about_ports_only());
    let policy = meant.dialect.network(None, Some(wish))?;
    let control = &meant.dialect.control;
    // Closed before anything else can fail, and opened after it.
    if public == Some(false) {
        control.set_public_ports(&meant.caller, view.id, false).await?;
    }
    if !ports_only {
        control.set_network(&meant.caller, view.id, policy).await?;
    }
    if public == Some(true) {
        control.set_public_ports(&meant.caller, view.id, true).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_names_addresses_and_networks() {
        for (text, wanted) in [
            ("example.com", "example.com"),
            ("*.example.com", "*.example.com"),
            ("192.0.2.1", "ip:192.0.2.1"),
            ("192.0.2.0/24", "ip:192.0.2.0/24"),
            ("2001:db8::1", "ip:[2001:db8::1]"),
        ] {
            assert_eq!(rule(text).unwrap(), wanted.parse().unwrap(), "{text}");
        }
        assert!(rule("not a host").is_err() && rule("").is_err());
    }

    fn asked(wish: Value) -> Result<NetworkPolicy, Refusal> {
        let wish: NetworkWish = serde_json::from_value(wish).unwrap();
        let internet = wish.internet;
        policy(wish, internet, true)
    }

    fn filter(policy: NetworkPolicy) -> NetworkFilter {
        match policy {
            NetworkPolicy::Filter(filter) => *filter,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn single_addresses_are_denied_and_the_rest_is_open() {
        let denied = json!({"denyOut": ["8.8.8.8", "192.0.2.0/24", "2001:db8::/32"]});
        let denied = asked(denied).unwrap();
        let reaches = |policy: &NetworkPolicy, address: &str| policy.allows_ip(address.parse().unwrap(), 443);
        for address in ["8.8.8.8", "192.0.2.7", "2001:db8::1"] {
            assert!(!reaches(&denied, address), "{address}");
        }
        assert!(reaches(&denied, "1.1.1.1"));
        let excepted = asked(json!({"denyOut": ["192.0.2.0/24"], "allowOut": ["192.0.2.7"]})).unwrap();
        assert!(reaches(&excepted, "192.0.2.7") && !reaches(&excepted, "192.0.2.8"), "allowed goes first");
        assert_eq!(shown(&excepted), json!({"allowOut": ["192.0.2.7"], "denyOut": ["192.0.2.0/24"]}),);
        for bad in ["example.com", "192.0.2.7/24", "x", ""] {
            assert_eq!(asked(json!({"denyOut": [bad]})).unwrap_err().status(), 400, "{bad}");
        }
    }

    #[test]
    fn everything_denied_is_a_list_or_nothing() {
        assert_eq!(asked(json!({})).unwrap(), NetworkPolicy::Open);
        assert_eq!(asked(json!({"denyOut": ["0.0.0.0/0", "8.8.8.8"]})).unwrap(), NetworkPolicy::None);
        assert_eq!(asked(json!({"allow_internet_access": false})).unwrap(), NetworkPolicy::None);
        let listed = asked(json!({"denyOut": ["0.0.0.0/0"], "allowOut": ["example.com"]})).unwrap();
        assert!(matches!(listed, NetworkPolicy::Allow(_)));
        // A server that opens nothing opens nothing for a filter either.
        let wish = serde_json::from_value(json!({"denyOut": ["8.8.8.8"]})).unwrap();
        assert_eq!(policy(wish, None, false).unwrap(), NetworkPolicy::None);
    }

    #[test]
    fn rules_are_headers_by_host() {
        let one = json!([{"transform": {"headers": {"X-A": "1", "X-B": "2"}}}, {"transform": {"headers": {"x-a": "3"}}}]);
        let made = filter(asked(json!({"rules": {"api.test": one, "named.test": [{}]}})).unwrap());
        assert_eq!(made.header_rules().len(), 1);
        let headers = &made.header_rules()[0].headers;
        assert_eq!(
            headers,
            &BTreeMap::from([("X-B", "2"), ("x-a", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())))
        );
        assert!(!made.denies_everything());
        let closed = json!({"denyOut": ["0.0.0.0/0"], "allowOut": ["api.test"],
            "rules": {"api.test": [{"transform": {"headers": {"X-A": "1"}}}]}});
        assert!(filter(asked(closed).unwrap()).denies_everything());
        for bad in [
            json!({"192.0.2.1": [{"transform": {"headers": {"X-A": "1"}}}]}),
            json!({"api.test": [{"transform": {"headers": {"Host": "other.test"}}}]}),
            json!({"api.test": [{"transform": {"headers": {"X-A": "a\r\nb: c"}}}]}),
            json!({"api.test": [{"transform": {"headers": {"X-A": "${e2b.identity.tokens.aws}"}}}]}),
        ] {
            assert_eq!(asked(json!({"rules": bad.clone()})).unwrap_err().status(), 400, "{bad}");
        }
        let unknown = json!({"rules": {"api.test": [{"transform": {"body": "x"}}]}});
        assert!(
            serde_json::from_value::<NetworkWish>(unknown).is_err(),
            "what is not known is not passed over"
        );
    }

    #[test]
    fn what_is_not_offered_is_named() {
        for (wish, name) in [
            (json!({"egressProxy": {"address": "proxy.test:1080"}}), "egressProxy"),
            (json!({"dnsServers": ["192.0.2.53"]}), "dnsServers"),
            (json!({"httpsPorts": [8443]}), "httpsPorts"),
        ] {
            let wish: NetworkWish = serde_json::from_value(wish).unwrap();
            assert!(wish.check_offered().unwrap_err().message().starts_with(name));
        }
        let nothing: NetworkWish =
            serde_json::from_value(json!({"egressProxy": null, "dnsServers": [], "httpsPorts": []})).unwrap();
        assert!(nothing.check_offered().is_ok());
    }

    #[test]
    fn masks_are_hosts() {
        assert_eq!(masked("${PORT}-app.example.com", 8080).as_deref(), Some("8080-app.example.com"));
        assert_eq!(masked("app.example.com:${PORT}", 80).as_deref(), Some("app.example.com:80"));
        for bad in ["", "a b", "a/b", "a\r\nb: c", "user@host", &"x".repeat(254)] {
            assert_eq!(masked(bad, 80), None, "{bad}");
        }
    }
}
