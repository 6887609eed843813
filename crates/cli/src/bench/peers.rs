//! What a user would otherwise pick, each shown the same mounts as a jail.
//!
//! A peer that is not installed or does not work here stays in the list, with the error that it gave.

mod bwrap;
mod docker;
mod oci;
mod podman;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::command::CommandLine;
use super::language::{Language, PRINTED};
use super::machine;
use super::mounts::Mounts;
use super::place::Place;
use super::rounds::{Case, Subject};

/// Makes command lines that run a program.
pub(super) trait Peer {
    /// A command line that runs `words`, each time it is asked: some need a new name for each run. `interactive`: the
    /// program's input is the command's.
    fn command(&mut self, words: &[&str], interactive: bool) -> anyhow::Result<CommandLine>;
}

impl<F: FnMut(&[&str], bool) -> anyhow::Result<CommandLine>> Peer for F {
    fn command(&mut self, words: &[&str], interactive: bool) -> anyhow::Result<CommandLine> {
        self(words, interactive)
    }
}

/// A peer, or why it cannot be had.
type Found = Result<Maker, String>;

/// Makes a peer, once for each case.
type Maker = Box<dyn FnMut() -> anyhow::Result<Box<dyn Peer>>>;

/// All peers, and what they need to go on working.
pub(super) struct Peers {
    names: Vec<(&'static str, Found)>,
    pub(super) versions: Vec<(String, String)>,
    folder: PathBuf,
    _docker: Option<docker::Daemon>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names.iter().map(|(name, _)| name)).finish()
    }
}

/// What every peer is made from.
#[derive(Debug, Clone)]
struct Common {
    mounts: std::rc::Rc<Mounts>,
    /// A root with places to mount on.
    root: PathBuf,
    folder: PathBuf,
}

impl Peers {
    pub(super) fn find(
        binary: &Path,
        mounts: Mounts,
        place: &Place,
        wants: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<Self> {
        let root = place.folder("root")?;
        mounts.make_root(&root)?;
        let common = Common { mounts: std::rc::Rc::new(mounts), root, folder: place.folder("peers")? };
        let wanted =
            |name: &str| Language::ALL.iter().any(|language| wants(&format!("{name}-{}", language.name())));
        let mut found =
            Self { names: Vec::new(), versions: Vec::new(), folder: place.path().to_owned(), _docker: None };
        let (binary, state) = (binary.to_owned(), place.folder("run")?);
        found.names.push((
            "bare",
            maker(|| Ok(Box::new(|words: &[&str], _| Ok(CommandLine::from(words.iter().copied()))))),
        ));
        found.names.push(("run", maker(move || Ok(Box::new(ourselves(binary.clone(), state.clone()))))));
        for (name, program) in [
            ("bwrap", "/usr/bin/bwrap"),
            ("runc", "/usr/sbin/runc"),
            ("runsc", "/usr/bin/runsc"),
            ("docker", "/usr/bin/docker"),
            ("podman", "/usr/bin/podman"),
        ] {
            if !wanted(name) {
                continue;
            }
            let made = installed(program).and_then(|()| {
                found.versions.push((name.to_owned(), version(program)?));
                found.make(name, &common)
            });
            found.names.push((name, made.map_err(|error| format!("{error:#}"))));
        }
        Ok(found)
    }

    fn make(&mut self, name: &str, common: &Common) -> anyhow::Result<Maker> {
        let common = common.clone();
        Ok(match name {
            "bwrap" => Box::new(move || Ok(Box::new(bwrap::peer(&common)))),
            "runc" => Box::new(move || Ok(Box::new(oci::peer(oci::Runtime::Runc, &common)?))),
            "runsc" => Box::new(move || Ok(Box::new(oci::peer(oci::Runtime::Runsc, &common)?))),
            "docker" => {
                let daemon = docker::Daemon::start(&common)?;
                let client = daemon.client();
                self.versions.push(("docker's storage".to_owned(), daemon.storage()?));
                self._docker = Some(daemon);
                Box::new(move || Ok(Box::new(docker::peer(client.clone(), &common))))
            }
            _ => {
                let client = podman::client(&common)?;
                Box::new(move || Ok(Box::new(podman::peer(client.clone(), &common))))
            }
        })
    }

    /// A case for each peer and language that is wanted.
    pub(super) fn cases(&mut self, wants: &dyn Fn(&str) -> bool) -> Vec<Case> {
        let mut cases = Vec::new();
        for language in Language::ALL {
            for (peer, found) in &mut self.names {
                let name = format!("{peer}-{}", language.name());
                if wants(&name) {
                    let title = format!("{}: {}", language.name(), title(peer));
                    cases.push(Case::new(name, title, *peer == "run", subject(found, language)));
                }
            }
        }
        cases
    }

    /// Makes command lines of one peer, for loads and for memory. `None`: it is not among them.
    pub(super) fn lines(&mut self, name: &str) -> Option<anyhow::Result<Lines>> {
        let (_, found) = self.names.iter_mut().find(|(peer, _)| *peer == name)?;
        Some(match found {
            Ok(make) => make().map(|peer| Lines { peer, folder: self.folder.clone() }),
            Err(why) => Err(anyhow::anyhow!("{why}")),
        })
    }
}

/// Command lines of one peer.
pub(super) struct Lines {
    peer: Box<dyn Peer>,
    /// By which processes of the bench are known.
    folder: PathBuf,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Lines {
    pub(super) fn printing(&mut self, language: Language) -> anyhow::Result<CommandLine> {
        self.peer.command(&language.words(), false)
    }

    /// Memory of everything that runs because one program waits there for its input.
    pub(super) fn memory(&mut self, language: Language) -> anyhow::Result<u64> {
        let line = self.peer.command(&language.waiting_words(), true)?;
        let before = machine::family(&self.folder);
        let mut command = line.command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut printed = String::new();
        BufReader::new(child.stdout.take().context("it was asked for")?).read_line(&mut printed)?;
        let memory = machine::proportional_memory(
            &machine::family(&self.folder).difference(&before).copied().collect(),
        );
        drop(child.stdin.take());
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > Duration::from_secs(20) {
                child.kill()?;
                child.wait()?;
                bail!("{} does not end with its input", line.name());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        anyhow::ensure!(printed == PRINTED, "{} printed {printed:?}", line.name());
        Ok(memory)
    }
}

pub(super) fn title(peer: &str) -> &str {
    match peer {
        "bare" => "no sandbox",
        "run" => "sandstorm run, from nothing",
        "runc" => "runc run",
        "runsc" => "runsc run",
        "docker" => "docker run",
        "podman" => "podman run",
        other => other,
    }
}

fn maker<P: Peer + 'static>(mut make: impl FnMut() -> anyhow::Result<Box<P>> + 'static) -> Found {
    Ok(Box::new(move || Ok(make()? as Box<dyn Peer>)))
}

fn subject(found: &mut Found, language: Language) -> anyhow::Result<Box<dyn Subject>> {
    let make = found.as_mut().map_err(|why| anyhow::anyhow!("{why}"))?;
    let mut peer = make()?;
    Ok(Box::new(move || peer.command(&language.words(), false)?.timed(PRINTED)))
}

/// `sandstorm run`, which brings everything with it and takes it along again.
fn ourselves(binary: PathBuf, state: PathBuf) -> impl Peer {
    move |words: &[&str], _: bool| {
        let language = match words[0] {
            "/usr/bin/python3" => "python",
            "/usr/bin/node" => "javascript",
            _ => "bash",
        };
        let line = CommandLine::from([&binary]).and(["run", "--state-dir"]).and([&state]);
        Ok(line.and(["-l", language, "-c", words[2]]))
    }
}

fn installed(program: &str) -> anyhow::Result<()> {
    anyhow::ensure!(Path::new(program).exists(), "{program} is not installed");
    Ok(())
}

fn version(program: &str) -> anyhow::Result<String> {
    let said = CommandLine::from([program, "--version"]).told()?;
    Ok(said.lines().next().unwrap_or("unknown").to_owned())
}
