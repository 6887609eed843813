//! Addresses of package indexes, as far as the network policy needs to know them.

use std::net::IpAddr;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Rule, Target, is_public};

/// The part of an address that says where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads `https://host:port/…`; `None` for anything else.
    pub(crate) fn of(address: &str) -> Option<Self> {
        let address = address.strip_prefix("sparse+").unwrap_or(address);
        let (rest, usual) = match (address.strip_prefix("https://"), address.strip_prefix("http://")) {
            (Some(rest), _) => (rest, 443),
            (None, Some(rest)) => (rest, 80),
            (None, None) => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| Self { host: host.to_lowercase(), port })
    }

    /// Whether it means whoever asks: inside a sandbox, the sandbox.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.ends_with(".localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Whether its name leads to an address that is not public.
    pub(crate) async fn lies_off_the_internet(&self) -> bool {
        match tokio::net::lookup_host((self.host.as_str(), self.port)).await {
            Ok(mut found) => found.any(|address| !is_public(address.ip())),
            Err(_) => false,
        }
    }

    /// A rule that lets a build reach it.
    pub(crate) fn rule(&self) -> Result<Rule> {
        let bad = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::InvalidRequest, "the package index has no usable host")
                .with("host", &self.host)
                .with_source(e)
        };
        let target = match self.host.parse::<IpAddr>() {
            Ok(ip) => Target::Ip(ip),
            Err(_) => {
                Target::Host(self.host.parse().map_err(|e: sandstorm_types::HostNameError| bad(e.into()))?)
            }
        };
        Rule::new(target, &[self.port]).map_err(|e| bad(e.into()))
    }
}

/// The address with `user:password` or a token in it, as most package managers take them.
pub(crate) fn with_credentials(address: &str, credentials: Option<&str>) -> String {
    match (credentials, address.split_once("://")) {
        (Some(credentials), Some((scheme, rest))) => {
            let (user, password) = pair(credentials);
            format!("{scheme}://{user}:{password}@{rest}")
        }
        _ => address.to_owned(),
    }
}

/// Every form in which credentials may turn up in a text, the longest first.
pub(crate) fn secrets(credentials: &str) -> Vec<String> {
    let (user, password) = pair(credentials);
    let plain = credentials.split_once(':').map_or(credentials, |(_, password)| password);
    vec![format!("{user}:{password}"), credentials.to_owned(), password, plain.to_owned()]
}

/// User and password as an address holds them. Whoever takes a token takes it as a password of any user.
fn pair(credentials: &str) -> (String, String) {
    let (user, password) = credentials.split_once(':').unwrap_or(("__token__", credentials));
    (escaped(user), escaped(password))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_become_rules_for_one_host_and_port() {
        for (address, rule) in [
            ("https://a.example/simple/", "a.example:443"),
            ("http://A.example:3141", "a.example:3141"),
            ("sparse+https://a.example/i/", "a.example:443"),
            ("https://u:p@a.example/x", "a.example:443"),
            ("http://192.0.2.7:80/", "ip:192.0.2.7:80"),
            ("http://[2001:db8::1]:81/", "ip:[2001:db8::1]:81"),
        ] {
            let found = Endpoint::of(address).unwrap().rule().unwrap();
            assert_eq!((found.to_string().as_str(), found.is_internal()), (rule, false), "{address}");
        }
        for none in ["file:///tmp", "a.example", "https://", "https://a:b/"] {
            assert_eq!(Endpoint::of(none), None, "{none}");
        }
    }

    #[test]
    fn this_machine_is_told_apart() {
        for own in ["http://localhost:1/", "http://127.0.0.1/", "http://[::1]:3141/", "http://x.localhost/"] {
            assert!(Endpoint::of(own).unwrap().is_loopback(), "{own}");
        }
        assert!(!Endpoint::of("http://192.0.2.7/").unwrap().is_loopback());
    }

    #[test]
    fn credentials_are_escaped() {
        assert_eq!(with_credentials("https://a/x", None), "https://a/x");
        assert_eq!(with_credentials("https://a/x", Some("me:p@:/")), "https://me:p%40%3A%2F@a/x");
        assert_eq!(with_credentials("https://a/x", Some("t0k")), "https://__token__:t0k@a/x");
    }
}
