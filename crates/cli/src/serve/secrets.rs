//! Secrets of a server: made once, kept in the state directory, never in the database.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};

/// Reads the secret of this name, making it when there is none.
pub(crate) fn secret(dir: &Path, name: &str) -> anyhow::Result<[u8; 32]> {
    let path = dir.join(name);
    match make(&path) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e).with_context(|| format!("could not make {}", path.display())),
    }
    let mut file = File::open(&path).with_context(|| format!("could not read {}", path.display()))?;
    let about = file.metadata()?;
    if about.mode() & 0o077 != 0 {
        bail!("{} can be read by others; `chmod 600` it, or delete it to make a new one", path.display());
    }
    let mut secret = [0; 32];
    file.read_exact(&mut secret).ok().filter(|()| about.len() == 32).with_context(|| {
        format!("{} is not a secret of 32 bytes; delete it to make a new one", path.display())
    })?;
    Ok(secret)
}

/// Written whole under another name first: who finds the file finds all of it.
fn make(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(std::io::Error::other)?;
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    linked
}

/// Makes a directory that nobody else can look into.
pub(crate) fn private(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("could not make {}", dir.display()))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("could not make {} private", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stays_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let first = secret(dir.path(), "pepper").unwrap();
        assert_eq!(secret(dir.path(), "pepper").unwrap(), first);
        assert_ne!(secret(dir.path(), "other").unwrap(), first);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        secret(dir.path(), "pepper").unwrap();
        let path = dir.path().join("pepper");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(secret(dir.path(), "pepper").unwrap_err().to_string().contains("read by others"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(secret(dir.path(), "pepper").unwrap_err().to_string().contains("32 bytes"));
    }
}
