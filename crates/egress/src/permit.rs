//! The decision about one destination: pure, so that a change of policy can ask it again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sandstorm_types::{HostName, NetworkPolicy, Rule};

use crate::boundary::Boundary;
use crate::denial::Host;
use crate::proxy::Refusal;

/// Where a connection wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
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
    /// Any address: the operator configured or opened this destination.
    Internal,
}

impl Destination {
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Name { port, .. } | Self::Address { port, .. } => *port,
        }
    }

    pub(crate) fn host(&self) -> Host {
        match self {
            Self::Name { name, .. } => Host::Name(name.clone()),
            Self::Address { address, .. } => Host::Address(*address),
        }
    }

    /// The name that must be the one inside the connection too. Where the address was matched, or everything is, one
    /// name inside is as good as another.
    pub(crate) fn name_to_check(&self, policy: &NetworkPolicy) -> Option<&HostName> {
        match self {
            Self::Name { name, port } if policy.checks_name(name, *port) => Some(name),
            _ => None,
        }
    }

    /// Headers that plain HTTP requests get on this connection.
    pub(crate) fn headers<'a>(&self, policy: &'a NetworkPolicy) -> Option<&'a BTreeMap<String, String>> {
        match self {
            Self::Name { name, .. } => policy.headers_for(name),
            Self::Address { .. } => None,
        }
    }

    /// Whether the policy lets this connection go to an address of its destination, and to the one that a translator of this
    /// network would make of that.
    pub(crate) fn may_go_to(&self, policy: &NetworkPolicy, address: IpAddr, boundary: &Boundary) -> bool {
        let (name, port) = match self {
            Self::Name { name, port } => (Some(name), *port),
            Self::Address { port, .. } => (None, *port),
        };
        let real = boundary.stands_for(address);
        [Some(address), real].into_iter().flatten().all(|address| policy.reaches(name, address, port))
    }

    /// What the policy says about this destination; `None` is no. `opened` is what of the inside the operator lets
    /// policies name.
    pub(crate) fn permit(&self, policy: &NetworkPolicy, opened: &[Rule]) -> Option<Permit> {
        let allowed = match self {
            Self::Name { name, port } => policy.allows_host(name, *port),
            Self::Address { address, port } => policy.allows_ip(*address, *port),
        };
        let named_and_opened = policy.rules().iter().any(|rule| self.matches(rule))
            && opened.iter().any(|rule| self.matches(rule));
        let internal = policy.rules().iter().any(|rule| rule.is_internal() && self.matches(rule));
        match (internal || named_and_opened, allowed) {
            (true, _) => Some(Permit::Internal),
            (false, true) => Some(Permit::Public),
            (false, false) => None,
        }
    }

    fn matches(&self, rule: &Rule) -> bool {
        match self {
            Self::Name { name, port } => rule.matches_host(name, *port),
            Self::Address { address, port } => rule.matches_ip(*address, *port),
        }
    }
}

impl Permit {
    /// What the operator denies is meant for tenants: a destination that the operator named is reached all the same.
    pub(crate) fn check(self, address: IpAddr, boundary: &Boundary) -> Result<(), Refusal> {
        match self {
            Self::Internal => Ok(()),
            Self::Public => boundary.check(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sandstorm_types::{AllowList, Rule};

    use super::*;
    use crate::testing::FakeResolver;

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
        assert_eq!(named("index.example", 443).permit(&policy, &[]), Some(Permit::Internal));
        assert_eq!(named("index.example", 80).permit(&policy, &[]), None);
        assert_eq!(named("other.example", 443).permit(&policy, &[]), None);
        let denied = vec!["93.184.217.0/24".parse().unwrap()];
        let boundary = Boundary::new(denied, Vec::new(), Arc::new(FakeResolver::default()));
        for (permit, address, reached) in [
            (Permit::Internal, "127.0.0.1", true),
            (Permit::Internal, "93.184.217.1", true),
            (Permit::Public, "127.0.0.1", false),
            (Permit::Public, "93.184.217.1", false),
            (Permit::Public, "93.184.216.34", true),
        ] {
            assert_eq!(
                permit.check(address.parse().unwrap(), &boundary).is_ok(),
                reached,
                "{permit:?} {address}"
            );
        }
    }

    #[test]
    fn the_inside_must_be_named_by_the_policy_and_opened_by_the_operator() {
        let opened = [rule("db.corp:5432"), rule("ip:10.0.0.0/8:22")];
        let of = |destination: Destination, policy: &NetworkPolicy| destination.permit(policy, &opened);
        let both = policy(vec![rule("db.corp:5432"), rule("ip:10.1.2.3:22"), rule("other.corp:5432")]);
        let address = |text: &str| Destination::Address { address: text.parse().unwrap(), port: 22 };
        assert_eq!(of(named("db.corp", 5432), &both), Some(Permit::Internal));
        assert_eq!(of(address("10.1.2.3"), &both), Some(Permit::Internal));
        assert_eq!(of(named("other.corp", 5432), &both), Some(Permit::Public));
        assert_eq!(of(address("10.1.2.4"), &both), None);
        assert_eq!(of(named("db.corp", 5432), &NetworkPolicy::None), None);
        // A policy that names nothing gets nothing of the inside.
        assert_eq!(of(named("db.corp", 5432), &NetworkPolicy::Open), Some(Permit::Public));
    }

    #[test]
    fn bare_addresses_need_a_rule_or_an_open_policy() {
        let address = Destination::Address { address: "93.184.216.34".parse().unwrap(), port: 443 };
        assert_eq!(address.permit(&policy(vec![rule("*.example.com")]), &[]), None);
        assert_eq!(address.permit(&policy(vec![rule("ip:93.184.216.34")]), &[]), Some(Permit::Public));
        assert_eq!(address.permit(&NetworkPolicy::Open, &[]), Some(Permit::Public));
        assert_eq!(address.permit(&NetworkPolicy::None, &[]), None);
    }
}
