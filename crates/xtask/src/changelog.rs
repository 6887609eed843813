//! `CHANGELOG.md` from the fragments in `changelog.d`.
//!
//! The fragments stand in the section `Unreleased` until a release gives that section a version and deletes them. A
//! branch adds fragments only; `xtask changelog` writes the section, and `xtask check` fails where it is out of date.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::tree::Tree;

const FOLDER: &str = "changelog.d/";
const CHANGELOG: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## Unreleased\n";

/// Kinds in the order in which a reader needs them, each with its title.
const KINDS: [(&str, &str); 4] =
    [("security", "Security"), ("breaking", "Breaking"), ("feature", "New"), ("fix", "Fixed")];

/// A change that users notice.
#[derive(Debug)]
struct Fragment<'a> {
    path: &'a str,
    kind: &'a str,
    text: &'a str,
}

/// Reports fragments that cannot be published and a section `Unreleased` that differs from them.
pub(crate) fn check(tree: &Tree, report: &mut Report) {
    let (fragments, errors) = fragments(tree);
    if !errors.is_empty() {
        errors.into_iter().for_each(|error| report.error(error));
        return;
    }
    let stored = tree.text(CHANGELOG).unwrap_or_default();
    if updated(stored, &fragments, None) != stored {
        report.error(format!("{CHANGELOG}: not what {FOLDER} says; run `make changelog`"));
    }
}

/// Writes the section `Unreleased`.
pub(crate) fn update(root: &Path) -> Result<()> {
    rewrite(root, None).map(|_| ())
}

/// Publishes the fragments as `version` of `date` and deletes them.
pub(crate) fn release(root: &Path, version: &str, date: &str) -> Result<()> {
    if !is_version(version) {
        bail!("{version} is not a version such as 1.2.3");
    }
    if !is_date(date) {
        bail!("{date} is not a date such as 2026-01-31");
    }
    let title = format!("## {version} ({date})\n");
    for path in rewrite(root, Some(&title))? {
        fs::remove_file(root.join(&path)).with_context(|| format!("delete {path}"))?;
    }
    Ok(())
}

/// Returns the paths of the fragments that the changelog now holds.
fn rewrite(root: &Path, title: Option<&str>) -> Result<Vec<String>> {
    let tree = Tree::load(root)?;
    let (fragments, errors) = fragments(&tree);
    if !errors.is_empty() {
        bail!("{}", errors.join("\n"));
    }
    if title.is_some() && fragments.is_empty() {
        bail!("{FOLDER} holds no fragment: there is nothing to release");
    }
    let stored = tree.text(CHANGELOG).with_context(|| format!("find {CHANGELOG}"))?;
    if let Some(number) = title.and_then(|title| title.split(' ').nth(1))
        && stored.contains(&format!("\n## {number} "))
    {
        bail!("{CHANGELOG} has a version {number} already");
    }
    fs::write(root.join(CHANGELOG), updated(stored, &fragments, title))
        .with_context(|| format!("write {CHANGELOG}"))?;
    Ok(fragments.into_iter().map(|fragment| fragment.path.to_owned()).collect())
}

/// The fragments by path, and what is wrong with those that cannot be published.
fn fragments(tree: &Tree) -> (Vec<Fragment<'_>>, Vec<String>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (path, text) in tree.files() {
        let Some(name) = path.strip_prefix(FOLDER).filter(|name| *name != "README.md") else { continue };
        let parts: Vec<&str> = name.split('.').collect();
        let [topic, kind, "md"] = parts[..] else {
            errors.push(format!("{path}: fragments are called TOPIC.KIND.md"));
            continue;
        };
        if topic.is_empty() || !KINDS.iter().any(|(known, _)| *known == kind) {
            let known: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            errors.push(format!(
                "{path}: fragments are called TOPIC.KIND.md, KIND one of {}",
                known.join(", ")
            ));
        } else if text.trim().is_empty() {
            errors.push(format!("{path}: says nothing"));
        } else if text.lines().any(|line| line.starts_with('#')) {
            errors.push(format!("{path}: a fragment has no title; the changelog has its kind"));
        } else {
            found.push(Fragment { path, kind, text });
        }
    }
    (found, errors)
}

/// The changelog with the fragments as its first section, under `title` or as `Unreleased`.
fn updated(stored: &str, fragments: &[Fragment<'_>], title: Option<&str>) -> String {
    let first = stored.find("\n## ").map_or(stored.len(), |at| at + 1);
    let (introduction, mut releases) = stored.split_at(first);
    if releases.starts_with(UNRELEASED) {
        releases = releases[1..].find("\n## ").map_or("", |at| &releases[at + 2..]);
    }
    let mut text = format!("{}\n", introduction.trim_end());
    if !fragments.is_empty() {
        text += &format!("\n{}", title.unwrap_or(UNRELEASED));
    }
    for (kind, title) in KINDS {
        let mut of_kind = fragments.iter().filter(|fragment| fragment.kind == kind).peekable();
        if of_kind.peek().is_some() {
            text += &format!("\n### {title}\n\n");
        }
        of_kind.for_each(|fragment| text += &as_items(fragment.text));
    }
    if !releases.is_empty() {
        text += &format!("\n{}\n", releases.trim_end());
    }
    text
}

/// A fragment as an item of a list. One that is a list of items stays as it is.
fn as_items(text: &str) -> String {
    let text = text.trim();
    if text.starts_with("- ") {
        return format!("{text}\n");
    }
    let lines: Vec<String> =
        text.lines().map(|line| if line.is_empty() { String::new() } else { format!("  {line}") }).collect();
    format!("- {}\n", lines.join("\n").trim_start())
}

/// Three numbers with dots, and what semantic versioning lets follow after `-`.
fn is_version(text: &str) -> bool {
    let (numbers, suffix) = text.split_once('-').unwrap_or((text, "0"));
    let numbers: Vec<&str> = numbers.split('.').collect();
    numbers.len() == 3
        && numbers.iter().all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        && !suffix.is_empty()
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

fn is_date(text: &str) -> bool {
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    form == "0000-00-00"
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTRODUCTION: &str = "# Changelog\n\nNewest first.\n";
    const FRAGMENTS: [(&str, &str); 4] = [
        ("changelog.d/README.md", "# Fragments\n"),
        ("changelog.d/b.fix.md", "It held\non.\n"),
        ("changelog.d/a.fix.md", "- One.\n- Two,\n  longer.\n"),
        ("changelog.d/wall.security.md", "A wall.\n"),
    ];
    const SECTION: &str =
        "\n### Security\n\n- A wall.\n\n### Fixed\n\n- One.\n- Two,\n  longer.\n- It held\n  on.\n";

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let mut report = Report::default();
        check(&Tree::of(files), &mut report);
        report.errors
    }

    fn repository(changelog: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("changelog.d")).unwrap();
        for (path, text) in FRAGMENTS {
            fs::write(root.path().join(path), text).unwrap();
        }
        fs::write(root.path().join(CHANGELOG), changelog).unwrap();
        root
    }

    fn changelog(root: &tempfile::TempDir) -> String {
        fs::read_to_string(root.path().join(CHANGELOG)).unwrap()
    }

    #[test]
    fn the_unreleased_section_is_written_once_and_then_current() {
        let root = repository(&format!("{INTRODUCTION}\n## 0.0.1 (2026-01-01)\n\n- Old.\n"));
        let expected = format!("{INTRODUCTION}\n## Unreleased\n{SECTION}\n## 0.0.1 (2026-01-01)\n\n- Old.\n");
        for _ in 0..2 {
            update(root.path()).unwrap();
            assert_eq!(changelog(&root), expected);
        }
        assert!(root.path().join("changelog.d/b.fix.md").exists());

        let mut report = Report::default();
        check(&Tree::load(root.path()).unwrap(), &mut report);
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        fs::write(root.path().join("changelog.d/c.fix.md"), "More.\n").unwrap();
        check(&Tree::load(root.path()).unwrap(), &mut report);
        assert_eq!(report.errors, ["CHANGELOG.md: not what changelog.d/ says; run `make changelog`"]);
    }

    #[test]
    fn a_release_takes_the_fragments_and_deletes_them() {
        let root = repository(INTRODUCTION);
        update(root.path()).unwrap();
        release(root.path(), "0.1.0", "2026-02-03").unwrap();
        let released = format!("{INTRODUCTION}\n## 0.1.0 (2026-02-03)\n{SECTION}");
        assert_eq!(changelog(&root), released);
        let left: Vec<_> = fs::read_dir(root.path().join("changelog.d")).unwrap().collect();
        assert_eq!(left.len(), 1, "only the README stays");

        update(root.path()).unwrap();
        assert_eq!(changelog(&root), released, "without fragments nothing is unreleased");
        assert!(release(root.path(), "0.2.0", "2026-02-04").is_err(), "nothing to release");
    }

    #[test]
    fn a_release_refuses_a_version_that_is_there_and_what_is_no_version_or_date() {
        let root = repository(&format!("{INTRODUCTION}\n## 0.1.0 (2026-02-03)\n"));
        for (version, date) in [
            ("0.1.0", "2026-02-03"),
            ("0.1", "2026-02-03"),
            ("v0.2.0", "2026-02-03"),
            ("0.2.0-", "2026-02-03"),
            ("0.2.0", "today"),
        ] {
            assert!(release(root.path(), version, date).is_err(), "{version} {date}");
        }
        assert!(root.path().join("changelog.d/b.fix.md").exists(), "a refused release deletes nothing");
        release(root.path(), "0.2.0-rc.1", "2026-02-03").unwrap();
    }

    #[test]
    fn a_fragment_that_cannot_be_published_is_an_error() {
        for (name, text) in
            [("a.bug.md", "x"), ("a.md", "x"), (".fix.md", "x"), ("a.fix.md", " \n"), ("a.fix.md", "# A\n")]
        {
            let path = format!("changelog.d/{name}");
            assert_eq!(errors(&[(CHANGELOG, INTRODUCTION), (&path, text)]).len(), 1, "{name}");
        }
    }
}
