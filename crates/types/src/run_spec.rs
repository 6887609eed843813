//! What a caller wants run once: code, its files and its limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Blob, Enforcement, EnvMap, GuestPath, Labels, LanguageName, LimitsPatch, NetworkPolicy, Requirement,
    Routing, RoutingError, Space, Usd,
};

const MAX_ARGS: usize = 4096;
/// The kernel refuses a longer argument.
const MAX_ARG: usize = 128 * 1024 - 1;
const MAX_FILES: usize = 10_000;

/// A wanted run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    pub language: LanguageName,
    pub code: String,
    /// Files to put in place before the run, relative to the workspace unless absolute.
    #[serde(default)]
    pub files: BTreeMap<GuestPath, Blob>,
    #[serde(default)]
    pub stdin: Blob,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: EnvMap,
    #[serde(default)]
    pub requirements: Vec<Requirement>,
    #[serde(default)]
    pub limits: LimitsPatch,
    #[serde(default)]
    pub network: NetworkPolicy,
    /// Strict or best effort; whoever takes the run has a default.
    #[serde(default)]
    pub enforcement: Option<Enforcement>,
    /// Whether an earlier result of the same run will do. Only without network, and only where a server keeps results.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cache: bool,
    /// Where its writable space lies.
    #[serde(default, skip_serializing_if = "Space::is_memory")]
    pub space: Space,
    /// What its cost is counted under, beside the tenant and the key.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// It is not begun if it is expected to cost more, and stopped before it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Usd>,
    /// Where it should go, where there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Box<Routing>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks this way")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Why a run was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunSpecError {
    #[error("argument {0} holds a NUL character or is longer than 128 KiB")]
    Arg(usize),
    #[error("there are more than 4096 arguments")]
    TooManyArgs,
    #[error("there are more than 10000 files")]
    TooManyFiles,
    #[error("routing: {0}")]
    Routing(RoutingError),
}

impl RunSpec {
    /// A run of `code` with nothing else asked for.
    pub fn new(language: LanguageName, code: impl Into<String>) -> Self {
        Self {
            language,
            code: code.into(),
            files: BTreeMap::new(),
            stdin: Blob::default(),
            args: Vec::new(),
            env: EnvMap::new(),
            requirements: Vec::new(),
            limits: LimitsPatch::default(),
            network: NetworkPolicy::None,
            enforcement: None,
            cache: false,
            space: Space::Memory,
            labels: Labels::default(),
            max_cost: None,
            routing: None,
        }
    }

    /// Checks what the fields' own types cannot.
    pub fn validate(&self) -> Result<(), RunSpecError> {
        if self.args.len() > MAX_ARGS {
            return Err(RunSpecError::TooManyArgs);
        }
        if self.files.len() > MAX_FILES {
            return Err(RunSpecError::TooManyFiles);
        }
        if let Some(routing) = &self.routing {
            routing.validate().map_err(RunSpecError::Routing)?;
        }
        let bad = |arg: &String| arg.contains('\0') || arg.len() > MAX_ARG;
        match self.args.iter().position(bad) {
            Some(place) => Err(RunSpecError::Arg(place)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_documented_request() {
        let json = r#"{"language": "Python", "code": "print(1)", "files": {"a/b.txt": "x", "/tmp/c": {"base64": "AA=="}},
            "stdin": "in", "args": ["-v"], "env": {"A": "1"}, "requirements": ["numpy"], "limits": {"wall": 2},
            "network": "none"}"#;
        let spec: RunSpec = serde_json::from_str(json).unwrap();
        assert_eq!(spec.language.as_str(), "python");
        let paths: Vec<_> = spec.files.keys().map(GuestPath::as_str).collect();
        assert_eq!(paths, ["/tmp/c", "/workspace/a/b.txt"]);
        assert_eq!(spec.validate(), Ok(()));
        let smallest: RunSpec = serde_json::from_str(r#"{"language": "python", "code": ""}"#).unwrap();
        assert_eq!(smallest, RunSpec::new("python".parse().unwrap(), ""));
    }

    #[test]
    fn refuses_what_cannot_run() {
        for bad in [
            r#"{"code": "x"}"#,
            r#"{"language": "python"}"#,
            r#"{"language": "python", "code": "x", "image": "y"}"#,
        ] {
            assert!(serde_json::from_str::<RunSpec>(bad).is_err(), "{bad}");
        }
        let mut spec = RunSpec::new("python".parse().unwrap(), "");
        spec.args = vec!["fine".into(), "a\0b".into()];
        assert_eq!(spec.validate(), Err(RunSpecError::Arg(1)));
        spec.args = vec![String::new(); 4097];
        assert_eq!(spec.validate(), Err(RunSpecError::TooManyArgs));
    }
}
