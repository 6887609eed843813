//! What the operator says about the other server.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sandstorm_client::ClientOptions;
use thiserror::Error;

/// Longest mark: two label keys with a prefix have to hold it.
const MAX_OWNER: usize = 32;

/// The other server, and how to behave towards it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Unique among our providers.
    pub name: String,
    /// Such as `https://sandboxes.example.org`.
    pub url: String,
    /// None only for a server that asks for none.
    pub key: Option<ApiKey>,
    /// The mark of this installation; another one with the same mark and the same account would take our sandboxes for
    /// its own.
    pub owner: Owner,
    /// Where the other server stands, for people and for the choice of a place.
    pub region: Option<String>,
    /// How long a sandbox stays there without hearing from us.
    pub lease: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take where the operation has no nearer deadline.
    pub answer_timeout: Duration,
    /// How long a stream may be silent. The other server says something every 15 s.
    pub silence: Duration,
}

impl Config {
    pub fn new(name: impl Into<String>, url: impl Into<String>, owner: Owner) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            key: None,
            owner,
            region: None,
            lease: Duration::from_secs(30 * 60),
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(120),
            silence: Duration::from_secs(45),
        }
    }

    pub(super) fn client_options(&self) -> ClientOptions {
        ClientOptions {
            connect: self.connect_timeout,
            answer: self.answer_timeout,
            silence: self.silence,
            patience: self.silence * 2,
            // Whoever asks us decides whether to wait or to go elsewhere.
            repeats: false,
            most_answer: 8 << 20,
            most_event: 8 << 20,
            // On one connection for all, a listener that does not read would hold up the others.
            http1_only: true,
        }
    }
}

/// A key of the other server. It has no `Display` and no `Serialize`, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself. The name is long so that each use stands out.
    pub(super) fn expose_secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The mark of one installation on what it has elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(String);

/// Why a text is no mark.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an owner's mark is 1 to 32 of the characters a-z, 0-9 and `-`")]
pub struct OwnerError;

impl Owner {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The label that every sandbox of this owner has, and its value. The mark is part of the key, because a server in
    /// between has marks of its own on what it passes on.
    pub(super) fn label(&self) -> (String, String) {
        (format!("sandstorm.owner/{}", self.0), "yes".to_owned())
    }

    /// The key of the label that says what a sandbox is called by this owner.
    pub(super) fn id_key(&self) -> String {
        format!("sandstorm.sandbox/{}", self.0)
    }
}

impl FromStr for Owner {
    type Err = OwnerError;

    fn from_str(text: &str) -> Result<Self, OwnerError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fine = (1..=MAX_OWNER).contains(&text.len()) && text.bytes().all(plain);
        fine.then(|| Self(text.to_owned())).ok_or(OwnerError)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::Labels;

    use super::*;

    #[test]
    fn keys_are_never_shown() {
        let mut config = Config::new("far", "http://h", "me".parse().unwrap());
        config.key = Some(ApiKey::new("ss_abc_hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn marks_fit_into_labels() {
        let longest: Owner = "m".repeat(32).parse().unwrap();
        let labels = [longest.label(), (longest.id_key(), String::new())];
        assert!(Labels::try_from(std::collections::BTreeMap::from(labels)).is_ok());
        for bad in ["", "A", "a b", "ü", "a/b", &"m".repeat(33)] {
            assert_eq!(bad.parse::<Owner>(), Err(OwnerError), "{bad:?}");
        }
    }
}
