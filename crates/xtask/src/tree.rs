//! The text files of the repository, read once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders that hold nothing we wrote.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "__pycache__", ".venv"];

/// Relative path with `/` to content. Files that are not UTF-8 are present
/// with empty content, so that a link to a picture still resolves.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add_folder(root, "")?;
        Ok(tree)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { files }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Files whose name ends in `.extension`.
    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        let suffix = format!(".{extension}");
        self.files().filter(move |(path, _)| path.ends_with(&suffix))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `path` is a file, or a folder with at least one file.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty() || self.files.keys().any(|file| file == path || file.starts_with(&folder))
    }

    fn add_folder(&mut self, root: &Path, relative: &str) -> Result<()> {
        let folder = root.join(relative);
        let entries = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list {}", folder.display()))?;
            // A name that is not UTF-8 cannot be one of ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let kind = entry.file_type().with_context(|| format!("look at {path}"))?;
            if kind.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.add_folder(root, &path)?;
                }
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).with_context(|| format!("read {path}"))?;
                self.files.insert(path, String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_reads_nested_files_and_skips_build_output() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs/guides")).unwrap();
        fs::create_dir_all(root.path().join("crates/x/target")).unwrap();
        fs::write(root.path().join("docs/guides/a.md"), "hello").unwrap();
        fs::write(root.path().join("docs/picture.png"), [0xff, 0xfe]).unwrap();
        fs::write(root.path().join("crates/x/target/b.rs"), "built").unwrap();

        let tree = Tree::load(root.path()).unwrap();

        assert_eq!(tree.text("docs/guides/a.md"), Some("hello"));
        assert_eq!(tree.text("docs/picture.png"), Some(""));
        assert_eq!(tree.text("crates/x/target/b.rs"), None);
        assert!(tree.holds("docs/guides"));
        assert!(!tree.holds("docs/guide"));
    }
}
