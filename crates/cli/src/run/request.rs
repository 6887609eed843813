//! From what was typed to a run that can be asked for. Everything wrong with it is said here.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bytes::Bytes;
use sandstorm_config::Config;
use sandstorm_language::Catalogue;
use sandstorm_types::{
    AllowList, Blob, Enforcement, EnvMap, EnvName, GuestPath, GuestPathError, LanguageName, LimitName,
    LimitsPatch, NetworkPolicy, RunSpec, Space,
};

use crate::arguments::RunCommand;
use crate::complaint::misuse;

/// Code larger than this is data, and belongs into a file of its own.
const MOST_CODE: u64 = 16 << 20;

/// All files that go in together.
const MOST_FILES: u64 = 1 << 30;

/// Where a sandbox can be written to.
const WRITABLE: [&str; 4] = [GuestPath::WORKSPACE, "/home/user", "/tmp", "/dev/shm"];

/// A run, read and checked.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) spec: RunSpec,
    /// The main file's name, where the caller gave one.
    pub(crate) main: Option<String>,
    pub(crate) stdin: Option<Bytes>,
    pub(crate) code_from_stdin: bool,
}

impl Request {
    pub(crate) fn read(command: &RunCommand, config: &Config) -> anyhow::Result<Self> {
        let (code, name, code_from_stdin) = code(command)?;
        let language = language(command, name.as_deref(), &code)?;
        if code.trim().is_empty() {
            return Err(misuse("there is no code to run: the program is empty"));
        }
        if config.languages.get(language.as_str()).is_some_and(|l| !l.enabled) {
            return Err(misuse(format!("{language} is switched off in the configuration")));
        }
        let mut spec = RunSpec::new(language, code);
        spec.args = command.args.clone();
        spec.env = environment(&command.env)?;
        spec.files = files(&command.files)?;
        spec.limits = limits(command)?;
        spec.space = command.space.map(Space::from).unwrap_or_default();
        spec.network = match &command.network {
            Some(text) => network(text)?,
            None => config.network.policy(),
        };
        spec.enforcement = if command.strict { Some(Enforcement::Strict) } else { config.enforcement };
        for requirement in &command.require {
            spec.requirements
                .push(requirement.parse().map_err(|e| misuse(format!("--require {requirement}: {e}")))?);
        }
        let stdin = match &command.stdin_file {
            Some(path) => Some(Bytes::from(read_file(path, MOST_FILES)?)),
            None => None,
        };
        Ok(Self { spec, main: name, stdin, code_from_stdin })
    }
}

/// The code, the main file's name if it has one, and whether our standard input was read for it.
fn code(command: &RunCommand) -> anyhow::Result<(String, Option<String>, bool)> {
    if let Some(code) = &command.code {
        return Ok((code.clone(), None, false));
    }
    let Some(path) = &command.file else { return Err(misuse("name a file, or give code with -c")) };
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(MOST_CODE + 1)
            .read_to_end(&mut bytes)
            .context("could not read standard input")?;
        return Ok((text(bytes, "standard input")?, None, true));
    }
    let name = path.file_name().map(|name| utf8(name, "the program's name")).transpose()?;
    let bytes = read_file(path, MOST_CODE)?;
    Ok((text(bytes, &path.display().to_string())?, name, false))
}

fn text(bytes: Vec<u8>, of: &str) -> anyhow::Result<String> {
    if bytes.len() as u64 > MOST_CODE {
        return Err(misuse(format!("{of}: more than {} MiB of code", MOST_CODE >> 20)));
    }
    match String::from_utf8(bytes) {
        Ok(code) if code.contains('\0') => {
            Err(misuse(format!("{of}: not a program's text: it holds NUL characters")))
        }
        Ok(code) => Ok(code),
        Err(e) => Err(misuse(format!(
            "{of}: not a program's text: byte {} is not UTF-8",
            e.utf8_error().valid_up_to() + 1
        ))),
    }
}

fn language(command: &RunCommand, file: Option<&str>, code: &str) -> anyhow::Result<LanguageName> {
    let catalogue = Catalogue::embedded();
    let found = match (&command.language, file) {
        (Some(name), _) => catalogue.get(name).map_err(|e| match e.nearest {
            Some(_) => misuse(e.to_string()),
            None => misuse(format!("{e}; `sandstorm languages` lists them")),
        })?,
        (None, Some(file)) => catalogue.by_file_name(file).or_else(|| catalogue.by_shebang(code)).ok_or_else(|| {
            misuse(format!("{file}: the name does not tell the language; give one with -l (`sandstorm languages` lists them)"))
        })?,
        (None, None) => catalogue
            .by_shebang(code)
            .ok_or_else(|| misuse("the code does not tell its language; give one with -l"))?,
    };
    found.name.parse().map_err(|e| misuse(format!("{e}")))
}

pub(crate) fn environment(pairs: &[String]) -> anyhow::Result<EnvMap> {
    let mut env = EnvMap::new();
    for pair in pairs {
        let (text, value) =
            pair.split_once('=').ok_or_else(|| misuse(format!("--env {pair}: expected NAME=VALUE")))?;
        // The value may be a secret: only the name is quoted.
        let name: EnvName = text.parse().map_err(|e| misuse(format!("--env {text}: {e}")))?;
        env.insert(name, value.to_owned()).map_err(|e| misuse(format!("--env {text}: {e}")))?;
    }
    Ok(env)
}

/// `FILE` goes beside the program under its own name, `FILE:NAME` under another.
fn files(given: &[PathBuf]) -> anyhow::Result<std::collections::BTreeMap<GuestPath, Blob>> {
    let mut files = std::collections::BTreeMap::new();
    let mut left = MOST_FILES;
    for path in given {
        let whole = utf8(path.as_os_str(), "--file")?;
        let (source, name) = match whole.rsplit_once(':') {
            Some((source, name)) if !path.exists() => (PathBuf::from(source), name.to_owned()),
            _ => {
                let name =
                    path.file_name().ok_or_else(|| misuse(format!("--file {whole}: not a file's name")))?;
                (path.clone(), utf8(name, "--file")?)
            }
        };
        let target = target(&name).map_err(|e| misuse(format!("--file {whole}: {e}")))?;
        let content = read_file(&source, left)?;
        left -= content.len() as u64;
        if files.insert(target.clone(), Blob::from(content)).is_some() {
            return Err(misuse(format!("--file {whole}: {target} is given twice")));
        }
    }
    for path in files.keys() {
        let above = std::iter::successors(path.parent(), GuestPath::parent);
        if let Some(folder) = above.into_iter().find(|folder| files.contains_key(folder)) {
            return Err(misuse(format!("--file: {folder} cannot be both a file and the folder of {path}")));
        }
    }
    Ok(files)
}

/// Where a file goes inside, which must be a place that can be written to.
fn target(name: &str) -> Result<GuestPath, String> {
    let path: GuestPath = name.parse().map_err(|e: GuestPathError| e.to_string())?;
    let below = |dir: &str| {
        path.as_str().strip_prefix(dir).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
    };
    if WRITABLE.into_iter().any(below) {
        return Ok(path);
    }
    Err(format!("files can be put below {} only", WRITABLE.join(", ")))
}

fn limits(command: &RunCommand) -> anyhow::Result<LimitsPatch> {
    let mut limits = LimitsPatch::default();
    for (flag, name, text) in [
        ("--timeout", LimitName::Wall, &command.timeout),
        ("--cpu-time", LimitName::CpuTime, &command.cpu_time),
        ("--cpus", LimitName::Cpus, &command.cpus),
        ("--memory", LimitName::Memory, &command.memory),
        ("--pids", LimitName::Processes, &command.pids),
        ("--open-files", LimitName::OpenFiles, &command.open_files),
        ("--disk", LimitName::Disk, &command.disk),
        ("--inodes", LimitName::Inodes, &command.inodes),
        ("--output", LimitName::Output, &command.output),
    ] {
        if let Some(text) = text {
            limits.set_text(name, text).map_err(|e| misuse(format!("{flag} {text}: {e}")))?;
        }
    }
    Ok(limits)
}

pub(crate) fn network(text: &str) -> anyhow::Result<NetworkPolicy> {
    match text {
        "none" => Ok(NetworkPolicy::None),
        "open" => Ok(NetworkPolicy::Open),
        hosts => {
            let bad = |e: String| misuse(format!("--network {text}: {e}"));
            let rules = hosts.split(',').map(|host| host.trim().parse().map_err(|e| bad(format!("{e}"))));
            let rules = rules.collect::<anyhow::Result<Vec<_>>>()?;
            Ok(NetworkPolicy::Allow(AllowList::new(rules).map_err(|e| bad(e.to_string()))?))
        }
    }
}

fn utf8(name: &OsStr, what: &str) -> anyhow::Result<String> {
    name.to_str()
        .map(str::to_owned)
        .ok_or_else(|| misuse(format!("{what} {:?} is not UTF-8; rename it", name.to_string_lossy())))
}

/// Reads a regular file of at most `most` bytes.
fn read_file(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let failed = |e: std::io::Error| misuse(format!("could not read {}: {e}", path.display()));
    let found = std::fs::metadata(path).map_err(failed)?;
    if found.is_dir() {
        return Err(misuse(format!("{} is a folder", path.display())));
    }
    let kind = found.file_type();
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        return Err(misuse(format!("{} is not a regular file", path.display())));
    }
    if found.len() > most {
        return Err(misuse(format!(
            "{} is too large: {} bytes, at most {most} are taken",
            path.display(),
            found.len()
        )));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(misuse(format!("{} grew past {most} bytes while it was read", path.display())));
    }
    Ok(bytes)
}
