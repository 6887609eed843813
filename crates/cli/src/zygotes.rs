//! The warm interpreters that a server has, from the configuration and what is installed here.

use std::path::{Path, PathBuf};

use sandstorm_config::{Config, SystemCalls};
use sandstorm_jail::launcher::{KnownScript, ZygoteConfig};
use sandstorm_language::{Catalogue, SupportFile, Toolchain};

use crate::local;

const PYTHON: &str = "python";
const PRELOADED: &str = "python-preloaded";

/// The zygotes to start the launcher with, or why there are none.
pub(crate) fn configured(config: &Config) -> Result<Vec<ZygoteConfig>, String> {
    if !config.pool.zygotes {
        return Err("switched off by `pool.zygotes`".to_owned());
    }
    if config.system_calls == SystemCalls::Strict {
        return Err("a warm interpreter cannot have the system calls of `strict`".to_owned());
    }
    let toolchain = python(config).ok_or("Python is not installed, or switched off")?;
    let language = Catalogue::embedded().get(PYTHON).map_err(|error| error.to_string())?;
    let plan = language.kernel_plan(&toolchain).map_err(|error| error.to_string())?;
    let interpreter = toolchain.programs.get(PYTHON).ok_or("Python is not installed")?;
    // What root executes has to be root's: another place may be anybody's.
    if !interpreter.starts_with("/usr") {
        return Err(format!("{} is not in /usr", interpreter.display()));
    }
    let script = |file: &SupportFile| KnownScript { path: file.path.clone(), text: file.text.as_bytes() };
    let known = plan.iter().flat_map(|plan| &plan.files).map(script).collect();
    let lean = ZygoteConfig {
        name: PYTHON.to_owned(),
        interpreter: interpreter.clone(),
        preload: Vec::new(),
        known,
    };
    let folders = module_folders(interpreter, Path::new("/"));
    let preload: Vec<String> =
        config.pool.preload.iter().filter(|module| is_installed(module, &folders)).cloned().collect();
    let mut all = vec![lean.clone()];
    // Without a module to load it would be the same again.
    if !preload.is_empty() {
        all.push(ZygoteConfig { name: PRELOADED.to_owned(), preload, ..lean });
    }
    Ok(all)
}

/// Python as runs use it.
pub(crate) fn python(config: &Config) -> Option<Toolchain> {
    if config.languages.get(PYTHON).is_some_and(|language| !language.enabled) {
        return None;
    }
    Catalogue::embedded().get(PYTHON).ok()?.detect(&local::roots(config)).ok()
}

/// Where an interpreter of the system looks for modules that are not its own.
fn module_folders(interpreter: &Path, root: &Path) -> Vec<PathBuf> {
    let real = interpreter.canonicalize().unwrap_or_else(|_| interpreter.to_owned());
    let version = real.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let mut folders = vec![root.join("usr/lib/python3/dist-packages")];
    for place in ["usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64"] {
        for kind in ["dist-packages", "site-packages"] {
            folders.push(root.join(place).join(&version).join(kind));
        }
    }
    folders
}

fn is_installed(module: &str, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| {
        folder.join(module).join("__init__.py").is_file() || folder.join(format!("{module}.py")).is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_where_the_interpreter_looks() {
        let root = tempfile::tempdir().unwrap();
        let folders = module_folders(Path::new("/does/not/exist/python3.99"), root.path());
        let place = |path: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        };
        place("usr/lib/python3/dist-packages/numpy/__init__.py");
        place("usr/local/lib/python3.99/site-packages/single.py");
        place("usr/local/lib/python3.98/site-packages/other/__init__.py");
        place("usr/lib/python3/dist-packages/empty/data.txt");
        let found = ["numpy", "single", "other", "empty", "absent"].map(|name| is_installed(name, &folders));
        assert_eq!(found, [true, true, false, false, false]);
    }

    #[test]
    fn there_are_none_where_they_are_switched_off() {
        let mut config = Config::default();
        config.pool.zygotes = false;
        assert!(configured(&config).unwrap_err().contains("pool.zygotes"));
    }
}
