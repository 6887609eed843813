//! What a caller says about where a run or a sandbox should go.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Capabilities, Isolation, Objective, Usd, duration};

/// Names in one list at most, and characters of one.
const MAX_NAMES: usize = 64;
const MAX_NAME: usize = 64;

/// An objective, what has to hold, and what should. What is absent is the operator's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Nothing whose expected cost is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Usd>,
    /// Nothing of which one in twenty is known to take longer until it is ready.
    #[serde(with = "duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub max_latency: Option<Duration>,
    /// Goes there unless another place is a quarter better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_region: Option<String>,
    /// The same for providers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred_providers: Vec<String>,
    /// Never these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_providers: Vec<String>,
    /// These first, in this order; the others by their score after them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    #[serde(skip_serializing_if = "Require::is_empty")]
    pub require: Require,
}

/// What a place must have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Require {
    /// Fields of `Capabilities`, by name.
    pub capabilities: Vec<String>,
    /// The weakest boundary that is acceptable.
    pub isolation: Option<Isolation>,
    /// A kind of accelerator, or `any`.
    pub gpu: Option<String>,
    /// Names of regions, or of the areas that they lie in, that data may go to; empty is anywhere.
    pub regions: Vec<String>,
}

impl Require {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why wishes are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RoutingError {
    #[error("`{field}` holds more than {MAX_NAMES} names")]
    TooMany { field: &'static str },
    #[error("`{field}` holds a name that is empty, longer than {MAX_NAME} characters or not plain text")]
    Name { field: &'static str },
    #[error("there is no capability `{0}`")]
    Capability(String),
    #[error("`max_cost` is less than nothing")]
    Cost,
}

impl Routing {
    /// Wants only what has this capability.
    pub fn requiring(capability: &str) -> Self {
        let require = Require { capabilities: vec![capability.to_owned()], ..Require::default() };
        Self { require, ..Self::default() }
    }

    /// Every provider that is named.
    pub fn providers(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let preferred = self.preferred_providers.iter().map(|name| ("preferred_providers", name));
        let excluded = self.exclude_providers.iter().map(|name| ("exclude_providers", name));
        preferred.chain(excluded).chain(self.order.iter().map(|name| ("order", name)))
    }

    /// Whether it can be meant. Which providers there are is not known here.
    pub fn validate(&self) -> Result<(), RoutingError> {
        let require = &self.require;
        for (field, names) in [
            ("preferred_providers", &self.preferred_providers),
            ("exclude_providers", &self.exclude_providers),
            ("order", &self.order),
            ("require.capabilities", &require.capabilities),
            ("require.regions", &require.regions),
        ] {
            if names.len() > MAX_NAMES {
                return Err(RoutingError::TooMany { field });
            }
            check(field, names)?;
        }
        check("preferred_region", self.preferred_region.as_ref())?;
        check("require.gpu", require.gpu.as_ref())?;
        if self.max_cost.is_some_and(|most| most < Usd::ZERO) {
            return Err(RoutingError::Cost);
        }
        let unknown = |name: &&String| Capabilities::default().has(name).is_none();
        match require.capabilities.iter().find(unknown) {
            Some(name) => Err(RoutingError::Capability(name.clone())),
            None => Ok(()),
        }
    }
}

fn check<'a>(field: &'static str, names: impl IntoIterator<Item = &'a String>) -> Result<(), RoutingError> {
    let plain = |name: &String| {
        !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control)
    };
    match names.into_iter().all(plain) {
        true => Ok(()),
        false => Err(RoutingError::Name { field }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Routing, String> {
        let routing: Routing = serde_json::from_str(json).map_err(|error| error.to_string())?;
        routing.validate().map(|()| routing).map_err(|error| error.to_string())
    }

    #[test]
    fn wishes_are_read_and_written() {
        let json = r#"{"objective": "fastest", "max_cost": "0.01", "max_latency": 2.5, "preferred_region": "eu",
            "preferred_providers": ["a"], "exclude_providers": ["b"], "order": ["c"],
            "require": {"capabilities": ["exec_tty"], "isolation": "micro_vm", "gpu": "H100", "regions": ["eu"]}}"#;
        let routing = read(json).unwrap();
        assert_eq!(read(&serde_json::to_string(&routing).unwrap()).unwrap(), routing);
        assert_eq!(serde_json::to_string(&Routing::default()).unwrap(), "{}");
        assert_eq!(routing.providers().map(|(_, name)| name.as_str()).collect::<String>(), "abc");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (json, word) in [
            (r#"{"objective": "best"}"#, "best"),
            (r#"{"max_cost": "-1"}"#, "max_cost"),
            (r#"{"max_latency": -1}"#, "-1"),
            (r#"{"order": [""]}"#, "order"),
            (r#"{"require": {"capabilities": ["flying"]}}"#, "flying"),
            (r#"{"require": {"isolation": "air"}}"#, "air"),
            (r#"{"preferred_region": "a\u0000"}"#, "preferred_region"),
            (r#"{"providers": []}"#, "providers"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(word), "{json}: {error}");
        }
        let many = vec!["x"; MAX_NAMES + 1];
        let json = serde_json::json!({ "order": many }).to_string();
        assert!(read(&json).unwrap_err().contains("more than"));
    }
}
