//! The configuration as its users meet it: layers, errors, warnings, and the files made from the tree.

mod errors;
mod generated;
mod layers;
mod security;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandstorm_config::{Config, ConfigError, Environment, Flag, LoadInput, Loaded};

/// A folder with a configuration file, and an environment that leads nowhere else.
struct Case {
    folder: tempfile::TempDir,
    variables: Vec<(OsString, OsString)>,
    flags: Vec<Flag>,
    uid: u32,
}

impl Case {
    fn new(text: &str) -> Self {
        let case = Case::without_file();
        std::fs::write(case.file(), text).expect("the folder is ours");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(case.file(), mode).expect("the file is ours");
        case
    }

    fn without_file() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Case { folder, variables: Vec::new(), flags: Vec::new(), uid: rustix::process::geteuid().as_raw() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("sandstorm.yaml")
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, name: &str, key: &str, value: &str) -> Self {
        self.flags.push(Flag::new(name, key, value));
        self
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        let mut input = LoadInput::new(Environment::new(self.variables.clone()), self.uid);
        input.flag_path = Some(self.file()).filter(|file| file.exists());
        input.flags = self.flags.clone();
        input.system_file = self.folder.path().join("no-system-file");
        Config::load(input)
    }

    fn config(&self) -> Config {
        self.load().unwrap_or_else(|error| panic!("{error}")).config
    }

    /// The error's text, with the file's path cut down to its name.
    fn error(&self) -> String {
        let error = self.load().expect_err("the configuration must be refused");
        error.to_string().replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
