//! Every public address but what is denied, and headers for requests on their way out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Target;
use crate::{HostName, HostPattern, IpNetwork};

const MAX_ENTRIES: usize = 1024;
const MAX_HOSTS: usize = 64;
const MAX_HEADERS: usize = 32;
const MAX_VALUE: usize = 4096;
/// Ports on which an allowed name counts: there the name inside a connection is checked.
const NAMED_PORTS: [u16; 2] = [80, 443];
/// Headers that say how a message is read or whom it is for. A policy does not set them.
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// Any public address less what is denied. What is allowed goes before what is denied.
///
/// An address or network is allowed on every port, a name on ports 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct NetworkFilter {
    deny: Vec<IpNetwork>,
    allow: Vec<Target>,
    headers: Vec<HeaderRule>,
}

/// Headers that every plain HTTP request to a host gets, in place of those that it has by the same names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    pub host: HostPattern,
    pub headers: BTreeMap<String, String>,
}

/// Why a filter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkFilterError {
    #[error("a network filter denies or allows more than 1024 things")]
    TooMany,
    #[error("a network filter has headers for more than 64 hosts")]
    TooManyHosts,
    #[error("a host has no headers or more than 32")]
    HeaderCount,
    #[error("`{0}` is not the name of a header that can be set")]
    HeaderName(String),
    #[error("the value of header `{0}` is longer than 4096 bytes or has bytes that are not visible ASCII")]
    HeaderValue(String),
}

/// The outside form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deny: Vec<IpNetwork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<Target>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<HeaderRule>,
}

impl NetworkFilter {
    pub fn new(
        deny: Vec<IpNetwork>,
        allow: Vec<Target>,
        headers: Vec<HeaderRule>,
    ) -> Result<Self, NetworkFilterError> {
        if deny.len() > MAX_ENTRIES || allow.len() > MAX_ENTRIES {
            return Err(NetworkFilterError::TooMany);
        }
        if headers.len() > MAX_HOSTS {
            return Err(NetworkFilterError::TooManyHosts);
        }
        headers.iter().try_for_each(HeaderRule::check)?;
        Ok(Self { deny, allow, headers })
    }

    pub fn denied(&self) -> &[IpNetwork] {
        &self.deny
    }

    pub fn allowed(&self) -> &[Target] {
        &self.allow
    }

    pub fn header_rules(&self) -> &[HeaderRule] {
        &self.headers
    }

    /// Whether nothing can be reached but what is allowed.
    pub fn denies_everything(&self) -> bool {
        self.deny.iter().any(|network| !network.is_ipv6() && network.length() == 0)
    }

    /// Whether a connection to this name may be tried.
    pub(super) fn admits_name(&self, name: &HostName, port: u16) -> bool {
        !self.denies_everything() || self.names(name, port)
    }

    pub(super) fn resolves(&self, name: &HostName) -> bool {
        !self.denies_everything() || self.allow_pattern(name)
    }

    /// Whether the name is allowed as such, whatever its addresses are.
    pub(super) fn names(&self, name: &HostName, port: u16) -> bool {
        NAMED_PORTS.contains(&port) && self.allow_pattern(name)
    }

    /// Whether a connection to this name, or to no name, may go to this address.
    pub(super) fn reaches(&self, name: Option<&HostName>, address: IpAddr, port: u16) -> bool {
        let allowed = |target: &Target| match target {
            Target::Ip(allowed) => *allowed == address.to_canonical(),
            Target::Network(allowed) => allowed.contains(address),
            Target::Host(_) => false,
        };
        let denied = self.denies_everything() || self.deny.iter().any(|network| network.contains(address));
        !denied || name.is_some_and(|name| self.names(name, port)) || self.allow.iter().any(allowed)
    }

    /// The headers for requests to this name. The last rule that names it is the one that counts.
    pub(super) fn headers_for(&self, name: &HostName) -> Option<&BTreeMap<String, String>> {
        self.headers.iter().rev().find(|rule| rule.host.matches(name)).map(|rule| &rule.headers)
    }

    fn allow_pattern(&self, name: &HostName) -> bool {
        self.allow.iter().any(|target| matches!(target, Target::Host(pattern) if pattern.matches(name)))
    }

    /// The filter as one text that is the same for the same filter.
    pub(super) fn canonical(&self) -> String {
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines.dedup();
            lines.join("\n")
        };
        let deny = sorted(self.deny.iter().map(ToString::to_string).collect());
        let allow = sorted(self.allow.iter().map(ToString::to_string).collect());
        let headers: Vec<_> =
            self.headers.iter().map(|rule| format!("{} {:?}", rule.host, rule.headers)).collect();
        format!("deny\n{deny}\nallow\n{allow}\nheaders\n{}", headers.join("\n"))
    }
}

impl HeaderRule {
    fn check(&self) -> Result<(), NetworkFilterError> {
        if self.headers.is_empty() || self.headers.len() > MAX_HEADERS {
            return Err(NetworkFilterError::HeaderCount);
        }
        for (name, value) in &self.headers {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let lower = name.to_ascii_lowercase();
            let proper = (1..=128).contains(&name.len()) && name.bytes().all(token);
            if !proper || FRAMING.contains(&lower.as_str()) || lower.starts_with("proxy-") {
                return Err(NetworkFilterError::HeaderName(name.chars().take(64).collect()));
            }
            let visible = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
            if value.len() > MAX_VALUE || !value.bytes().all(visible) || value.trim() != value {
                return Err(NetworkFilterError::HeaderValue(name.clone()));
            }
        }
        Ok(())
    }
}

/// Values may be secrets.
impl fmt::Debug for HeaderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        f.debug_struct("HeaderRule").field("host", &self.host).field("headers", &names).finish()
    }
}

impl TryFrom<Written> for NetworkFilter {
    type Error = NetworkFilterError;

    fn try_from(written: Written) -> Result<Self, NetworkFilterError> {
        Self::new(written.deny, written.allow, written.headers)
    }
}

impl From<NetworkFilter> for Written {
    fn from(filter: NetworkFilter) -> Self {
        let NetworkFilter { deny, allow, headers } = filter;
        Self { deny, allow, headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(deny: &[&str], allow: &[&str]) -> NetworkFilter {
        let deny = deny.iter().map(|text| text.parse().unwrap()).collect();
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        NetworkFilter::new(deny, allow, Vec::new()).unwrap()
    }

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_denied_is_out_and_the_rest_is_open() {
        let filter = filter(&["8.8.8.8/32", "192.0.2.0/24", "2001:db8::/32"], &[]);
        for denied in ["8.8.8.8", "192.0.2.7", "::ffff:8.8.8.8", "2001:db8::1"] {
            assert!(!filter.reaches(None, address(denied), 443), "{denied}");
            assert!(!filter.reaches(Some(&name("a.test")), address(denied), 443), "{denied}");
        }
        assert!(filter.reaches(None, address("1.1.1.1"), 22));
        assert!(filter.admits_name(&name("a.test"), 22) && filter.resolves(&name("a.test")));
    }

    #[test]
    fn what_is_allowed_goes_first() {
        let filter = filter(&["192.0.2.0/24"], &["ip:192.0.2.7", "good.test", "*.good.test"]);
        assert!(filter.reaches(None, address("192.0.2.7"), 22));
        assert!(!filter.reaches(None, address("192.0.2.8"), 22));
        assert!(filter.reaches(Some(&name("good.test")), address("192.0.2.8"), 443));
        assert!(filter.reaches(Some(&name("a.good.test")), address("192.0.2.8"), 80));
        assert!(
            !filter.reaches(Some(&name("good.test")), address("192.0.2.8"), 22),
            "names count on two ports"
        );
        assert!(!filter.reaches(Some(&name("bad.test")), address("192.0.2.8"), 443));
    }

    #[test]
    fn where_everything_is_denied_only_allowed_names_are_looked_up() {
        let filter = filter(&["0.0.0.0/0"], &["good.test", "ip:192.0.2.0/24"]);
        assert!(filter.denies_everything());
        assert!(filter.resolves(&name("good.test")) && !filter.resolves(&name("bad.test")));
        assert!(filter.admits_name(&name("good.test"), 443) && !filter.admits_name(&name("good.test"), 22));
        assert!(!filter.admits_name(&name("bad.test"), 443));
        assert!(!filter.reaches(None, address("2001:db8::1"), 443), "in either family");
        assert!(filter.reaches(None, address("192.0.2.1"), 8080));
    }

    #[test]
    fn headers_are_bounded_and_never_shown() {
        let rule = |name: &str, value: &str| HeaderRule {
            host: "api.test".parse().unwrap(),
            headers: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        };
        let made = |rule| NetworkFilter::new(Vec::new(), Vec::new(), vec![rule]);
        let good = made(rule("X-Token", "secret-word")).unwrap();
        assert!(!format!("{good:?}").contains("secret-word"));
        assert_eq!(good.headers_for(&name("api.test")).unwrap()["X-Token"], "secret-word");
        assert_eq!(good.headers_for(&name("other.test")), None);
        for (bad, value) in [
            ("Host", "x"),
            ("content-length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("proxy-authorization", "x"),
            ("a b", "x"),
            ("", "x"),
            ("x", "a\r\nb: c"),
            ("x", "ä"),
            ("x", " x"),
        ] {
            assert!(made(rule(bad, value)).is_err(), "{bad}: {value}");
        }
        assert!(made(rule("x", &"v".repeat(4097))).is_err());
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let filter = filter(&["192.0.2.0/24"], &["ip:192.0.2.7", "*.good.test", "ip:[2001:db8::1]"]);
        let text = serde_json::to_string(&filter).unwrap();
        assert_eq!(
            text,
            r#"{"deny":["192.0.2.0/24"],"allow":["ip:192.0.2.7","*.good.test","ip:[2001:db8::1]"]}"#
        );
        assert_eq!(serde_json::from_str::<NetworkFilter>(&text).unwrap(), filter);
        assert!(serde_json::from_str::<NetworkFilter>(r#"{"denied": []}"#).is_err());
    }
}
