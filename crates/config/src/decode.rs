//! From merged values to the typed tree, with every bad value reported, not only the first.

use sandstorm_types::LimitName;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::error::{Problem, ProblemKind, nearest};
use crate::layer::Layers;
use crate::shape;
use crate::tree::Config;

/// Decodes what the layers hold. A bad value is taken out of the tree, so that its default stands in for it and
/// the next one can be found.
pub(crate) fn decode(layers: &mut Layers) -> Config {
    loop {
        let error = match serde_path_to_error::deserialize::<_, Config>(&layers.tree) {
            Ok(config) => return config,
            Err(error) => error,
        };
        let key = error.path().to_string();
        let message = in_words(&error.inner().to_string());
        let leaf = shape::root().leaf(&key);
        let choices = leaf.map_or(&[][..], |leaf| &leaf.choices);
        let given =
            value_at(&mut layers.tree, error.path()).and_then(|value| value.as_str().map(str::to_owned));
        let near =
            given.and_then(|given| nearest(&given, choices.iter().map(String::as_str)).map(str::to_owned));
        layers.problems.push(Problem {
            origin: layers.provenance.of(&key),
            kind: ProblemKind::BadValue(message),
            expected: limit_range(&key),
            nearest: near,
            key,
        });
        if !remove(&mut layers.tree, error.path()) {
            // Nothing was left to take out: the tree itself is no section, which the file's walk has refused.
            return Config::default();
        }
    }
}

/// Serde names Rust's types, which mean nothing to an operator.
fn in_words(message: &str) -> String {
    for (rust, words) in [
        ("u32", "a whole number"),
        ("u64", "a whole number"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
    ] {
        if let Some(start) = message.strip_suffix(rust).filter(|start| start.ends_with("expected ")) {
            return format!("{start}{words}");
        }
    }
    message.to_owned()
}

/// The range of a limit, which its own message may not mention when the value is of another kind.
pub(crate) fn limit_range(key: &str) -> Option<String> {
    let name = key.strip_prefix("limits.").or_else(|| key.strip_prefix("sandbox.ceiling."))?;
    Some(name.parse::<LimitName>().ok()?.allowed())
}

fn value_at<'a>(tree: &'a mut Value, path: &Path) -> Option<&'a mut Value> {
    path.iter().try_fold(tree, |value, segment| match segment {
        Segment::Map { key } => value.get_mut(key),
        Segment::Seq { index } => value.get_mut(index),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

/// Takes out the value at the path, or the whole list that it is part of: taking one item out would move the
/// others, and their places in the file with them.
fn remove(tree: &mut Value, path: &Path) -> bool {
    let keys: Vec<&str> = path
        .iter()
        .map_while(|segment| if let Segment::Map { key } = segment { Some(key.as_str()) } else { None })
        .collect();
    let Some((last, sections)) = keys.split_last() else { return false };
    let section = sections.iter().try_fold(tree, |value, key| value.get_mut(*key));
    section.and_then(Value::as_object_mut).is_some_and(|section| section.remove(*last).is_some())
}
