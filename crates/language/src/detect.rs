//! Finding a language's toolchain.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::PlanError;
use crate::language::{Install, Language};
use crate::plan::Context;
use crate::roots::Roots;
use crate::template::{Part, Token};
use crate::version::version_in;

/// A language's programs, as the sandbox will see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Paths by the names that the data file uses.
    pub programs: BTreeMap<String, PathBuf>,
    /// Folders that the sandbox has to show, read-only and under the same path, for the programs to work.
    pub mounts: Vec<PathBuf>,
    /// What the programs say about themselves; see [`Language::version_command`].
    pub version: Option<String>,
}

/// A language that this host does not have, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Programs and files that were looked for in vain.
    pub absent: Vec<String>,
    pub install: Install,
}

impl Language {
    /// Looks for the toolchain where the sandbox would see it. Starts nothing, so the version is still unknown.
    pub fn detect(&self, roots: &Roots) -> Result<Toolchain, Missing> {
        let mut programs = BTreeMap::new();
        let mut absent = Vec::new();
        for (name, known) in &self.programs {
            let chosen = roots.chosen(&self.name).filter(|_| self.main_program() == Some(name));
            let chosen = chosen.map(|path| vec![path.to_string_lossy().into_owned()]);
            let candidates = chosen.as_ref().unwrap_or(known);
            match candidates.iter().find_map(|candidate| roots.program(candidate)) {
                Some(path) => drop(programs.insert(name.clone(), path)),
                None => absent.extend(candidates.first().cloned()),
            }
        }
        absent.extend(self.requires.iter().filter(|path| !roots.shows(path)).cloned());
        if !absent.is_empty() {
            return Err(Missing { absent, install: self.install.clone() });
        }
        let mounts = self.mounts.iter().flat_map(|pattern| roots.trees(pattern)).collect();
        Ok(Toolchain { programs, mounts, version: None })
    }

    /// The programs by the best of their bare names, to be found wherever they are. Nothing is looked for here.
    pub fn bare_toolchain(&self) -> Toolchain {
        let first = |(name, known): (&String, &Vec<String>)| Some((name.clone(), known.first()?.into()));
        let programs = self.programs.iter().filter_map(first).collect();
        Toolchain { programs, mounts: Vec::new(), version: None }
    }

    /// The program that reads the user's code: the compiler, or the interpreter where there is none.
    fn main_program(&self) -> Option<&String> {
        let argv = self.compile.as_ref().map_or(&self.run.argv, |compile| &compile.argv);
        match argv.first()?.0.first()? {
            Part::Token(Token::Program(name)) => Some(name),
            _ => None,
        }
    }

    /// The command that prints the toolchain's version, to be run inside a sandbox.
    pub fn version_command(&self, toolchain: &Toolchain) -> Result<Vec<String>, PlanError> {
        Context::new(self, toolchain, None).expand(&self.version)
    }
}

impl Toolchain {
    /// Keeps what [`Language::version_command`] printed, on both streams, if it is a version.
    pub fn keep_version(&mut self, printed: &str) {
        self.version = version_in(printed).map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::Catalogue;

    fn fake(files: &[&str]) -> (TempDir, Roots) {
        let base = TempDir::new().unwrap();
        for file in files {
            let path = base.path().join(file.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let roots = Roots::at(base.path());
        (base, roots)
    }

    #[test]
    fn an_empty_system_has_no_language() {
        let (_base, roots) = fake(&["/usr/share/doc"]);
        for language in Catalogue::embedded().iter() {
            let missing = language.detect(&roots).unwrap_err();
            assert!(!missing.absent.is_empty(), "{}", language.name);
            assert!(missing.install.command().starts_with("sudo apt-get install "), "{}", language.name);
        }
    }

    #[test]
    fn every_program_and_file_is_needed() {
        let java = Catalogue::embedded().get("java").unwrap();
        let (_base, roots) = fake(&["/usr/bin/java"]);
        assert_eq!(java.detect(&roots).unwrap_err().absent, ["javac"]);
        let c = Catalogue::embedded().get("c").unwrap();
        let (_base, roots) = fake(&["/usr/bin/gcc"]);
        assert_eq!(c.detect(&roots).unwrap_err().absent, ["/usr/include/stdio.h"]);
        let (_base, roots) = fake(&["/usr/bin/clang", "/usr/include/stdio.h"]);
        assert_eq!(c.detect(&roots).unwrap().programs["cc"], PathBuf::from("/usr/bin/clang"));
    }

    #[test]
    fn a_chosen_program_is_taken_or_nothing() {
        let (_base, roots) =
            fake(&["/usr/bin/python3", "/usr/bin/pypy3", "/usr/bin/javac", "/usr/bin/java", "/usr/bin/ecj"]);
        let python = Catalogue::embedded().get("python").unwrap();
        let chosen = roots.clone().with_program("python", "/usr/bin/pypy3");
        assert_eq!(python.detect(&chosen).unwrap().programs["python"], PathBuf::from("/usr/bin/pypy3"));
        let missing = roots.clone().with_program("python", "/usr/bin/python4");
        assert_eq!(python.detect(&missing).unwrap_err().absent, ["/usr/bin/python4"]);
        let java = Catalogue::embedded().get("java").unwrap();
        let programs = java.detect(&roots.with_program("java", "/usr/bin/ecj")).unwrap().programs;
        assert_eq!(programs["javac"], PathBuf::from("/usr/bin/ecj"));
        assert_eq!(programs["java"], PathBuf::from("/usr/bin/java"));
        for language in Catalogue::embedded().iter() {
            assert!(language.main_program().is_some(), "{}", language.name);
        }
    }

    #[test]
    fn configuration_comes_with_the_toolchain() {
        let java = Catalogue::embedded().get("java").unwrap();
        let (_base, roots) =
            fake(&["/usr/bin/java", "/usr/bin/javac", "/etc/java-17-openjdk/jvm.cfg", "/etc/shadow"]);
        let toolchain = java.detect(&roots).unwrap();
        assert_eq!(toolchain.mounts, [PathBuf::from("/etc/java-17-openjdk")]);
    }

    #[test]
    fn versions_are_asked_for_and_kept() {
        let python = Catalogue::embedded().get("python").unwrap();
        let (_base, roots) = fake(&["/usr/bin/python3"]);
        let mut toolchain = python.detect(&roots).unwrap();
        assert_eq!(toolchain.version, None);
        assert_eq!(python.version_command(&toolchain).unwrap(), ["/usr/bin/python3", "--version"]);
        toolchain.keep_version("Python 3.11.2\n");
        assert_eq!(toolchain.version.as_deref(), Some("3.11.2"));
    }
}
