//! Package indexes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use sandstorm_types::AllowList;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::secret::SecretRef;

/// Where packages come from when a run asks for some.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Packages {
    /// Python packages.
    pub pip: PackageIndex,
    /// JavaScript and TypeScript packages.
    pub npm: PackageIndex,
    /// Rust crates.
    pub cargo: PackageIndex,
    /// Go modules.
    pub go: PackageIndex,
    /// Java packages.
    pub maven: PackageIndex,
    /// Ruby gems.
    pub gem: PackageIndex,
}

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Manager {
    Pip,
    Npm,
    Cargo,
    Go,
    Maven,
    Gem,
}

impl Packages {
    pub fn of(&self, manager: Manager) -> &PackageIndex {
        match manager {
            Manager::Pip => &self.pip,
            Manager::Npm => &self.npm,
            Manager::Cargo => &self.cargo,
            Manager::Go => &self.go,
            Manager::Maven => &self.maven,
            Manager::Gem => &self.gem,
        }
    }
}

/// The index of one package manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PackageIndex {
    /// The address of the index, without credentials. Not set: what the package manager's own configuration on
    /// this machine says.
    #[schemars(example = &"https://packages.example.org/index/")]
    pub index: Option<Index>,
    /// Where the credentials for the index are kept: `env:NAME` or `file:/path`, holding `user:password` or a
    /// token.
    #[schemars(example = &"file:/etc/sandstorm/index.token")]
    pub credentials: Option<SecretRef>,
    /// Further hosts that installing may reach, also private ones, such as the one that an index keeps its files on:
    /// `files.example.org`, `ip:192.0.2.7:8443`. Without ports one means 80 and 443.
    #[schemars(with = "Vec<String>", example = hosts())]
    pub hosts: AllowList,
}

fn hosts() -> Vec<&'static str> {
    vec!["files.example.org", "ip:192.0.2.7:8443"]
}

/// The address of a package index: HTTP or HTTPS, with a host, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index(String);

/// Why a text is not such an address. It never repeats the text, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("an index is an address that starts with https:// or http:// (for cargo also sparse+https://)")]
    Scheme,
    #[error("an index has a host, and no spaces or control characters")]
    Host,
    #[error("an index holds no credentials; put a reference to them under `credentials`")]
    Credentials,
}

impl Index {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Index {
    type Err = IndexError;

    fn from_str(text: &str) -> Result<Self, IndexError> {
        let address = text.strip_prefix("sparse+").unwrap_or(text);
        let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
        let rest = rest.ok_or(IndexError::Scheme)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(IndexError::Credentials);
        }
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
        if authority.is_empty() || authority.starts_with(':') || rest.contains(odd) {
            return Err(IndexError::Host);
        }
        Ok(Index(text.to_owned()))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Index {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Index {
    fn schema_name() -> Cow<'static, str> {
        "Index".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(sparse\\+)?https?://[^@/\\s]+(/[^\\s]*)?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_credentials_are_indexes() {
        for text in [
            "https://a.example/simple/",
            "http://127.0.0.1:3141/x",
            "sparse+https://a.example/i/",
            "https://a",
        ] {
            assert_eq!(text.parse::<Index>().unwrap().as_str(), text);
        }
        for (text, error) in [
            ("a.example", IndexError::Scheme),
            ("ftp://a.example", IndexError::Scheme),
            ("HTTPS://a.example", IndexError::Scheme),
            ("https://", IndexError::Host),
            ("https:///path", IndexError::Host),
            ("https://:80/", IndexError::Host),
            ("https://a b/", IndexError::Host),
            ("https://a/\n", IndexError::Host),
            ("https://user:pass@a.example/", IndexError::Credentials),
            ("https://token@a.example", IndexError::Credentials),
        ] {
            assert_eq!(text.parse::<Index>(), Err(error), "{text:?}");
            assert!(!error.to_string().contains("pass@"));
        }
    }
}
