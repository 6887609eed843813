//! SQLite: a file, one connection that writes, several that read.

mod folding;
mod readers;
mod session;

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(crate) use readers::Readers;
pub(crate) use session::Session;

use folding::Folding;

use crate::{Result, StoreConfig, StoreError};

/// Opens the file, which is made when it is absent.
pub(super) async fn open(config: &StoreConfig) -> Result<(Readers, Session)> {
    let (path, durability) = (config.path.clone(), config.durability);
    let opened = tokio::task::spawn_blocking(move || {
        own_file(&path)?;
        Session::writer(&path, durability)
    });
    let session = opened.await.map_err(|error| StoreError::Unavailable { source: Box::new(error) })??;
    Ok((Readers::new(config.path.clone(), config.connections), session))
}

/// Nobody else may read the file. SQLite gives its log and its shared memory the same mode.
fn own_file(path: &Path) -> Result<()> {
    match create_private(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created.map_err(StoreError::file("create", path)),
    }
    let mode = fs::metadata(path).map_err(StoreError::file("read", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(StoreError::file("protect", path))?;
    }
    Ok(())
}

fn create_private(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}
