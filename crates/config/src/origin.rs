//! Where a value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    pub(crate) fn start() -> Self {
        Place { line: 1, column: 1 }
    }
}

/// Which layer gave a value. Later layers win: default, file, environment, flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    File {
        path: Arc<PathBuf>,
        place: Place,
    },
    /// An environment variable, by name.
    Environment(String),
    /// A command-line flag, as typed (`--state-dir`).
    Flag(String),
}

impl Origin {
    /// The order in which a reader looks for causes: through the file, then what covers it.
    pub(crate) fn rank(&self) -> (u8, Option<Place>) {
        match self {
            Origin::Default => (0, None),
            Origin::File { place, .. } => (1, Some(*place)),
            Origin::Environment(_) => (2, None),
            Origin::Flag(_) => (3, None),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, place } => write!(f, "{}:{}:{}", path.display(), place.line, place.column),
            Origin::Environment(name) => write!(f, "env {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// The origin of every value that somebody set, by key path (`limits.memory`, `template.mounts[0].source`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    origins: BTreeMap<String, Origin>,
}

impl Provenance {
    /// The origin of a key; the nearest enclosing key that was set answers for what it contains.
    pub fn of(&self, path: &str) -> Origin {
        let mut path = path;
        loop {
            if let Some(origin) = self.origins.get(path) {
                return origin.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Origin::Default,
            }
        }
    }

    pub(crate) fn set(&mut self, path: &str, origin: Origin) {
        // What stood below this key belonged to the value that is being replaced.
        self.origins.retain(|key, _| !is_below(key, path));
        self.origins.insert(path.to_owned(), origin);
    }
}

fn is_below(key: &str, path: &str) -> bool {
    key.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enclosing_keys_answer_for_their_content() {
        let mut provenance = Provenance::default();
        provenance.set("template.mounts", Origin::Flag("--mount".into()));
        assert_eq!(provenance.of("template.mounts[0].source"), Origin::Flag("--mount".into()));
        assert_eq!(provenance.of("template"), Origin::Default);
        assert_eq!(provenance.of("limits.memory"), Origin::Default);
    }

    #[test]
    fn replacing_a_value_forgets_its_parts() {
        let mut provenance = Provenance::default();
        provenance.set("network.default.allow", Origin::Environment("A".into()));
        provenance.set("network.default", Origin::Flag("--network".into()));
        assert_eq!(provenance.of("network.default.allow"), Origin::Flag("--network".into()));
    }
}
