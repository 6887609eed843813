//! What a sandbox may reach on the network, and the pure decision about one connection.
//!
//! The decision is by name and port only. Resolving, dropping forbidden address ranges and dialling the
//! checked address are the egress proxy's part.

mod filter;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

pub use self::filter::{HeaderRule, NetworkFilter, NetworkFilterError};
use crate::text_form::serde_as_text;
use crate::{HostName, HostNameError, HostPattern, IpNetwork};

/// Ports of a rule that names none.
const DEFAULT_PORTS: [u16; 2] = [80, 443];
const MAX_RULES: usize = 1024;
const MAX_PORTS: usize = 64;

/// What a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    /// Only its own loopback.
    #[default]
    None,
    /// Only what the list names.
    Allow(AllowList),
    /// Any public address.
    Open,
    /// Any public address but what is denied, with headers for some requests.
    Filter(Box<NetworkFilter>),
}

/// Rules of which one must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Rule>", into = "Vec<Rule>")]
pub struct AllowList(Vec<Rule>);

/// One thing that may be reached: `example.com`, `*.example.com:443`, `ip:192.0.2.1:22,80`,
/// `ip:[2001:db8::1]:443`, `ip:192.0.2.0/24`, `ip:[2001:db8::/32]:443`. Without ports it is 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    target: Target,
    ports: Vec<u16>,
    internal: bool,
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Host(HostPattern),
    Ip(IpAddr),
    Network(IpNetwork),
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkPolicyError {
    #[error("network rule `{rule}` names no host")]
    Host { rule: String, source: HostNameError },
    #[error("network rule `{0}` names no IP address or network")]
    Ip(String),
    #[error("network rule `{0}` has a port that is not from 1 to 65535, or more than 64 ports")]
    Port(String),
    #[error("network policy has more than 1024 rules")]
    TooManyRules,
}

impl NetworkPolicy {
    /// The rule that lets a connection to `name` through, if the policy is a list.
    pub fn rule_for_host(&self, name: &HostName, port: u16) -> Option<&Rule> {
        self.rules().iter().find(|rule| rule.matches_host(name, port))
    }

    /// The rule that lets a connection to a bare address through, if the policy is a list.
    pub fn rule_for_ip(&self, ip: IpAddr, port: u16) -> Option<&Rule> {
        self.rules().iter().find(|rule| rule.matches_ip(ip, port))
    }

    /// Whether a connection to `name` may be tried; the addresses behind the name are checked later.
    pub fn allows_host(&self, name: &HostName, port: u16) -> bool {
        match self {
            Self::Open => true,
            Self::Filter(filter) => filter.admits_name(name, port),
            Self::None | Self::Allow(_) => self.rule_for_host(name, port).is_some(),
        }
    }

    /// Whether a connection to a bare address may be tried; forbidden ranges are checked later.
    pub fn allows_ip(&self, ip: IpAddr, port: u16) -> bool {
        match self {
            Self::Open => true,
            Self::Filter(filter) => filter.reaches(None, ip, port),
            Self::None | Self::Allow(_) => self.rule_for_ip(ip, port).is_some(),
        }
    }

    /// Whether a connection that was let through to `name`, or to a bare address, may go to this address.
    pub fn reaches(&self, name: Option<&HostName>, address: IpAddr, port: u16) -> bool {
        match self {
            Self::Filter(filter) => filter.reaches(name, address, port),
            Self::None | Self::Allow(_) | Self::Open => true,
        }
    }

    /// Whether the name inside a connection to `name` must be that one, too.
    pub fn checks_name(&self, name: &HostName, port: u16) -> bool {
        match self {
            Self::Open => false,
            Self::Filter(filter) => filter.names(name, port) || filter.headers_for(name).is_some(),
            Self::None | Self::Allow(_) => true,
        }
    }

    /// Headers that plain HTTP requests to `name` get on their way.
    pub fn headers_for(&self, name: &HostName) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Filter(filter) => filter.headers_for(name),
            Self::None | Self::Allow(_) | Self::Open => None,
        }
    }

    /// Whether the name may be resolved at all: a query itself carries data out, so only names that some
    /// rule could let through on some port are answered.
    pub fn resolves(&self, name: &HostName) -> bool {
        let matches = |rule: &Rule| matches!(&rule.target, Target::Host(pattern) if pattern.matches(name));
        match self {
            Self::Open => true,
            Self::Filter(filter) => filter.resolves(name),
            Self::None | Self::Allow(_) => self.rules().iter().any(matches),
        }
    }

    pub fn rules(&self) -> &[Rule] {
        match self {
            Self::Allow(AllowList(rules)) => rules,
            Self::None | Self::Open | Self::Filter(_) => &[],
        }
    }

    /// The policy as one text that is the same for the same policy, to be hashed for reports.
    pub fn canonical(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Open => "open".to_owned(),
            Self::Filter(filter) => filter.canonical(),
            Self::Allow(AllowList(rules)) => {
                let internal = |rule: &Rule| if rule.internal { " internal" } else { "" };
                let mut lines: Vec<_> =
                    rules.iter().map(|rule| format!("{rule}{}", internal(rule))).collect();
                lines.sort();
                lines.dedup();
                format!("allow\n{}", lines.join("\n"))
            }
        }
    }
}

impl AllowList {
    pub fn new(rules: Vec<Rule>) -> Result<Self, NetworkPolicyError> {
        if rules.len() > MAX_RULES { Err(NetworkPolicyError::TooManyRules) } else { Ok(Self(rules)) }
    }

    pub fn rules(&self) -> &[Rule] {
        &self.0
    }
}

impl TryFrom<Vec<Rule>> for AllowList {
    type Error = NetworkPolicyError;

    fn try_from(rules: Vec<Rule>) -> Result<Self, NetworkPolicyError> {
        Self::new(rules)
    }
}

impl From<AllowList> for Vec<Rule> {
    fn from(list: AllowList) -> Self {
        list.0
    }
}

impl Rule {
    /// A rule; no ports means 80 and 443.
    pub fn new(target: Target, ports: &[u16]) -> Result<Self, NetworkPolicyError> {
        let mut ports = if ports.is_empty() { DEFAULT_PORTS.to_vec() } else { ports.to_vec() };
        ports.sort_unstable();
        ports.dedup();
        let rule = Self { target, ports, internal: false };
        if rule.ports[0] == 0 || rule.ports.len() > MAX_PORTS {
            return Err(NetworkPolicyError::Port(rule.to_string()));
        }
        Ok(rule)
    }

    /// Lets the rule reach private and loopback addresses, for what the operator configured, such as a
    /// package index on this machine. It is never read from a request: a tenant could otherwise reach
    /// the operator's network, so the mark has no text or JSON form.
    pub fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    pub fn is_internal(&self) -> bool {
        self.internal
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    pub fn matches_host(&self, name: &HostName, port: u16) -> bool {
        matches!(&self.target, Target::Host(pattern) if pattern.matches(name)) && self.ports.contains(&port)
    }

    pub fn matches_ip(&self, ip: IpAddr, port: u16) -> bool {
        let inside = match self.target {
            Target::Ip(allowed) => allowed == ip.to_canonical(),
            Target::Network(allowed) => allowed.contains(ip),
            Target::Host(_) => false,
        };
        inside && self.ports.contains(&port)
    }
}

impl FromStr for Rule {
    type Err = NetworkPolicyError;

    fn from_str(text: &str) -> Result<Self, NetworkPolicyError> {
        let port_error = || NetworkPolicyError::Port(text.to_owned());
        let (target, ports) = match text.strip_prefix("ip:") {
            Some(rest) => ip_target(rest).ok_or_else(|| NetworkPolicyError::Ip(text.to_owned()))?,
            None => {
                // A second colon stays in the host, where it is refused as an address.
                let (host, ports) = match text.split_once(':') {
                    Some((host, ports)) if !ports.contains(':') => (host, Some(ports)),
                    _ => (text, None),
                };
                let pattern = host
                    .parse()
                    .map_err(|source| NetworkPolicyError::Host { rule: text.to_owned(), source })?;
                (Target::Host(pattern), ports)
            }
        };
        let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        let ports = match ports {
            Some(list) if list.split(',').all(|port| digits(&port)) => {
                list.split(',').map(str::parse).collect::<Result<Vec<u16>, _>>().map_err(|_| port_error())?
            }
            Some(_) => return Err(port_error()),
            None => DEFAULT_PORTS.to_vec(),
        };
        Self::new(target, &ports).map_err(|_| port_error())
    }
}

fn ip_target(text: &str) -> Option<(Target, Option<&str>)> {
    let (address, ports, v6) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, ports) = rest.split_once(']')?;
            let ports = if ports.is_empty() { None } else { Some(ports.strip_prefix(':')?) };
            (address, ports, true)
        }
        None => match text.split_once(':') {
            Some((address, ports)) => (address, Some(ports), false),
            None => (text, None, false),
        },
    };
    // Brackets go with v6 and with nothing else.
    if address.contains(':') != v6 {
        return None;
    }
    let target = match address.contains('/') {
        true => Target::Network(address.parse().ok()?),
        // A v4 address written as v6 is the same host; one form keeps matching and dialling equal.
        false => Target::Ip(address.parse::<IpAddr>().ok()?.to_canonical()),
    };
    Some((target, ports))
}

impl FromStr for Target {
    type Err = NetworkPolicyError;

    /// A rule's text without its ports.
    fn from_str(text: &str) -> Result<Self, NetworkPolicyError> {
        let Some(rest) = text.strip_prefix("ip:") else {
            let named = text.parse().map(Self::Host);
            return named.map_err(|source| NetworkPolicyError::Host { rule: text.to_owned(), source });
        };
        match ip_target(rest) {
            Some((target, None)) => Ok(target),
            _ => Err(NetworkPolicyError::Ip(text.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(pattern) => write!(f, "{pattern}"),
            Self::Ip(IpAddr::V4(address)) => write!(f, "ip:{address}"),
            Self::Ip(IpAddr::V6(address)) => write!(f, "ip:[{address}]"),
            Self::Network(network) if network.is_ipv6() => write!(f, "ip:[{network}]"),
            Self::Network(network) => write!(f, "ip:{network}"),
        }
    }
}

serde_as_text!(Target);

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)?;
        for (place, port) in self.ports.iter().enumerate() {
            write!(f, "{}{port}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|error: NetworkPolicyError| match error {
            // The edge prints one line here, so the cause is part of it.
            NetworkPolicyError::Host { ref source, .. } => {
                de::Error::custom(format_args!("{error}: {source}"))
            }
            other => de::Error::custom(other),
        })
    }
}

#[cfg(test)]
mod tests;
