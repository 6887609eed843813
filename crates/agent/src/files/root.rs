//! Whether uid 0 of a sandbox can do a file operation itself.
//!
//! It has no capabilities, so what the payload's user owns is closed to it like to anybody else. There the user does it
//! instead, who may do everything that there is to do. This is asked before anything is opened, and only looks.

use std::path::Path;

use rustix::fs::{Access, Stat};
use rustix::io::Errno;

use super::as_path;
use crate::protocol::FileTask;

/// Whether the task is uid 0's to do. Where the namespace has a single id, that is everybody's.
pub(crate) fn works_as_root(task: &FileTask) -> bool {
    let FileTask::AsRoot(task) = task else { return false };
    rustix::process::getuid().is_root() && can(task)
}

fn can(task: &FileTask) -> bool {
    match task {
        FileTask::Read { path, .. } => allows(as_path(path), Access::READ_OK),
        FileTask::Stat { path } => reaches(as_path(path)),
        FileTask::List { path, .. }
        | FileTask::Search { path, .. }
        | FileTask::Watch { path, .. }
        | FileTask::Pack { path, .. } => allows(as_path(path), Access::READ_OK | Access::EXEC_OK),
        FileTask::Write { path, .. }
        | FileTask::Put { path, .. }
        | FileTask::MakeDirectory { path, .. }
        | FileTask::Remove { path, .. }
        | FileTask::Unpack { path } => can_make(as_path(path)),
        FileTask::Move { from, to } => can_make(as_path(from)) && can_make(as_path(to)),
        FileTask::SetMode { path, .. } => {
            rustix::fs::stat(as_path(path)).is_ok_and(|found| found.st_uid == 0)
        }
        FileTask::Describe(task) | FileTask::AsRoot(task) => can(task),
        FileTask::Export { .. } | FileTask::Import => false,
    }
}

fn allows(path: &Path, access: Access) -> bool {
    rustix::fs::access(path, access).is_ok()
}

/// Whether it gets to the name; that there is none is an answer too.
fn reaches(path: &Path) -> bool {
    matches!(rustix::fs::lstat(path), Ok(_) | Err(Errno::NOENT | Errno::NOTDIR))
}

/// Whether a name may come or go where it would: in the directory that is there, however far above.
fn can_make(path: &Path) -> bool {
    let mut name = path;
    while let Some(above) = name.parent() {
        match rustix::fs::stat(above) {
            Ok(folder) => {
                return allows(above, Access::WRITE_OK | Access::EXEC_OK) && !is_stuck(name, &folder);
            }
            Err(Errno::NOENT) => name = above,
            Err(_) => return false,
        }
    }
    false
}

/// In a directory with the sticky bit only the owner of a name, or of the directory, takes it away.
fn is_stuck(name: &Path, folder: &Stat) -> bool {
    const STICKY: u32 = 0o1000;
    folder.st_mode & STICKY != 0
        && folder.st_uid != 0
        && rustix::fs::lstat(name).is_ok_and(|found| found.st_uid != 0)
}
