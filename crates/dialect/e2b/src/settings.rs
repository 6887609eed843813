//! What the operator decides about this API.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_provider::Closing;
use sandstorm_types::{LimitsPatch, Requirement, Template};

/// The template of the plain SDK, and that of the code interpreter.
pub(crate) const BASE: &str = "base";
pub(crate) const INTERPRETER: &str = "code-interpreter-v1";

/// Settings of the dialect. [`Default`] is a server on loopback.
#[derive(Debug, Clone)]
pub struct E2bSettings {
    /// The domain below which `{port}-{id}` are host names. Without one every domain counts.
    pub domain: Option<String>,
    /// What E2B's names of templates mean here.
    pub templates: BTreeMap<String, Template>,
    /// Python packages of sandboxes from the template of the code interpreter.
    pub python_packages: Vec<Requirement>,
    /// Whether sandboxes that say nothing about it reach the public internet, where the host can let them.
    pub network: bool,
    /// Limits of its sandboxes; what is not said is the server's default.
    pub limits: LimitsPatch,
    /// The longest lifetime that may be asked for.
    pub longest_lifetime: Duration,
    /// Cancelled when the server stops: endless streams end then.
    pub closing: Closing,
}

impl Default for E2bSettings {
    fn default() -> Self {
        Self {
            domain: None,
            templates: [BASE, INTERPRETER].map(|name| (name.to_owned(), Template::Host)).into(),
            python_packages: Vec::new(),
            network: true,
            limits: LimitsPatch::default(),
            longest_lifetime: Duration::from_secs(86_400),
            closing: Closing::default(),
        }
    }
}
