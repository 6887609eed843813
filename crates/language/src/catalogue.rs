//! All languages, and finding one among them.

use std::sync::{LazyLock, OnceLock};

use crate::data;
use crate::error::UnknownLanguage;
use crate::language::Language;
use crate::nearest::nearest;

/// The languages that this build knows, in order of their names.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

/// A language's file, read when somebody asks for it: a run asks for one, and reading all of them takes longer than
/// the rest of its preparations.
#[derive(Debug)]
struct Entry {
    name: &'static str,
    text: &'static str,
    language: OnceLock<Language>,
}

impl Entry {
    fn language(&self) -> &Language {
        self.language
            .get_or_init(|| Language::parse(self.name, self.text).expect("a test reads every embedded file"))
    }
}

static EMBEDDED: LazyLock<Catalogue> = LazyLock::new(|| {
    let entry = |&(name, text)| Entry { name, text, language: OnceLock::new() };
    Catalogue { entries: data::LANGUAGES.iter().map(entry).collect() }
});

impl Catalogue {
    /// What was compiled in.
    pub fn embedded() -> &'static Self {
        &EMBEDDED
    }

    pub fn iter(&self) -> impl Iterator<Item = &Language> {
        self.entries.iter().map(Entry::language)
    }

    /// The language of this name or alias, in any case.
    pub fn get(&self, name: &str) -> Result<&Language, UnknownLanguage> {
        let wanted = name.trim().to_lowercase();
        // A file is called like its language, so a proper name needs no other file.
        if let Some(entry) = self.entries.iter().find(|entry| entry.name == wanted) {
            return Ok(entry.language());
        }
        if let Some(language) = self.iter().find(|language| names(language).any(|known| known == wanted)) {
            return Ok(language);
        }
        let near = nearest(&wanted, self.iter().flat_map(names));
        let nearest = near.and_then(|near| self.iter().find(|language| names(language).any(|n| n == near)));
        Err(UnknownLanguage { name: name.to_owned(), nearest: nearest.map(|language| language.name.clone()) })
    }

    /// The language that a file's name speaks of.
    pub fn by_file_name(&self, path: &str) -> Option<&Language> {
        self.iter().find(|language| language.owns_file(path))
    }

    /// The language that a program's `#!` line speaks of.
    pub fn by_shebang(&self, code: &str) -> Option<&Language> {
        let line = code.strip_prefix("#!")?.lines().next()?;
        let mut words = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
        let mut interpreter = words.next()?;
        if interpreter == "env" {
            // Skips env's own options and assignments.
            interpreter = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        }
        let exact = |name: &str| self.iter().find(|language| language.shebangs.iter().any(|s| s == name));
        // python3.11 is a python3.
        exact(interpreter)
            .or_else(|| exact(interpreter.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit())))
    }
}

fn names(language: &Language) -> impl Iterator<Item = &str> {
    std::iter::once(&language.name).chain(&language.aliases).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_sixteen_languages() {
        let names: Vec<_> = Catalogue::embedded().iter().map(|language| language.name.as_str()).collect();
        let all = "bash c cpp csharp go java javascript lua perl php python r ruby rust sql typescript";
        assert_eq!(names.join(" "), all);
    }

    #[test]
    fn no_name_extension_or_shebang_means_two_languages() {
        let catalogue = Catalogue::embedded();
        let mut seen = BTreeMap::new();
        for language in catalogue.iter() {
            let extensions = language.source.extensions.iter().map(|e| format!(".{e}"));
            let shebangs = language.shebangs.iter().map(|s| format!("#!{s}"));
            for key in names(language).map(str::to_owned).chain(extensions).chain(shebangs) {
                assert_eq!(key.to_lowercase(), key.replace("Rscript", "rscript"), "{key} is not lower case");
                let other = seen.insert(key.clone(), &language.name);
                assert_eq!(other, None, "{key} of {}", language.name);
            }
        }
    }

    #[test]
    fn a_proper_name_reads_no_other_file() {
        let entry = |&(name, text)| Entry { name, text, language: OnceLock::new() };
        let catalogue = Catalogue { entries: data::LANGUAGES.iter().map(entry).collect() };
        catalogue.get("Bash").unwrap();
        let read: Vec<_> =
            catalogue.entries.iter().filter(|e| e.language.get().is_some()).map(|e| e.name).collect();
        assert_eq!(read, ["bash"]);
    }

    #[test]
    fn names_and_aliases() {
        let get = |name: &str| Catalogue::embedded().get(name).map(|language| language.name.as_str());
        for (name, expected) in [
            ("python", "python"),
            ("PY", "python"),
            (" node ", "javascript"),
            ("ts", "typescript"),
            ("C++", "cpp"),
            ("c#", "csharp"),
            ("sqlite3", "sql"),
            ("R", "r"),
        ] {
            assert_eq!(get(name), Ok(expected), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let error = Catalogue::embedded().get("Pyhton").unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("python"));
        assert_eq!(error.to_string(), "unknown language \"Pyhton\"; did you mean \"python\"?");
        let error = Catalogue::embedded().get("golagn").unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("go"), "an alias suggests its language");
        let error = Catalogue::embedded().get("brainfuck").unwrap_err();
        assert_eq!(error.to_string(), "unknown language \"brainfuck\"");
    }

    #[test]
    fn files_and_shebangs() {
        let catalogue = Catalogue::embedded();
        let by_file = |path: &str| catalogue.by_file_name(path).map(|language| language.name.as_str());
        assert_eq!(by_file("src/app.mts"), Some("typescript"));
        assert_eq!(by_file("analysis.R"), Some("r"));
        assert_eq!(by_file("x.cc"), Some("cpp"));
        assert_eq!(by_file("Makefile"), None);
        let by_shebang = |code: &str| catalogue.by_shebang(code).map(|language| language.name.as_str());
        assert_eq!(by_shebang("#!/usr/bin/python3.11 -u\nx"), Some("python"));
        assert_eq!(by_shebang("#!/usr/bin/env -S A=1 node --x\n"), Some("javascript"));
        assert_eq!(by_shebang("#!/bin/sh"), Some("bash"));
        assert_eq!(by_shebang("#!/usr/bin/awk -f"), None);
        assert_eq!(by_shebang("print(1)"), None);
        assert_eq!(by_shebang("#!"), None);
    }
}
