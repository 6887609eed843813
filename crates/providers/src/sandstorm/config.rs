//! What the operator says about the other server.

use std::time::Duration;

use sandstorm_client::ClientOptions;

pub use crate::account::{ApiKey, Owner, OwnerError};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_never_shown() {
        let mut config = Config::new("far", "http://h", "me".parse().unwrap());
        config.key = Some(ApiKey::new("ss_abc_hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
