//! What a typed value cannot say by itself: ranges, paths, and values that must fit together.

mod providers;
mod server;

use std::collections::BTreeSet;
use std::path::{Component, Path};

use crate::error::{Problem, ProblemKind};
use crate::origin::{Origin, Provenance};
use crate::tree::{Config, Mount, NetworkDefault};

/// Places of the sandbox that it makes itself; a mount there would take a wall away or hide what it needs.
const OWN_PLACES: [&str; 14] = [
    "/",
    "/bin",
    "/etc",
    "/home",
    "/home/user",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/tmp",
    "/usr",
    "/var",
    "/workspace",
];
/// Places that stay closed with all that is in them: devices, the kernel's file systems, sockets of services.
const CLOSED_PLACES: [&str; 4] = ["/dev", "/proc", "/sys", "/run"];

pub(crate) fn validate(config: &Config, provenance: &Provenance) -> Vec<Problem> {
    let mut found = Check { provenance, problems: Vec::new() };
    found.paths(config);
    found.limits(config);
    found.mounts(&config.template.mounts);
    if let Some((key, given, expected)) = config.ids.check() {
        // A default is never at fault by itself: then the other end of the range, which was set, is.
        let key = if provenance.of(key) == Origin::Default { "ids.start" } else { key };
        found.refuse(key, given, expected);
    }
    if config.network.default == NetworkDefault::Allow && config.network.allow.rules().is_empty() {
        found.refuse(
            "network.default",
            "`allow` without a rule".to_owned(),
            "at least one rule in `network.allow`",
        );
    }
    found.providers(config);
    found.server(config);
    found.problems
}

struct Check<'a> {
    provenance: &'a Provenance,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn refuse(&mut self, key: impl Into<String>, given: String, expected: impl Into<String>) {
        let key = key.into();
        self.problems.push(Problem {
            origin: self.provenance.of(&key),
            kind: ProblemKind::BadValue(given),
            expected: Some(expected.into()),
            nearest: None,
            key,
        });
    }

    fn paths(&mut self, config: &Config) {
        if let Some(path) = &config.state_dir
            && !is_plain_absolute(path)
        {
            self.refuse("state_dir", path.display().to_string(), ABSOLUTE);
        }
        for (name, language) in &config.languages {
            if let Some(path) = &language.program
                && !is_plain_absolute(path)
            {
                self.refuse(format!("languages.{name}.program"), path.display().to_string(), ABSOLUTE);
            }
        }
        if let Some(group) = &config.cgroup_parent {
            let path = Path::new(group);
            let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            if group.is_empty() || !plain || group.contains(['\0', '\n']) {
                self.refuse("cgroup_parent", format!("`{group}`"), "a relative path without `.` and `..`");
            }
        }
    }

    fn limits(&mut self, config: &Config) {
        for error in config.limits.validate().err().into_iter().flatten() {
            self.refuse(format!("limits.{}", error.name), error.given, error.allowed);
        }
    }

    fn mounts(&mut self, mounts: &[Mount]) {
        let mut targets = BTreeSet::new();
        for (n, Mount { source, target }) in mounts.iter().enumerate() {
            let key = |name| format!("template.mounts[{n}].{name}");
            if !is_plain_absolute(source) {
                self.refuse(key("source"), source.display().to_string(), ABSOLUTE);
            } else if source == Path::new("/") || is_under(source, &CLOSED_PLACES) {
                self.refuse(
                    key("source"),
                    source.display().to_string(),
                    "a directory or file of a toolchain",
                );
            }
            if !is_plain_absolute(target) {
                self.refuse(key("target"), target.display().to_string(), ABSOLUTE);
            } else if OWN_PLACES.iter().any(|place| target == Path::new(place))
                || is_under(target, &CLOSED_PLACES)
            {
                let given = format!("{} is the sandbox's own", target.display());
                self.refuse(key("target"), given, "a path such as /opt/toolchain");
            } else if !targets.insert(target) {
                let given = format!("{} is the target of an earlier mount", target.display());
                self.refuse(key("target"), given, "each target once");
            }
        }
    }
}

const ABSOLUTE: &str = "an absolute path without `..`";

fn is_plain_absolute(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir) && !text.contains(&0)
}

fn is_under(path: &Path, places: &[&str]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}
