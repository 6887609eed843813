//! The decision about one destination: pure, so that a change of policy can ask it again.

use std::fmt;
use std::net::IpAddr;

use sandstorm_types::{HostName, NetworkPolicy};

use crate::address;

/// Where a connection wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A name that the sandbox was given a synthetic address for.
    Name { name: HostName, port: u16 },
    /// A bare address.
    Address { address: IpAddr, port: u16 },
}

/// How far a permitted connection may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// Public addresses only.
    Public,
    /// Any address: the operator configured this destination.
    Internal,
}

impl Destination {
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Name { port, .. } | Self::Address { port, .. } => *port,
        }
    }

    /// What the policy says about this destination; `None` is no.
    pub(crate) fn permit(&self, policy: &NetworkPolicy) -> Option<Permit> {
        let allowed = match self {
            Self::Name { name, port } => policy.allows_host(name, *port),
            Self::Address { address, port } => policy.allows_ip(*address, *port),
        };
        let internal = policy.rules().iter().any(|rule| {
            rule.is_internal()
                && match self {
                    Self::Name { name, port } => rule.matches_host(name, *port),
                    Self::Address { address, port } => rule.matches_ip(*address, *port),
                }
        });
        match (internal, allowed) {
            (true, _) => Some(Permit::Internal),
            (false, true) => Some(Permit::Public),
            (false, false) => None,
        }
    }
}

impl Permit {
    pub(crate) fn reaches(self, address: IpAddr) -> bool {
        match self {
            Self::Internal => true,
            Self::Public => sandstorm_types::is_public(address) && !address::is_own(address),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, port } => write!(f, "{name}:{port}"),
            Self::Address { address: IpAddr::V4(address), port } => write!(f, "{address}:{port}"),
            Self::Address { address: IpAddr::V6(address), port } => write!(f, "[{address}]:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{AllowList, Rule};

    use super::*;

    fn policy(rules: Vec<Rule>) -> NetworkPolicy {
        NetworkPolicy::Allow(AllowList::new(rules).unwrap())
    }

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn named(name: &str, port: u16) -> Destination {
        Destination::Name { name: name.parse().unwrap(), port }
    }

    #[test]
    fn only_an_internal_rule_reaches_inside() {
        let policy = policy(vec![rule("index.example:443"), rule("index.example:443,8080").internal()]);
        assert_eq!(named("index.example", 443).permit(&policy), Some(Permit::Internal));
        assert_eq!(named("index.example", 80).permit(&policy), None);
        assert_eq!(named("other.example", 443).permit(&policy), None);
        assert!(Permit::Internal.reaches("127.0.0.1".parse().unwrap()));
        assert!(!Permit::Public.reaches("127.0.0.1".parse().unwrap()));
        assert!(Permit::Public.reaches("93.184.216.34".parse().unwrap()));
    }

    #[test]
    fn bare_addresses_need_a_rule_or_an_open_policy() {
        let address = Destination::Address { address: "93.184.216.34".parse().unwrap(), port: 443 };
        assert_eq!(address.permit(&policy(vec![rule("*.example.com")])), None);
        assert_eq!(address.permit(&policy(vec![rule("ip:93.184.216.34")])), Some(Permit::Public));
        assert_eq!(address.permit(&NetworkPolicy::Open), Some(Permit::Public));
        assert_eq!(address.permit(&NetworkPolicy::None), None);
    }
}
