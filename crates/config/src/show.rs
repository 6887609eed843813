//! `config show`: every setting, its value and where the value came from.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::load::Loaded;
use crate::origin::Origin;
use crate::shape::{self, Content, Shape, join};

/// One setting. Secrets appear as the reference to them, since the configuration holds nothing else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    pub key: String,
    /// Null when it is not set.
    pub value: Value,
    /// JSON carries it as the text that people read.
    #[serde(serialize_with = "as_text")]
    pub origin: Origin,
}

fn as_text<S: Serializer>(origin: &Origin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(origin)
}

impl Loaded {
    /// Every setting in the order of the reference page.
    pub fn settings(&self) -> Vec<Setting> {
        let mut tree = serde_json::to_value(&self.config).expect("the tree has text keys only");
        if let Ok(path) = self.state_dir() {
            tree["state_dir"] = Value::String(path.display().to_string());
        }
        let mut settings = Vec::new();
        self.collect(shape::root(), &tree, "", &mut settings);
        settings
    }

    /// The settings as lines: `limits.memory: 512MiB  # default`.
    pub fn show(&self) -> String {
        let settings = self.settings();
        let lines: Vec<_> =
            settings.iter().map(|s| (format!("{}: {}", s.key, plain(&s.value)), &s.origin)).collect();
        // Long values stand out to the right rather than push all comments there.
        let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|width| *width <= 60).max();
        let width = width.unwrap_or_default();
        lines.iter().map(|(line, origin)| format!("{line:<width$}  # {origin}\n")).collect()
    }

    fn collect(&self, shape: &Shape, value: &Value, key: &str, settings: &mut Vec<Setting>) {
        match (&shape.content, value) {
            (Content::Section(keys), _) => {
                for (name, shape) in keys {
                    self.collect(shape, &value[name], &join(key, name), settings);
                }
            }
            (Content::Named(inner), Value::Object(entries)) if !entries.is_empty() => {
                for (name, value) in entries {
                    self.collect(inner, value, &join(key, name), settings);
                }
            }
            _ => settings.push(Setting {
                key: key.to_owned(),
                value: value.clone(),
                origin: self.provenance.of(key),
            }),
        }
    }
}

/// A value on one line, as YAML reads it back.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Whether YAML reads the bare text back as the same text.
fn is_plain(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    let word = matches!(text, "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    starts && text.chars().all(safe) && !text.ends_with(':') && !word && text.parse::<f64>().is_err()
}
