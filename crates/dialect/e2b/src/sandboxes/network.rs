//! What a sandbox may reach.

use axum::body::Body;
use http::StatusCode;
use sandstorm_types::{AllowList, NetworkPolicy, Rule};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Meant;
use crate::body::{self, SMALL};
use crate::refusal::Refusal;
use crate::state::Dialect;

/// All addresses, as E2B's clients write it.
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// What was asked for about the network.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkWish {
    #[serde(default)]
    allow_out: Option<Vec<String>>,
    #[serde(default)]
    deny_out: Option<Vec<String>>,
    #[serde(default)]
    rules: Option<Map<String, Value>>,
    #[serde(default)]
    egress_proxy: Option<Value>,
    #[serde(default)]
    allow_public_traffic: Option<bool>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
}

impl NetworkWish {
    /// Whether everybody may connect to ports, where that was said.
    pub(crate) fn public_ports(&self) -> Option<bool> {
        self.allow_public_traffic
    }

    /// Whether it says nothing but who may come in.
    fn is_about_ports_only(&self) -> bool {
        let NetworkWish { allow_out, deny_out, rules, egress_proxy, allow_public_traffic, internet } = self;
        let silent = allow_out.is_none() && deny_out.is_none() && rules.is_none();
        allow_public_traffic.is_some() && silent && egress_proxy.is_none() && internet.is_none()
    }
}

impl Dialect {
    pub(crate) fn network(
        &self,
        internet: Option<bool>,
        wish: Option<NetworkWish>,
    ) -> Result<NetworkPolicy, Refusal> {
        let wish = wish.unwrap_or_default();
        let not_offered = |what: &str| Refusal::invalid(format!("{what} is not offered by this server"));
        if wish.rules.is_some_and(|rules| !rules.is_empty()) {
            return Err(not_offered("rewriting of requests (network.rules)"));
        }
        if wish.egress_proxy.is_some_and(|proxy| !proxy.is_null()) {
            return Err(not_offered("an egress proxy"));
        }
        let denied = wish.deny_out.unwrap_or_default();
        let allowed = wish.allow_out.unwrap_or_default();
        if denied.iter().any(|one| !EVERYTHING.contains(&one.as_str())) {
            return Err(not_offered("denying some addresses: deny all and list what is allowed; this"));
        }
        let asked = internet.or(wish.internet);
        if !denied.is_empty() || asked == Some(false) {
            let rules = allowed.iter().map(|one| rule(one)).collect::<Result<Vec<_>, _>>()?;
            if rules.is_empty() {
                return Ok(NetworkPolicy::None);
            }
            let list = AllowList::new(rules).map_err(|error| Refusal::invalid(error.to_string()))?;
            return Ok(NetworkPolicy::Allow(list));
        }
        // What was allowed beside everything else adds nothing.
        let possible = self.settings.network && self.control.capabilities().network_open;
        Ok(if possible || asked == Some(true) { NetworkPolicy::Open } else { NetworkPolicy::None })
    }
}

/// An address, a network or a name with every port that is usual.
fn rule(text: &str) -> Result<Rule, Refusal> {
    let address = text.split('/').next().unwrap_or_default().parse::<std::net::IpAddr>();
    let written = match address {
        Ok(address) if address.is_ipv6() => format!("ip:[{text}]"),
        Ok(_) => format!("ip:{text}"),
        Err(_) => text.to_owned(),
    };
    written.parse().map_err(|error| Refusal::invalid(format!("network rule cannot be used: {error}")))
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
}
