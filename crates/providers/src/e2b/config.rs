//! What the operator says about E2B.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::{ByteSize, Isolation, MilliCpus, SnapshotId, Template};

use crate::account::{ApiKey, Owner};

/// The account, and how to behave towards it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Unique among our providers.
    pub name: String,
    pub key: ApiKey,
    /// The mark of this installation; another one with the same mark and the same account would take our sandboxes for
    /// its own.
    pub owner: Owner,
    /// Below which everything is: `https://api.DOMAIN`, `https://sandbox.DOMAIN`.
    pub domain: String,
    /// Where the control plane is, if not there.
    pub api_url: Option<String>,
    /// One address for all sandboxes, if they have none of their own.
    pub sandbox_url: Option<String>,
    /// Where it stands, for people and for the choice of a place.
    pub region: Option<String>,
    /// The boundary that its sandboxes have.
    pub isolation: Isolation,
    /// Our names of templates, `host` or that of an image, and what they are there.
    pub templates: BTreeMap<String, E2bTemplate>,
    /// The longest life of a sandbox that the account allows.
    pub max_lifetime: Duration,
    /// How long a sandbox stays there without hearing from us.
    pub lease: Duration,
    /// How often it is looked whether our sandboxes are still there.
    pub poll: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take where the operation has no nearer deadline.
    pub answer_timeout: Duration,
    /// How long a stream may be silent. A sign of life is asked for three times as often.
    pub silence: Duration,
}

/// A template of theirs. Its size is fixed when it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct E2bTemplate {
    /// Its id or name.
    pub id: String,
    pub cpus: MilliCpus,
    pub memory: ByteSize,
    pub disk: ByteSize,
}

/// Our name for a sandbox with the usual tools.
const HOST: &str = "host";

impl E2bTemplate {
    /// One of the usual size.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            cpus: MilliCpus::new(2000),
            memory: ByteSize::mib(512),
            disk: ByteSize::gib(10),
        }
    }
}

impl Config {
    pub fn new(name: impl Into<String>, key: ApiKey, owner: Owner) -> Self {
        Self {
            name: name.into(),
            key,
            owner,
            domain: "e2b.app".to_owned(),
            api_url: None,
            sandbox_url: None,
            region: None,
            isolation: Isolation::MicroVm,
            templates: [(HOST.to_owned(), E2bTemplate::new("base"))].into(),
            max_lifetime: Duration::from_secs(3600),
            lease: Duration::from_secs(15 * 60),
            poll: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            silence: Duration::from_secs(45),
        }
    }

    /// Signs of life on a stream that are asked for.
    pub(super) fn keepalive_seconds(&self) -> u64 {
        (self.silence.as_secs() / 3).max(1)
    }
}

/// What we call a template.
pub(super) fn template_name(template: &Template) -> Option<&str> {
    match template {
        Template::Host => Some(HOST),
        Template::Image(image) => Some(image),
        Template::Snapshot(_) => None,
    }
}

/// Before the id of a snapshot where a template is named. No image is called so.
const SAVED: &str = "snapshot ";

/// What a sandbox is marked with, so that it is known what it was made from.
pub(super) fn template_mark(template: &Template) -> String {
    match template {
        Template::Snapshot(id) => format!("{SAVED}{id}"),
        other => template_name(other).unwrap_or_default().to_owned(),
    }
}

/// The template that we call so.
pub(super) fn template_named(name: &str) -> Template {
    let saved = name.strip_prefix(SAVED).and_then(|id| id.parse::<SnapshotId>().ok());
    match (saved, name) {
        (Some(id), _) => Template::Snapshot(id),
        (None, HOST) => Template::Host,
        (None, image) => Template::Image(image.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_never_shown() {
        let config = Config::new("e2b", ApiKey::new("e2b_hunter2"), "me".parse().unwrap());
        assert!(!format!("{config:?}").contains("hunter2"));
        assert_eq!(config.keepalive_seconds(), 15);
    }

    #[test]
    fn templates_have_names_both_ways() {
        let saved = Template::Snapshot(SnapshotId::from_bits(7));
        assert_eq!(template_named(&template_mark(&saved)), saved);
        for template in [Template::Host, Template::Image("python:3.12".to_owned())] {
            assert_eq!(template_named(template_name(&template).unwrap()), template);
            assert_eq!(template_named(&template_mark(&template)), template);
        }
    }
}
