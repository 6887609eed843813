//! Secrets: the configuration names where one is kept, and never holds it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::environment::Environment;

/// Longer files are refused: a wrong path should not become a header.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

const EXPECTED: &str = "a reference to a secret, `env:NAME` or `file:/absolute/path`, not the secret itself";

/// Where a secret is kept. Printing it is safe: it shows the place, not the secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretRef {
    Environment(String),
    File(PathBuf),
}

/// A secret that has been read. It has no `Display` and no `Serialize`, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A reference that leads nowhere, or text that is not a reference.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("expected {EXPECTED}")]
    NotAReference,
    #[error("the environment variable {0} is not set")]
    Unset(String),
    #[error("the environment variable {0} is not UTF-8")]
    NotText(String),
    #[error("cannot read the secret in {path}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the secret in {place} is empty")]
    Empty { place: String },
    #[error("the secret in {path} is longer than 64 KiB", path = .0.display())]
    TooLong(PathBuf),
}

impl Secret {
    /// The secret itself. The name is long so that each use stands out.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl SecretRef {
    /// Reads the secret. One trailing line break is dropped, since editors and `echo` add it.
    pub fn resolve(&self, environment: &Environment) -> Result<Secret, SecretError> {
        let text = match self {
            SecretRef::Environment(name) => environment
                .raw(name)
                .ok_or_else(|| SecretError::Unset(name.clone()))?
                .to_str()
                .ok_or_else(|| SecretError::NotText(name.clone()))?
                .to_owned(),
            SecretRef::File(path) => {
                let read = |source| SecretError::Read { path: path.clone(), source };
                if std::fs::metadata(path).map_err(read)?.len() > MAX_SECRET_BYTES {
                    return Err(SecretError::TooLong(path.clone()));
                }
                std::fs::read_to_string(path).map_err(read)?
            }
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() {
            return Err(SecretError::Empty { place: self.to_string() });
        }
        Ok(Secret(text.to_owned()))
    }
}

impl FromStr for SecretRef {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        // The error never repeats the text: it may be the secret.
        if let Some(name) = text.strip_prefix("env:") {
            let valid =
                !name.is_empty() && !name.contains(|c: char| c == '=' || c == '\0' || c.is_whitespace());
            return valid.then(|| SecretRef::Environment(name.to_owned())).ok_or(SecretError::NotAReference);
        }
        match text.strip_prefix("file:") {
            Some(path) if path.starts_with('/') => Ok(SecretRef::File(PathBuf::from(path))),
            _ => Err(SecretError::NotAReference),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Environment(name) => write!(f, "env:{name}"),
            SecretRef::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Serde's own type errors quote the value, so every kind of value is accepted here and refused without it.
        let value = serde_json::Value::deserialize(deserializer)
            .map_err(|_| de::Error::custom(SecretError::NotAReference))?;
        value.as_str().ok_or(SecretError::NotAReference).and_then(str::parse).map_err(de::Error::custom)
    }
}

impl JsonSchema for SecretRef {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretRef".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(env:[^=\\s]+|file:/.*)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_parse_and_print() {
        for text in ["env:TOKEN", "file:/run/secrets/pip"] {
            assert_eq!(text.parse::<SecretRef>().unwrap().to_string(), text);
        }
        for text in ["hunter2", "env:", "env:A=B", "env:A B", "file:relative", "file:", "FILE:/x", ""] {
            let error = text.parse::<SecretRef>().unwrap_err().to_string();
            assert!(text.is_empty() || !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_wrong_kind_of_value_is_not_repeated() {
        for value in
            [serde_json::json!(48151623), serde_json::json!({"k": "hunter2"}), serde_json::json!(["hunter2"])]
        {
            let error = serde_json::from_value::<SecretRef>(value).unwrap_err().to_string();
            assert!(!error.contains("hunter2") && !error.contains("48151623"), "{error}");
            assert!(error.contains("env:NAME"), "{error}");
        }
    }

    #[test]
    fn secrets_resolve_and_stay_out_of_debug() {
        let environment = Environment::new([("TOKEN".into(), "hunter2".into()), ("EMPTY".into(), "".into())]);
        let secret = SecretRef::Environment("TOKEN".into()).resolve(&environment).unwrap();
        assert_eq!(secret.expose_secret(), "hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert!(matches!(
            SecretRef::Environment("EMPTY".into()).resolve(&environment),
            Err(SecretError::Empty { .. })
        ));
        assert!(matches!(
            SecretRef::Environment("NONE".into()).resolve(&environment),
            Err(SecretError::Unset(_))
        ));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "swordfish\r\n").unwrap();
        let secret = SecretRef::File(path.clone()).resolve(&environment).unwrap();
        assert_eq!(secret.expose_secret(), "swordfish");
        std::fs::write(&path, vec![b'x'; 64 * 1024 + 1]).unwrap();
        assert!(matches!(SecretRef::File(path).resolve(&environment), Err(SecretError::TooLong(_))));
        let missing = SecretRef::File("/nowhere/at/all".into()).resolve(&environment);
        assert!(matches!(missing, Err(SecretError::Read { .. })));
    }
}
