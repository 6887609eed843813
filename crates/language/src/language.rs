//! What a data file says about a language.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

use crate::data;
use crate::error::DataError;
use crate::naming::Naming;
use crate::template::{Template, Token};

/// One language of the catalogue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Language {
    /// How requests and results name it, in lower case.
    pub name: String,
    /// How people write it.
    pub title: String,
    /// Other names that requests may use.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Interpreters in a `#!` line that mean this language.
    #[serde(default)]
    pub shebangs: Vec<String>,
    /// Who installs its packages.
    pub packages: Option<PackageManager>,
    /// The program that keeps variables alive between pieces of code, where there is one.
    pub(crate) kernel: Option<Kernel>,
    pub install: Install,
    pub(crate) source: Source,
    /// Names of the toolchain's programs, each with what it may be called on a host, best first.
    pub(crate) programs: BTreeMap<String, Vec<String>>,
    /// Files that the toolchain is of no use without.
    #[serde(default)]
    pub(crate) requires: Vec<String>,
    /// Configuration that the sandbox has to show, read-only, where the host has it. `*` matches within one name.
    #[serde(default)]
    pub(crate) mounts: Vec<String>,
    pub(crate) version: Vec<Template>,
    pub(crate) compile: Option<Compile>,
    pub(crate) run: Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageManager {
    Pip,
    Npm,
    Cargo,
    Go,
    Maven,
    Gem,
}

impl PackageManager {
    /// As configuration and recipes name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Cargo => "cargo",
            Self::Go => "go",
            Self::Maven => "maven",
            Self::Gem => "gem",
        }
    }
}

/// How to get a language that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Install {
    pub apt: Vec<String>,
    pub hint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// What code without a file name is stored as.
    pub(crate) main: String,
    pub(crate) extensions: Vec<String>,
    /// Whether code that is indented as a whole is refused.
    #[serde(default)]
    pub(crate) indented: bool,
    /// Another name for the main file, or its entry point, read from the code.
    pub(crate) naming: Option<Naming>,
    /// Extensions of compiled files by the extension of their source.
    #[serde(default)]
    pub(crate) outputs: BTreeMap<String, String>,
    /// What `{sources}` holds besides the main file.
    #[serde(default)]
    pub(crate) sources: Sources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sources {
    #[serde(default)]
    pub(crate) from: SourcesFrom,
    #[serde(default)]
    pub(crate) skip: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SourcesFrom {
    /// Nothing: the compiler follows imports by itself.
    #[default]
    Main,
    /// The folder of the main file.
    Folder,
    /// The whole workspace.
    Tree,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compile {
    pub(crate) argv: Vec<Template>,
    /// Another command when the workspace holds a certain file at its top.
    #[serde(default)]
    pub(crate) when: Vec<When>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, Template>,
    /// Files of ours to lay beside the user's.
    #[serde(default)]
    pub(crate) support: Vec<String>,
    /// Whether the compiler keeps things for its next run below `{warm}`.
    #[serde(default)]
    pub(crate) warm: bool,
    pub(crate) limits: CompileLimits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct When {
    pub(crate) file: String,
    pub(crate) argv: Vec<Template>,
    /// Set on top of the compile's own.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, Template>,
}

/// What a compile may use, apart from what its run may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompileLimits {
    pub wall_seconds: u64,
    pub memory_mib: u64,
}

impl CompileLimits {
    pub fn wall(self) -> Duration {
        Duration::from_secs(self.wall_seconds)
    }
}

/// See `kernels/README.md`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    /// A file of `kernels/`.
    pub(crate) file: String,
    /// What starts it; the file comes after.
    pub(crate) argv: Vec<Template>,
    /// What comes behind the file.
    #[serde(default)]
    pub(crate) args: Vec<Template>,
    /// Whether it can be spoken to in lines on its streams, where a provider has no channels.
    #[serde(default)]
    pub(crate) lines: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    pub(crate) argv: Vec<Template>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, Template>,
}

impl Install {
    /// The command that a person types.
    pub fn command(&self) -> String {
        format!("sudo apt-get install {}", self.apt.join(" "))
    }
}

impl Language {
    /// Reads one data file and refuses what no plan could be made of.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, DataError> {
        let language: Self = toml::from_str(text)
            .map_err(|source| DataError::Syntax { file: file.to_owned(), source: Box::new(source) })?;
        language.check(file).map_err(|what| DataError::Content { file: file.to_owned(), what })?;
        Ok(language)
    }

    /// Whether a file of this name is a source of this language.
    pub fn owns_file(&self, path: &str) -> bool {
        extension(path)
            .is_some_and(|found| self.source.extensions.iter().any(|e| e.eq_ignore_ascii_case(found)))
    }

    /// Whether its interpreters can live on, so that variables are kept from one piece of code to the next.
    pub fn has_contexts(&self) -> bool {
        self.kernel.is_some()
    }

    /// Whether they can where a provider has no channels, too.
    pub fn has_contexts_without_channels(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.lines)
    }

    /// Whether programs are compiled before they run.
    pub fn is_compiled(&self) -> bool {
        self.compile.is_some()
    }

    /// Whether programs can be given arguments.
    pub fn takes_arguments(&self) -> bool {
        self.run.argv.iter().flat_map(Template::tokens).any(|token| *token == Token::Args)
    }

    /// What code that came without a file name is to be stored as, below the workspace.
    pub fn main_file_name(&self, code: &str) -> String {
        let named = self.source.naming.as_ref().and_then(|naming| naming.main_file(code));
        named.unwrap_or_else(|| self.source.main.clone())
    }

    /// Whether the code decides what its file must be called, and not only what it ends in.
    pub fn code_names_its_file(&self, code: &str) -> bool {
        self.source.naming.as_ref().is_some_and(|naming| naming.names_file(code))
    }

    fn check(&self, file: &str) -> Result<(), String> {
        if self.name != file {
            return Err(format!("the language is called {:?}", self.name));
        }
        if self.run.argv.is_empty() || self.version.is_empty() || self.programs.is_empty() {
            return Err("run, version and programs must not be empty".to_owned());
        }
        if !self.owns_file(&self.source.main) {
            return Err(format!("main file {:?} has a foreign extension", self.source.main));
        }
        let run = self.run.argv.iter().chain(self.run.env.values()).flat_map(Template::tokens);
        for token in run {
            let compiled = matches!(token, Token::Build | Token::Output | Token::Entry);
            if compiled && self.compile.is_none()
                || matches!(token, Token::Sources | Token::Support | Token::Warm)
            {
                return Err(format!("run cannot use {token:?}"));
            }
        }
        if let Some(name) =
            self.compile.iter().flat_map(|c| &c.support).find(|name| support_text(name).is_none())
        {
            return Err(format!("no support file {name:?}"));
        }
        if let Some(kernel) = &self.kernel
            && !data::KERNELS.iter().any(|(known, _)| *known == kernel.file)
        {
            return Err(format!("no kernel file {:?}", kernel.file));
        }
        let mut unused: BTreeSet<&str> = self.programs.keys().map(String::as_str).collect();
        for token in self.templates().flat_map(Template::tokens) {
            let Token::Program(name) = token else { continue };
            if !self.programs.contains_key(name) {
                return Err(format!("unknown token {{{name}}}"));
            }
            unused.remove(name.as_str());
        }
        match unused.first() {
            Some(name) => Err(format!("program {name:?} is not used")),
            None => Ok(()),
        }
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let compile = self.compile.iter().flat_map(|compile| {
            let when = compile.when.iter().flat_map(|when| when.argv.iter().chain(when.env.values()));
            compile.argv.iter().chain(when).chain(compile.env.values())
        });
        let kernel = self.kernel.iter().flat_map(|kernel| kernel.argv.iter().chain(&kernel.args));
        self.run.argv.iter().chain(self.run.env.values()).chain(&self.version).chain(compile).chain(kernel)
    }
}

pub(crate) fn support_text(name: &str) -> Option<&'static str> {
    data::SUPPORT.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The part of a file name after its last dot.
pub(crate) fn extension(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension)
}

#[cfg(test)]
mod tests;
