//! Which jail a sandbox lives in, noted beside its journals: the launcher tells the ends of jails by their own names, and a
//! jail that was made ahead has another name than the sandbox that it became.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use sandstorm_types::SandboxId;

const ENDING: &str = ".jail";

/// Notes it. `journals`: the sandbox's own directory, which need not exist.
pub(super) fn note(journals: &Path, jail: &str) -> io::Result<()> {
    if let Some(folder) = journals.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A link is written at once or not at all, and needs no more than its name.
    std::os::unix::fs::symlink(jail, beside(journals))
}

pub(super) fn forget(journals: &Path) {
    // Most have none.
    let _ = std::fs::remove_file(beside(journals));
}

/// The sandboxes of all jails that were noted.
pub(super) fn all(folder: &Path) -> HashMap<String, SandboxId> {
    let Ok(entries) = std::fs::read_dir(folder) else { return HashMap::new() };
    let noted = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let sandbox = SandboxId::from_bare(of_note(name.to_str()?)?).ok()?;
        let jail = std::fs::read_link(entry.path()).ok()?;
        Some((jail.to_str()?.to_owned(), sandbox))
    });
    noted.collect()
}

/// The sandbox of a note, by the note's file name.
pub(super) fn of_note(name: &str) -> Option<&str> {
    name.strip_suffix(ENDING)
}

fn beside(journals: &Path) -> PathBuf {
    let mut name = journals.as_os_str().to_owned();
    name.push(ENDING);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jails_are_found_by_their_names_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let id = SandboxId::random();
        let journals = dir.path().join("journals").join(id.bare());
        note(&journals, "other").unwrap();
        assert_eq!(all(&dir.path().join("journals")), HashMap::from([("other".to_owned(), id)]));
        forget(&journals);
        assert!(all(&dir.path().join("journals")).is_empty());
        assert!(all(Path::new("/does/not/exist")).is_empty());
    }
}
