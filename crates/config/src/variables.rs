//! Every environment variable that Sandstorm knows, in one list.
//!
//! `SANDSTORM_…` variables for settings are not written down here: each key with a fixed path has one, named
//! after it. What is written down are the others, and the older names that are still honoured.

use std::sync::LazyLock;

use serde_json::Value;

use crate::environment::Environment;
use crate::error::{Problem, ProblemKind, Warning, nearest};
use crate::origin::Origin;
use crate::shape::{self, Shape, boolean};

/// A variable and what it does.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    pub meaning: String,
    pub effect: Effect,
}

/// What a variable changes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Sets the key of this path.
    Sets(String),
    /// An older name for a key, with its own way of writing the value.
    Replaced { key: &'static str, convert: fn(&str) -> Option<String>, expected: &'static str },
    /// An older name that changes nothing in this version.
    Nothing { why: &'static str },
    /// Read outside the layers of the configuration.
    Special { reader: &'static str },
}

const PREFIX: &str = "SANDSTORM_";

/// The whole list, by name.
pub fn variables() -> &'static [Variable] {
    static ALL: LazyLock<Vec<Variable>> = LazyLock::new(|| {
        let mut all: Vec<Variable> = shape::root()
            .leaves()
            .into_iter()
            .map(|(path, shape, _)| Variable {
                // The list lives as long as the program, so its names may too.
                name: format!("{PREFIX}{}", path.replace('.', "_").to_uppercase()).leak(),
                meaning: first_sentence(shape),
                effect: Effect::Sets(path),
            })
            .collect();
        all.extend(SPECIAL.iter().map(|(name, reader, meaning)| Variable {
            name,
            meaning: (*meaning).to_owned(),
            effect: Effect::Special { reader },
        }));
        all.extend(OLDER.iter().map(Older::variable));
        all.sort_by_key(|variable| variable.name);
        all
    });
    &ALL
}

/// Name, reader, meaning.
const SPECIAL: &[(&str, &str, &str)] = &[
    ("SANDSTORM_API_KEY", "commands that talk to a server", "The key that they send."),
    ("SANDSTORM_CONFIG", "every command", "The configuration file, unless `--config` names one."),
    (
        "SANDSTORM_KERNEL_FD",
        "contexts",
        "Set inside a sandbox: the descriptor on which an interpreter speaks.",
    ),
    (
        "SANDSTORM_KERNEL_IN",
        "contexts",
        "Set inside a sandbox: the descriptor on which an interpreter listens.",
    ),
    (
        "SANDSTORM_KERNEL_NONCE",
        "contexts",
        "Set inside a sandbox: marks an interpreter's lines among its output.",
    ),
    (
        "SANDSTORM_KERNEL_OUT",
        "contexts",
        "Set inside a sandbox: the descriptor on which an interpreter answers.",
    ),
    ("SANDSTORM_REQUIRE_ALL", "tests", "Set to `1`, a test that would be skipped fails instead."),
    ("SANDSTORM_TEST_NODE", "tests", "The Node that the tests of contexts use."),
    ("SANDSTORM_TEST_PATIENCE", "tests", "Seconds that the tests of contexts wait for an answer."),
    ("SANDSTORM_TEST_PYTHON", "tests", "The Python that the tests of contexts use."),
    (
        "SANDSTORM_URL",
        "commands that talk to a server",
        "The server's address. Not set: `http://127.0.0.1:7300`.",
    ),
];

struct Older {
    name: &'static str,
    meaning: &'static str,
    effect: OlderEffect,
}

enum OlderEffect {
    Sets(&'static str, fn(&str) -> Option<String>, &'static str),
    Nothing(&'static str),
}

impl Older {
    fn variable(&self) -> Variable {
        let effect = match self.effect {
            OlderEffect::Sets(key, convert, expected) => Effect::Replaced { key, convert, expected },
            OlderEffect::Nothing(why) => Effect::Nothing { why },
        };
        Variable { name: self.name, meaning: self.meaning.to_owned(), effect }
    }
}

const OLDER: &[Older] = &[
    Older {
        name: "SANDBOX_CPU_QUOTA",
        meaning: "CPU time of an execution in whole seconds.",
        effect: OlderEffect::Sets("dialects.session.cpu_time", seconds, "a whole number of seconds"),
    },
    Older {
        name: "SANDBOX_MEMORY_LIMIT",
        meaning: "Memory of a session in KB of 1,024 bytes. It used to bound address space; now it bounds memory in use.",
        effect: OlderEffect::Sets("dialects.session.memory", kilobytes, "a whole number of KB"),
    },
    Older {
        name: "SANDBOX_ALLOW_NETWORK",
        meaning: "Whether sessions have a network: `true`, `1`, `yes`, `on`, or `false`, `0`, `no`, `off`.",
        effect: OlderEffect::Sets("dialects.session.network", truth, "true or false"),
    },
    Older {
        name: "SANDBOX_TIMEOUT_SECONDS",
        meaning: "Wall time of an execution in whole seconds.",
        effect: OlderEffect::Sets("dialects.session.timeout", seconds, "a whole number of seconds"),
    },
    Older {
        name: "SANDBOX_MAX_USER_PROGRESS",
        meaning: "Processes of a session (the name is spelt so).",
        effect: OlderEffect::Sets("dialects.session.processes", whole, "a whole number"),
    },
    Older {
        name: "SANDBOX_POOL_SIZE",
        meaning: "Sandboxes kept warm.",
        effect: OlderEffect::Nothing(
            "sandboxes made ahead follow demand, within `pool.prefill` and `pool.max`",
        ),
    },
    Older {
        name: "SANDBOX_MAX_TASK_COUNT",
        meaning: "Tasks that one pooled sandbox served.",
        effect: OlderEffect::Nothing("a sandbox is never used for a second task"),
    },
    Older {
        name: "SANDBOX_MAX_IDLE_TIME",
        meaning: "Idle time of a pooled sandbox.",
        effect: OlderEffect::Nothing("how long a sandbox made ahead waits is `pool.max_age`"),
    },
    Older {
        name: "WORKSPACE_EXPIRATION_TIME",
        meaning: "Lifetime of a session in seconds.",
        effect: OlderEffect::Sets("dialects.session.expiration", seconds, "a whole number of seconds"),
    },
];

fn whole(text: &str) -> Option<String> {
    text.trim().parse::<u64>().ok().map(|number| number.to_string())
}

fn seconds(text: &str) -> Option<String> {
    whole(text).map(|seconds| format!("{seconds}s"))
}

fn kilobytes(text: &str) -> Option<String> {
    whole(text).map(|kilobytes| format!("{kilobytes}KiB"))
}

fn truth(text: &str) -> Option<String> {
    boolean(text).map(|truth| truth.to_string())
}

/// A value that a variable or flag puts at a key.
#[derive(Debug)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// Reads the environment: older names first, so that a newer one wins over them.
pub(crate) fn read(environment: &Environment) -> (Vec<Override>, Vec<Problem>, Vec<Warning>) {
    // The list comes from the schema and costs as much as the start of the whole program; mostly nothing is set.
    if !environment.names().any(is_ours) {
        return Default::default();
    }
    let (mut older, mut newer, mut problems, mut warnings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for variable in variables() {
        let Some(text) = environment.get(variable.name) else { continue };
        let origin = Origin::Environment(variable.name.to_owned());
        let mut refuse = |key: &str, why: String, expected: Option<String>| {
            problems.push(Problem {
                origin: origin.clone(),
                key: key.to_owned(),
                kind: ProblemKind::BadValue(why),
                expected,
                nearest: None,
            });
        };
        let (key, is_older) = match &variable.effect {
            Effect::Sets(key) => (key.as_str(), false),
            Effect::Replaced { key, .. } => (*key, true),
            Effect::Nothing { why } => {
                warnings.push(Warning::WithoutEffect { name: variable.name, why });
                continue;
            }
            Effect::Special { .. } => continue,
        };
        let Some(text) = text.to_str() else {
            refuse(key, "the variable is not UTF-8".to_owned(), None);
            continue;
        };
        let leaf = shape::root().leaf(key).expect("variables name keys with a fixed path");
        let text = match &variable.effect {
            Effect::Replaced { convert, expected, .. } => match convert(text) {
                Some(text) => text,
                None => {
                    refuse(key, format!("`{text}` cannot be read"), Some((*expected).to_owned()));
                    continue;
                }
            },
            _ => text.to_owned(),
        };
        match leaf.value_of(&text) {
            Ok(value) if is_older => older.push(Override { key: key.to_owned(), value, origin }),
            Ok(value) => newer.push(Override { key: key.to_owned(), value, origin }),
            Err(why) => refuse(key, why, None),
        }
    }
    for Override { key, origin, .. } in &older {
        if let Some(winner) = newer.iter().find(|newer| newer.key == *key)
            && let (Origin::Environment(name), Origin::Environment(by)) = (origin, &winner.origin)
            && let (Some(name), Some(by)) = (known(name), known(by))
        {
            warnings.push(Warning::Shadowed { name, by });
        }
    }
    warnings.extend(unknown(environment));
    older.extend(newer);
    (older, problems, warnings)
}

/// Whether a name may be in the list, told without making it.
fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) || OLDER.iter().any(|older| older.name == name)
}

/// Variables with our prefix that nothing reads: nearly always a slip, so they are worth a warning. The
/// prefix of the older names is too common a word to claim all of it.
fn unknown(environment: &Environment) -> impl Iterator<Item = Warning> {
    environment.names().filter(|name| name.starts_with(PREFIX) && known(name).is_none()).map(|name| {
        // Compared without the prefix, which would make every name look alike.
        let ours = variables().iter().filter_map(|variable| variable.name.strip_prefix(PREFIX));
        let near = nearest(&name[PREFIX.len()..], ours).and_then(|near| known(&format!("{PREFIX}{near}")));
        Warning::UnknownVariable { name: name.to_owned(), nearest: near }
    })
}

fn known(name: &str) -> Option<&'static str> {
    variables().iter().map(|variable| variable.name).find(|known| *known == name)
}

fn first_sentence(shape: &Shape) -> String {
    let text = shape.about.first().map_or("", String::as_str);
    text.find(". ").map_or(text, |end| &text[..=end]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_misses_no_variable() {
        for variable in variables() {
            assert!(is_ours(variable.name), "{} would not be read", variable.name);
        }
    }
}
