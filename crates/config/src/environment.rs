//! The process environment as a value: captured once, at the edge, and passed in.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Environment variables. Nothing else in the project reads the real environment for a setting.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// From pairs, as `std::env::vars_os()` gives them.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Environment { variables: variables.into_iter().collect() }
    }

    /// This process's own.
    pub fn of_process() -> Self {
        Self::new(std::env::vars_os())
    }

    /// The value of a variable. One that is set to nothing counts as not set, as is usual for settings:
    /// `NAME= sandstorm …` takes an inherited value away.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Names that are text; no name of ours is anything else.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().filter_map(|name| name.to_str())
    }
}

impl std::fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_means_unset_and_debug_hides_values() {
        let environment = Environment::new([("A".into(), "".into()), ("B".into(), "hunter2".into())]);
        assert_eq!(environment.get("A"), None);
        assert_eq!(environment.get("B"), Some(OsStr::new("hunter2")));
        assert!(!format!("{environment:?}").contains("hunter2"));
    }
}
