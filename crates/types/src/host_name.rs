//! Host names in one canonical form, and the patterns that match them.
//!
//! A name is canonicalised once; the same bytes are then matched, resolved and dialled. Whatever two
//! parsers could read differently is refused: NUL, control characters, `%`, `@`, slashes, brackets,
//! and every spelling of an IP address. Names outside ASCII are refused too: write the `xn--` form,
//! which is what programs put on the wire.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::text_form::serde_as_text;

/// A host name: lower-case ASCII labels, no trailing dot, no IP address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// Why a text is no host name or pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostNameError {
    #[error("host name is empty")]
    Empty,
    #[error("host name is longer than 253 characters")]
    TooLong,
    #[error("host name has a label of no or more than 63 characters")]
    Label,
    #[error("host name may hold only letters, digits, `-`, `_` and dots, not {0:?}")]
    Character(char),
    #[error("an IP address is not a host name: an address needs a rule of its own")]
    IpAddress,
    #[error("wildcard must be `*.` before at least two labels that no registry shares out")]
    Wildcard,
}

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(HostNameError::Empty);
        }
        let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(strange) = name.chars().find(|c| !allowed(c)) {
            // A colon means an IPv6 address far more often than a slip.
            let ipv6 = strange == ':' && name.matches(':').count() > 1;
            return Err(if ipv6 { HostNameError::IpAddress } else { HostNameError::Character(strange) });
        }
        if name.len() > 253 {
            return Err(HostNameError::TooLong);
        }
        if name.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return Err(HostNameError::Label);
        }
        let name = Self(name.to_ascii_lowercase());
        if name.labels().next_back().is_some_and(is_number) {
            return Err(HostNameError::IpAddress);
        }
        Ok(name)
    }
}

/// Whether resolvers take a name with this last label for an IPv4 address: decimal, octal or hexadecimal,
/// so `127.1`, `0x7f.1` and `2130706433` are addresses. No top-level domain is a number.
fn is_number(label: &str) -> bool {
    let hex =
        label.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || label.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host name, or every name below one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    Exact(HostName),
    /// `*.example.com`: any number of labels before the name, at least one; never the name itself.
    Below(HostName),
}

impl HostPattern {
    pub fn matches(&self, name: &HostName) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Below(base) => name
                .0
                .strip_suffix(base.as_str())
                .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let Some(base) = text.strip_prefix("*.") else {
            return match text.contains('*') {
                true => Err(HostNameError::Wildcard),
                false => text.parse().map(Self::Exact),
            };
        };
        let base: HostName = base.parse().map_err(|error| match error {
            HostNameError::Character('*') => HostNameError::Wildcard,
            other => other,
        })?;
        // Below a public suffix, such as `co.uk` or that of a host for everybody's pages, anybody can have a name.
        // Some registries share out everything below a name, so that what the wildcard covers is looked at too.
        let is_suffix = |name: &str| psl::suffix_str(name).is_none_or(|suffix| suffix == name);
        let shared = is_suffix(base.as_str()) || is_suffix(&format!("a.{base}"));
        if shared { Err(HostNameError::Wildcard) } else { Ok(Self::Below(base)) }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(base) => write!(f, "*.{base}"),
        }
    }
}

serde_as_text!(HostName);
serde_as_text!(HostPattern);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn one_spelling() {
        for text in ["example.com", "EXAMPLE.com", "example.com.", "eXample.Com."] {
            assert_eq!(name(text).as_str(), "example.com");
        }
        assert_eq!(name("_dns.xn--bcher-kva.example").as_str(), "_dns.xn--bcher-kva.example");
    }

    #[test]
    fn refuses_what_parsers_read_differently() {
        for text in [
            "attacker.com\0.example.com",
            "example.com\0",
            "a b.com",
            "a\tb.com",
            "a\r\n.com",
            "exam%70le.com",
            "user@example.com",
            "example.com/",
            "example.com\\x",
            "[example.com]",
            "example.com:443",
            "bücher.example",
            "example。com",
            "exa\u{200b}mple.com",
            "example.com?x",
            "example.com#x",
            "*",
            "*.example.com",
            "example.com\u{7f}",
        ] {
            assert!(matches!(text.parse::<HostName>(), Err(HostNameError::Character(_))), "{text:?}");
        }
        for text in ["..", "a..b", ".example.com", "example.com..", &format!("{}.com", "a".repeat(64))] {
            assert_eq!(text.parse::<HostName>(), Err(HostNameError::Label), "{text:?}");
        }
        assert_eq!("".parse::<HostName>(), Err(HostNameError::Empty));
        assert_eq!(".".parse::<HostName>(), Err(HostNameError::Empty));
        assert_eq!(["a"; 128].join(".").parse::<HostName>(), Err(HostNameError::TooLong));
    }

    #[test]
    fn refuses_every_spelling_of_an_address() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7F.0.0.1",
            "0177.0.0.1",
            "1.2.3",
            "0",
            "0x",
            "a.0x1",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "example.1",
        ] {
            assert_eq!(text.parse::<HostName>(), Err(HostNameError::IpAddress), "{text:?}");
        }
        assert!("[::1]".parse::<HostName>().is_err());
    }

    #[test]
    fn wildcards_stop_at_labels() {
        let pattern: HostPattern = "*.Example.com".parse().unwrap();
        for yes in ["a.example.com", "a.b.example.com", "EXAMPLE.example.com"] {
            assert!(pattern.matches(&name(yes)), "{yes}");
        }
        for no in ["example.com", "evilexample.com", "example.com.evil.net", "a.example.comx", "com"] {
            assert!(!pattern.matches(&name(no)), "{no}");
        }
        let exact: HostPattern = "example.com".parse().unwrap();
        assert!(exact.matches(&name("example.com.")) && !exact.matches(&name("a.example.com")));
    }

    #[test]
    fn wildcards_cover_no_strangers() {
        for text in [
            "*",
            "*.",
            "*.com",
            "*.co.uk",
            "*.com.au",
            "*.kawasaki.jp",
            "*.github.io",
            "*.*.example.com",
            "a.*.com",
            "a*.example.com",
            "**.a.com",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
        for text in
            ["*.example.com", "*.example.co.uk", "*.co.example", "*.me.github.io", "*.city.kawasaki.jp"]
        {
            assert!(text.parse::<HostPattern>().is_ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn accepted_names_are_canonical(text in "\\PC{0,40}|[A-Za-z0-9_.-]{0,40}") {
            if let Ok(parsed) = text.parse::<HostName>() {
                prop_assert_eq!(parsed.as_str().parse::<HostName>(), Ok(parsed.clone()));
                prop_assert!(parsed.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
                prop_assert!(parsed.as_str().parse::<std::net::IpAddr>().is_err());
            }
        }

        #[test]
        fn a_match_is_equal_or_below(front in "[a-z0-9.-]{0,20}", base in "[a-z]{1,8}\\.[a-z]{3,5}") {
            let pattern: HostPattern = format!("*.{base}").parse().unwrap();
            if let Ok(candidate) = format!("{front}{base}").parse::<HostName>() {
                prop_assert_eq!(pattern.matches(&candidate), front.len() > 1 && front.ends_with('.'));
            }
        }

        #[test]
        fn patterns_print_what_they_read(text in "(\\*\\.)?[a-z0-9.-]{1,30}") {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                prop_assert_eq!(pattern.to_string().parse::<HostPattern>(), Ok(pattern));
            }
        }
    }
}
