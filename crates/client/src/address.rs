//! Where the server is, and the addresses of things on it.

use reqwest::Url;

use crate::{Error, Result};

/// The address of a server; what it serves lies below it, so that it may stand behind a proxy's prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(Url);

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refuse = |why| Err(Error::Address { address: redacted(text), why });
        let Ok(mut url) = Url::parse(text) else {
            return refuse("expected something like http://127.0.0.1:7300");
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("it must start with http:// or https://");
        }
        if url.host_str().is_none_or(str::is_empty) {
            return refuse("it names no host");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("a key is not part of the address");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse("it may not have a query");
        }
        let trimmed = url.path().trim_end_matches('/').to_owned();
        url.set_path(&trimmed);
        Ok(Self(url))
    }

    /// `/v1/` and these parts, each escaped.
    pub(crate) fn v1(&self, parts: &[&str]) -> Url {
        let mut url = self.0.clone();
        url.path_segments_mut()
            .expect("an address with a host has a path")
            .pop_if_empty()
            .push("v1")
            .extend(parts);
        url
    }

    /// Something that the server has outside of `/v1`.
    pub(crate) fn outside(&self, part: &str) -> Url {
        let mut url = self.0.clone();
        url.path_segments_mut().expect("an address with a host has a path").pop_if_empty().push(part);
        url
    }

    /// The server as people know it: scheme, host and port.
    pub(crate) fn server(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub(crate) fn is_loopback(&self) -> bool {
        match self.0.host_str() {
            Some("localhost") => true,
            Some(host) => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
            None => false,
        }
    }
}

/// Parameters of an address; those without a value are left out.
pub(crate) fn with_query(mut url: Url, pairs: &[(&str, Option<String>)]) -> Url {
    for (name, value) in pairs {
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    url
}

/// Without what may be a password.
fn redacted(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_below_the_prefix() {
        for (base, expected) in [
            ("http://127.0.0.1:7300", "http://127.0.0.1:7300/v1/sandboxes/sbx_a"),
            ("http://127.0.0.1:7300/", "http://127.0.0.1:7300/v1/sandboxes/sbx_a"),
            ("https://host/some/prefix//", "https://host/some/prefix/v1/sandboxes/sbx_a"),
        ] {
            assert_eq!(Address::parse(base).unwrap().v1(&["sandboxes", "sbx_a"]).as_str(), expected);
            let outside = Address::parse(base).unwrap().outside("readyz");
            assert_eq!(outside.as_str(), expected.replace("v1/sandboxes/sbx_a", "readyz"));
        }
    }

    #[test]
    fn parts_and_parameters_are_escaped() {
        let address = Address::parse("http://h").unwrap();
        assert_eq!(address.v1(&["a/b", "c?d#e", "ü"]).as_str(), "http://h/v1/a%2Fb/c%3Fd%23e/%C3%BC");
        let url = with_query(
            address.v1(&["files"]),
            &[("path", Some("/a b/&=+#?%.txt".to_owned())), ("mode", None), ("depth", Some("2".to_owned()))],
        );
        assert_eq!(url.as_str(), "http://h/v1/files?path=%2Fa+b%2F%26%3D%2B%23%3F%25.txt&depth=2");
        let back: Vec<_> = url.query_pairs().map(|(_, value)| value.into_owned()).collect();
        assert_eq!(back, ["/a b/&=+#?%.txt", "2"]);
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in [
            "",
            "127.0.0.1:7300",
            "ftp://h",
            "unix:/run/x",
            "http://h/?key=1",
            "http://h/#x",
            "http://u:hunter2@h",
        ] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn loopback_is_told_from_the_rest() {
        for (text, loopback) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }
}
