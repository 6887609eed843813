//! Loading: find the file, lay variables and flags over it, decode, check.

use std::path::{Path, PathBuf};

use crate::decode::decode;
use crate::environment::Environment;
use crate::error::{ConfigError, Problem, ProblemKind, Warning};
use crate::layer::Layers;
use crate::lookup;
use crate::origin::{Origin, Provenance};
use crate::shape;
use crate::tree::Config;
use crate::validate::validate;
use crate::variables::{self, Override};

/// Everything that decides what the configuration is.
#[derive(Debug, Clone)]
pub struct LoadInput {
    /// The file named by `--config`.
    pub flag_path: Option<PathBuf>,
    pub env: Environment,
    /// In the order given; a later one for the same key wins.
    pub flags: Vec<Flag>,
    /// The effective user, which decides whose files are trusted and where state is kept.
    pub uid: u32,
    /// The machine's file, [`lookup::SYSTEM_FILE`] unless a test says otherwise.
    pub system_file: PathBuf,
}

/// A flag that sets a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// As typed, for messages: `--state-dir`.
    pub name: String,
    /// The key's path: `state_dir`.
    pub key: String,
    pub value: String,
}

/// A usable configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    pub provenance: Provenance,
    /// To be printed; they stop nothing.
    pub warnings: Vec<Warning>,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    pub(crate) default_state_dir: Option<PathBuf>,
}

impl LoadInput {
    /// With this process's environment and user.
    pub fn of_process() -> Self {
        LoadInput::new(Environment::of_process(), rustix::process::geteuid().as_raw())
    }

    pub fn new(env: Environment, uid: u32) -> Self {
        LoadInput {
            flag_path: None,
            env,
            flags: Vec::new(),
            uid,
            system_file: PathBuf::from(lookup::SYSTEM_FILE),
        }
    }
}

impl Flag {
    pub fn new(name: &str, key: &str, value: impl Into<String>) -> Self {
        Flag { name: name.to_owned(), key: key.to_owned(), value: value.into() }
    }
}

impl Config {
    /// Reads the configuration. Every problem of every layer is reported at once.
    pub fn load(input: LoadInput) -> Result<Loaded, ConfigError> {
        let mut layers = Layers::new();
        let mut warnings = Vec::new();
        let found = lookup::find(input.flag_path.as_deref(), &input.env, input.uid, &input.system_file)?;
        let file = found.as_ref().map(|found| found.path.clone());
        if let Some(found) = found {
            layers.file(found.path.clone(), &found.text);
            warnings.extend(found.doubt.map(|why| Warning::Untrusted { path: found.path, why }));
            // Checked by itself first: a bad value in the file is an error even where a variable covers it.
            let config = decode(&mut layers);
            check(&mut layers, &config);
        }

        let (overrides, problems, more) = variables::read(&input.env);
        layers.problems.extend(problems);
        warnings.extend(more);
        overrides.into_iter().for_each(|value| layers.put(value));
        for flag in input.flags {
            apply_flag(&mut layers, flag);
        }

        let mut config = decode(&mut layers);
        make_absolute(&mut config, &layers.provenance);
        check(&mut layers, &config);
        if !layers.problems.is_empty() {
            layers.problems.sort_by_key(|problem| problem.origin.rank());
            return Err(ConfigError::Invalid(layers.problems));
        }
        let default_state_dir = lookup::default_state_dir(&input.env, input.uid);
        Ok(Loaded { config, provenance: layers.provenance, warnings, file, default_state_dir })
    }
}

impl Loaded {
    /// The state directory: the configured one, else this user's.
    pub fn state_dir(&self) -> Result<&Path, ConfigError> {
        let configured = self.config.state_dir.as_deref();
        configured.or(self.default_state_dir.as_deref()).ok_or(ConfigError::NoStateDir)
    }
}

/// Checks what was decoded without a problem; defaults that stand in for bad values would only give false ones.
fn check(layers: &mut Layers, config: &Config) {
    if layers.problems.is_empty() {
        layers.problems = validate(config, &layers.provenance);
    }
}

fn apply_flag(layers: &mut Layers, flag: Flag) {
    let origin = Origin::Flag(flag.name);
    let value = match shape::root().leaf(&flag.key) {
        Some(leaf) => leaf.value_of(&flag.value),
        None => Err("the flag sets no key that takes a single value".to_owned()),
    };
    match value {
        Ok(value) => layers.put(Override { key: flag.key, value, origin }),
        Err(why) => layers.problems.push(Problem {
            origin,
            key: flag.key,
            kind: ProblemKind::BadValue(why),
            expected: None,
            nearest: None,
        }),
    }
}

/// A path typed on the command line or in a shell is meant relative to where it was typed; one in a file is not.
fn make_absolute(config: &mut Config, provenance: &Provenance) {
    if let Some(path) = &mut config.state_dir
        && !matches!(provenance.of("state_dir"), Origin::File { .. })
        && let Ok(absolute) = std::path::absolute(&*path)
    {
        *path = absolute;
    }
}
