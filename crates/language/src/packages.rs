//! Recipes of package managers: one data file each under `packages/`.
//!
//! A recipe says how requirements become a lock and how a lock becomes a folder that runs mount. Its scripts run with
//! `/bin/sh -eu` in a sandbox, in a folder that holds `lock/` and `layer/`; what a user asked for arrives as `"$@"` and
//! is never part of a script's text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::data;
use crate::detect::Toolchain;
use crate::error::{DataError, PlanError};
use crate::language::{Language, PackageManager};
use crate::plan::{Context, Job, Plan};
use crate::roots::Roots;
use crate::template::Template;

/// How one package manager's packages become a layer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub name: String,
    /// The language whose toolchain the scripts use, as `$PYTHON` for a program called `python`.
    pub language: String,
    /// Where the layer is mounted, read-only.
    pub mount: PathBuf,
    /// What stands between a name and its version when a requirement names exactly one version.
    pub pin: String,
    /// Another layer that the scripts need on their path.
    pub tool: Option<Tool>,
    /// Programs beside the language's own, each with what it may be called on a host; `$NPM` for one called `npm`.
    #[serde(default)]
    pub(crate) programs: BTreeMap<String, Vec<String>>,
    /// Configuration of those programs that the sandbox has to show.
    #[serde(default)]
    pub(crate) mounts: Vec<String>,
    /// What to install when a program is missing.
    #[serde(default)]
    pub install_hint: Vec<String>,
    pub index: Index,
    pub resolve: Step,
    pub install: Step,
    /// Variables of both scripts.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) compile: Use,
    #[serde(default)]
    pub(crate) run: Use,
    /// Where the layer's files go in a sandbox that lives. Without this they go into no such one.
    pub live: Option<Live>,
    pub failures: Failures,
}

/// Where a layer's files go in a sandbox that lives.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// The program of the language whose version is in `place`.
    version_of: Option<String>,
    /// The folder for all of them. `{version}` is the two numbers in the name of the program's file.
    place: String,
    programs: Option<Programs>,
}

/// A folder of the layer that lies elsewhere in a sandbox that lives, where its programs are found by their names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    pub from: String,
    pub to: String,
}

/// The folders of one sandbox that a layer's files go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub place: String,
    /// Everything else goes to `place`.
    pub programs: Option<Programs>,
}

/// A layer that another recipe makes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub recipe: String,
    /// Where the machine has this program, the layer is not needed.
    pub program: String,
    /// The folder of its programs.
    pub path: PathBuf,
}

/// Where packages come from.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Index {
    /// Another recipe that has the same index.
    pub same_as: Option<String>,
    /// Prints the addresses that the package manager uses when nobody configured any, the index first. Runs without
    /// network: the package manager itself is asked.
    pub builtin: Option<String>,
    /// Prints further addresses that files of the index lie at. Runs with a network that reaches the index.
    pub hosts: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub script: String,
}

/// What a program that uses the layer needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Use {
    /// Another command than the language's own.
    argv: Vec<Template>,
    env: BTreeMap<String, String>,
}

/// How to read a script's complaints.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// Texts that tell of an index that cannot be reached, where the request is not to blame.
    pub unreachable: Vec<String>,
}

static EMBEDDED: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let parse =
        |(name, text): &(&str, &str)| Recipe::parse(name, text).expect("a test reads every embedded file");
    data::PACKAGES.iter().map(parse).collect()
});

impl Recipe {
    /// The recipe of a package manager.
    pub fn of(manager: PackageManager) -> &'static Self {
        Self::named(manager.name()).expect("a test asks for every package manager")
    }

    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        EMBEDDED.iter()
    }

    pub fn named(name: &str) -> Option<&'static Self> {
        EMBEDDED.iter().find(|recipe| recipe.name == name)
    }

    fn parse(file: &str, text: &str) -> Result<Self, DataError> {
        let recipe: Self = toml::from_str(text)
            .map_err(|source| DataError::Syntax { file: file.to_owned(), source: Box::new(source) })?;
        if recipe.name != file {
            let what = format!("the recipe is called {:?}", recipe.name);
            return Err(DataError::Content { file: file.to_owned(), what });
        }
        Ok(recipe)
    }

    /// Looks for the recipe's own programs. An error names those that are missing.
    pub fn detect(&self, roots: &Roots) -> Result<Toolchain, Vec<String>> {
        let mut programs = BTreeMap::new();
        let mut absent = Vec::new();
        for (name, candidates) in &self.programs {
            match candidates.iter().find_map(|candidate| roots.program(candidate)) {
                Some(path) => drop(programs.insert(name.clone(), path)),
                None => absent.extend(candidates.first().cloned()),
            }
        }
        if !absent.is_empty() {
            return Err(absent);
        }
        let mounts = self.mounts.iter().flat_map(|pattern| roots.trees(pattern)).collect();
        Ok(Toolchain { programs, mounts, version: None })
    }

    /// Package managers whose packages can go into a sandbox that lives.
    pub fn live_names() -> impl Iterator<Item = &'static str> {
        Self::all().filter(|recipe| recipe.live.is_some()).map(|recipe| recipe.name.as_str())
    }

    /// Where the layer's files go in a sandbox that lives and has this toolchain. `None` where they cannot, or where the
    /// toolchain does not say its version.
    pub fn places(&self, toolchain: &Toolchain) -> Option<Places> {
        let live = self.live.as_ref()?;
        let place = match &live.version_of {
            Some(program) => {
                let file = toolchain.programs.get(program)?.canonicalize().ok()?;
                live.place.replace("{version}", minor_version(file.file_name()?.to_str()?)?)
            }
            None => live.place.clone(),
        };
        Some(Places { place, programs: live.programs.clone() })
    }

    /// Whether the machine has the tool's program already.
    pub fn has_tool(&self, roots: &Roots) -> bool {
        self.tool.as_ref().is_none_or(|tool| roots.program(&tool.program).is_some())
    }

    /// Whether a requirement names exactly one version.
    pub fn is_pinned(&self, requirement: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_' | '!');
        requirement.rsplit_once(&self.pin).is_some_and(|(name, version)| {
            let version = version.trim();
            let digits = version.strip_prefix('v').unwrap_or(version);
            !name.trim().is_empty()
                && digits.starts_with(|c: char| c.is_ascii_digit())
                && digits.matches('.').count() >= 2
                && version.chars().all(plain)
        })
    }

    /// Fits the command of a compile to the layer.
    pub fn fit_compile(&self, at: &Fit<'_>, plan: &mut Plan) -> Result<(), PlanError> {
        fit(&self.compile, at, plan)
    }

    /// Fits the command of a run to the layer.
    pub fn fit_run(&self, at: &Fit<'_>, plan: &mut Plan) -> Result<(), PlanError> {
        fit(&self.run, at, plan)
    }
}

/// What a plan was made from.
#[derive(Debug, Clone, Copy)]
pub struct Fit<'a> {
    pub language: &'a Language,
    pub toolchain: &'a Toolchain,
    pub job: &'a Job<'a>,
}

/// `3.11` of `python3.11`.
fn minor_version(file: &str) -> Option<&str> {
    let version = file.get(file.find(|c: char| c.is_ascii_digit())?..)?;
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (major, minor) = version.split_once('.')?;
    (number(major) && number(minor)).then_some(version)
}

fn fit(wanted: &Use, at: &Fit<'_>, plan: &mut Plan) -> Result<(), PlanError> {
    if !wanted.argv.is_empty() {
        plan.argv = Context::new(at.language, at.toolchain, Some(at.job)).expand(&wanted.argv)?;
    }
    plan.env.extend(wanted.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_manager_has_a_recipe_whose_language_and_tool_exist() {
        for language in crate::Catalogue::embedded().iter() {
            if let Some(manager) = language.packages {
                Recipe::of(manager);
            }
        }
        for recipe in EMBEDDED.iter() {
            assert!(crate::Catalogue::embedded().get(&recipe.language).is_ok(), "{}", recipe.name);
            for other in recipe.tool.iter().map(|tool| &tool.recipe).chain(&recipe.index.same_as) {
                assert!(Recipe::named(other).is_some(), "{}: {other}", recipe.name);
            }
        }
    }

    #[test]
    fn places_in_a_living_sandbox_follow_the_toolchain() {
        let folder = tempfile::tempdir().unwrap();
        let toolchain = |file: &str| {
            std::fs::write(folder.path().join(file), "").unwrap();
            let link = folder.path().join(format!("link-to-{file}"));
            std::os::unix::fs::symlink(file, &link).unwrap();
            Toolchain { programs: [("python".to_owned(), link)].into(), mounts: Vec::new(), version: None }
        };
        let pip = Recipe::of(PackageManager::Pip);
        let places = pip.places(&toolchain("python3.11")).unwrap();
        assert_eq!(places.place, "/home/user/.local/lib/python3.11/site-packages");
        assert_eq!(places.programs.unwrap().to, "/home/user/.local/bin");
        for odd in ["python3", "python", "python3.11-dbg", "3.", "pypy3.10.1"] {
            assert_eq!(pip.places(&toolchain(odd)), None, "{odd}");
        }
        let npm = Recipe::of(PackageManager::Npm);
        assert_eq!(npm.places(&toolchain("x")).unwrap().place, "/workspace/node_modules");
        assert_eq!(Recipe::of(PackageManager::Maven).places(&toolchain("y")), None);
        assert_eq!(Recipe::live_names().collect::<Vec<_>>(), ["npm", "pip"]);
    }

    #[test]
    fn exact_versions_are_told_from_ranges() {
        let pip = Recipe::of(PackageManager::Pip);
        assert!(pip.is_pinned("numpy==2.1.0") && pip.is_pinned("a == 1.0.0rc1"));
        for open in ["numpy", "numpy>=2.1.0", "numpy==2.*", "numpy==2.1.0,<3", "==2.1.0", "numpy==2.1"] {
            assert!(!pip.is_pinned(open), "{open}");
        }
    }
}
