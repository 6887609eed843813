//! What a program's own text decides: the name of its main file, and where it starts.
//!
//! These are guesses about code that may not even parse. A wrong one never hides an error: the compiler or the
//! interpreter still reads the whole file and has the last word.

mod java;
mod javascript;
mod scan;

use serde::Deserialize;

use crate::language::extension;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Naming {
    rule: Rule,
    /// The file name when the rule holds.
    main: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    /// The code imports or exports, or awaits outside any function.
    EsModule,
    /// The code awaits outside any function.
    TopLevelAwait,
    /// A public type of Java gives its file its name; the class with `main` is where the program starts.
    JavaPublicType,
}

impl Naming {
    /// The main file's name, where the code asks for another than the usual one.
    pub(crate) fn main_file(&self, code: &str) -> Option<String> {
        match self.rule {
            Rule::EsModule => self.main.clone().filter(|_| javascript::is_module(code)),
            Rule::TopLevelAwait => self.main.clone().filter(|_| javascript::awaits_at_top(code)),
            Rule::JavaPublicType => java::Outline::of(code).public_type.map(|name| format!("{name}.java")),
        }
    }

    /// Whether the code has to be in a file of one certain name.
    pub(crate) fn names_file(&self, code: &str) -> bool {
        self.rule == Rule::JavaPublicType && self.main_file(code).is_some()
    }

    /// The name to start the program by, for runtimes that do not start a file.
    pub(crate) fn entry(&self, code: &str, main: &str) -> Option<String> {
        let Rule::JavaPublicType = self.rule else { return None };
        let outline = java::Outline::of(code);
        let file = main.rsplit('/').next().unwrap_or(main);
        let stem = extension(file).map_or(file, |ext| &file[..file.len() - ext.len() - 1]);
        let class = outline.main_type.or(outline.public_type).unwrap_or_else(|| stem.to_owned());
        Some(match outline.package {
            Some(package) => format!("{package}.{class}"),
            None => class,
        })
    }
}
