//! `sandstorm config`, and the configuration that the other commands work with.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use sandstorm_config::{Config, Flag, LoadInput, Loaded};
use sandstorm_language::Catalogue;

use crate::arguments::{ConfigCommand, Shared};
use crate::complaint::{misuse, warn};
use crate::logging;
use crate::serve::{Plan, ServeCommand};

/// Reads the configuration, prints what is odd about it and starts logging as it says.
pub(crate) fn load(shared: &Shared) -> anyhow::Result<Loaded> {
    let loaded = read(shared, Vec::new())?;
    logging::start(&loaded);
    Ok(loaded)
}

/// The same for a server, which logs in its own way once it has threads.
pub(crate) fn load_for_server(shared: &Shared, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    read(shared, flags)
}

fn read(shared: &Shared, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    let mut input = LoadInput::of_process();
    input.flag_path = shared.config.clone();
    if let Some(dir) = &shared.state_dir {
        let text = dir.to_str().ok_or_else(|| misuse(format!("--state-dir {}: not UTF-8", dir.display())))?;
        input.flags.push(Flag::new("--state-dir", "state_dir", text));
    }
    input.flags.extend(flags);
    let loaded = Config::load(input)?;
    let mut stderr = std::io::stderr().lock();
    for warning in &loaded.warnings {
        let _ = writeln!(stderr, "warning: {warning}");
    }
    check_languages(&loaded)?;
    Ok(loaded)
}

/// The configuration knows no languages; a setting for one that nobody knows would do nothing.
fn check_languages(loaded: &Loaded) -> anyhow::Result<()> {
    for name in loaded.config.languages.keys() {
        let file = loaded.file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
        match Catalogue::embedded().get(name) {
            Ok(language) if language.name == *name => {}
            Ok(language) => {
                return Err(misuse(format!("{file}`languages.{name}` must be called `{}`", language.name)));
            }
            Err(e) => return Err(misuse(format!("{file}`languages.{name}`: {e}"))),
        }
    }
    Ok(())
}

pub(crate) fn serve(shared: &Shared, command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    match command {
        ConfigCommand::Init { path, force } => {
            let path = init(path.clone(), *force)?;
            writeln!(stdout, "wrote {}", path.display())?;
        }
        ConfigCommand::Check => {
            let loaded = load(shared)?;
            // As a server would take it; whoever has none loses nothing by it.
            for warning in Plan::make(&loaded, &ServeCommand::default())?.warnings {
                warn(&warning);
            }
            match &loaded.file {
                Some(file) => writeln!(stdout, "{} is fine", file.display())?,
                None => writeln!(stdout, "there is no configuration file; every setting has its default")?,
            }
        }
        ConfigCommand::Show { json: false } => write!(stdout, "{}", load(shared)?.show())?,
        ConfigCommand::Show { json: true } => {
            serde_json::to_writer_pretty(&mut stdout, &load(shared)?.settings())?;
            writeln!(stdout)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn init(path: Option<PathBuf>, force: bool) -> anyhow::Result<PathBuf> {
    let input = LoadInput::of_process();
    let path = path.unwrap_or_else(|| sandstorm_config::default_file(&input.env, input.uid));
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).with_context(|| format!("could not make {}", dir.display()))?;
    }
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    match options.open(&path) {
        Ok(mut file) => {
            file.write_all(sandstorm_config::init_text().as_bytes())
                .with_context(|| format!("could not write {}", path.display()))?;
            Ok(path)
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(misuse(format!("{} is there already; --force replaces it", path.display())))
        }
        Err(e) => Err(e).with_context(|| format!("could not write {}", path.display())),
    }
}
