//! `xtask check`: the rules of this repository that no stock tool checks; `xtask changelog`.
//!
//! Each rule is a module with one function from a [`tree::Tree`] to lines in a
//! [`report::Report`], so that its tests can hand it a tree made of strings.

mod arrows;
mod changelog;
mod confined;
mod links;
mod manifests;
mod mentions;
mod report;
mod requirements;
mod sizes;
mod source;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use report::Report;
use requirements::Strictness;
use tree::Tree;

const USAGE: &str = "usage: xtask check [--strict]
       xtask changelog [VERSION DATE]

  check            requirement map, unsafe code, dependency arrows, paths, links, manifests, changelog
  check --strict   also fail while a MUST of the requirement map is pending or deferred
  changelog        write the section Unreleased of CHANGELOG.md from the fragments in changelog.d
  changelog VERSION DATE   give that section a version and delete the fragments
";

#[expect(clippy::print_stderr, reason = "a usage error belongs on the terminal")]
fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => check(Strictness::Lenient),
        ["check", "--strict"] => check(Strictness::Strict),
        ["changelog"] => changelog::update(&root()?).map(|()| ExitCode::SUCCESS),
        ["changelog", version, date] => {
            changelog::release(&root()?, version, date).map(|()| ExitCode::SUCCESS)
        }
        _ => {
            eprint!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn root() -> Result<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.canonicalize().context("find the root of the repository")
}

fn check(strictness: Strictness) -> Result<ExitCode> {
    let root = root()?;
    let tree = Tree::load(&root)?;

    let mut report = Report::default();
    requirements::check(&tree, strictness, &mut report);
    confined::check(&tree, &mut report);
    arrows::check(&tree, &mut report);
    manifests::check(&tree, &mut report);
    mentions::check(&tree, &mentions::private_places(&root, std::env::home_dir().as_deref()), &mut report);
    links::check(&tree, &mut report);
    sizes::check(&tree, &mut report);
    changelog::check(&tree, &mut report);

    Ok(print(&report))
}

#[expect(clippy::print_stdout, reason = "the report is what this program is for")]
fn print(report: &Report) -> ExitCode {
    for note in &report.notes {
        println!("{note}");
    }
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    for error in &report.errors {
        println!("error: {error}");
    }
    if report.errors.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("{} rules of this repository are broken", report.errors.len());
        ExitCode::FAILURE
    }
}
