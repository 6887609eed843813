//! Watching a directory, by inotify inside the sandbox.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use crate::files::{about, answer};
use crate::protocol::{Change, ChangeKind, FileError};

/// More directories than this are not watched; the watcher says so by an overflow.
const MOST: usize = 4096;

/// Reports changes until this process is ended or its reader is gone.
pub(crate) fn watch(path: &Path, recursive: bool) -> Result<(), FileError> {
    let mut watcher = Watcher {
        inotify: inotify::init(CreateFlags::CLOEXEC).map_err(about(path))?,
        top: path.to_owned(),
        recursive,
        directories: HashMap::new(),
    };
    watcher.add(path).map_err(about(path))?;
    answer(&Change { kind: ChangeKind::Watching, name: ByteBuf::new() })?;
    loop {
        for change in watcher.read().map_err(about(path))? {
            answer(&change)?;
        }
    }
}

struct Watcher {
    inotify: OwnedFd,
    top: PathBuf,
    recursive: bool,
    directories: HashMap<i32, PathBuf>,
}

impl Watcher {
    fn add(&mut self, dir: &Path) -> Result<(), Errno> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        let mut waiting = vec![dir.to_owned()];
        while let Some(dir) = waiting.pop() {
            if self.directories.len() >= MOST {
                return Err(Errno::NOSPC);
            }
            let id = inotify::add_watch(&self.inotify, &dir, flags)?;
            if self.recursive
                && let Ok(entries) = std::fs::read_dir(&dir)
            {
                let below = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
                waiting.extend(below.map(|e| e.path()));
            }
            self.directories.insert(id, dir);
        }
        Ok(())
    }

    /// Waits for changes and names them relative to the watched directory.
    fn read(&mut self) -> Result<Vec<Change>, Errno> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut changes = Vec::new();
        let mut born = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e),
            };
            let flags = event.events();
            let name = event
                .file_name()
                .map_or_else(PathBuf::new, |n| PathBuf::from(std::ffi::OsStr::from_bytes(n.to_bytes())));
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Change { kind: ChangeKind::Overflow, name: ByteBuf::new() });
            } else if let (Some(dir), Some(kind)) = (self.directories.get(&event.wd()), kind(flags)) {
                let path = dir.join(name);
                let relative = path.strip_prefix(&self.top).unwrap_or(&path);
                changes.push(Change { kind, name: ByteBuf::from(relative.as_os_str().as_bytes()) });
                if flags.contains(ReadFlags::ISDIR)
                    && matches!(kind, ChangeKind::Created | ChangeKind::RenamedTo)
                    && self.recursive
                {
                    born.push(path);
                }
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
        for dir in born {
            // A directory that is gone again needs no watch; any other failure means that changes may be missed.
            match self.add(&dir) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => changes.push(Change { kind: ChangeKind::Overflow, name: ByteBuf::new() }),
            }
        }
        Ok(changes)
    }
}

fn kind(flags: ReadFlags) -> Option<ChangeKind> {
    [
        (ReadFlags::CREATE, ChangeKind::Created),
        (ReadFlags::MODIFY, ChangeKind::Modified),
        (ReadFlags::DELETE, ChangeKind::Removed),
        (ReadFlags::MOVED_FROM, ChangeKind::RenamedFrom),
        (ReadFlags::MOVED_TO, ChangeKind::RenamedTo),
        (ReadFlags::ATTRIB, ChangeKind::Attributes),
    ]
    .into_iter()
    .find(|(flag, _)| flags.contains(*flag))
    .map(|(_, kind)| kind)
}
