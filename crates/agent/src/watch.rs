//! Watching a directory, by inotify inside the sandbox.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use crate::files::{Ours, about, answer};
use crate::protocol::{Change, ChangeKind, FileError};

/// More directories than this are not watched; the watcher says so by an overflow.
const MOST: usize = 4096;

/// How long the second half of a rename may be behind the first one.
const HALF: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

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

/// What the kernel told.
struct Seen {
    directory: i32,
    flags: ReadFlags,
    /// The same number in both halves of a rename.
    cookie: u32,
    name: PathBuf,
}

/// The first half of a rename.
enum Half {
    /// Of something of the caller's.
    Theirs(PathBuf),
    Ours(Ours),
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

    /// Watches a directory that came after the watch began. What is in it came before anything was heard of it, so it is told
    /// now. What comes at this moment may be told twice.
    fn add_born(&mut self, dir: &Path, changes: &mut Vec<Change>) -> Result<(), Errno> {
        self.add(dir)?;
        let mut waiting = vec![dir.to_owned()];
        while let Some(dir) = waiting.pop() {
            let Ok(entries) = std::fs::read_dir(&dir) else { continue };
            for entry in entries.flatten() {
                if changes.len() >= MOST {
                    return Err(Errno::NOSPC);
                }
                if Ours::of(entry.file_name().as_bytes()).is_some() {
                    continue;
                }
                let path = entry.path();
                changes.push(self.change(ChangeKind::Created, &path));
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => waiting.push(path),
                    Ok(kind) if kind.is_file() => changes.push(self.change(ChangeKind::Modified, &path)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn change(&self, kind: ChangeKind, path: &Path) -> Change {
        let relative = path.strip_prefix(&self.top).unwrap_or(path);
        Change { kind, name: ByteBuf::from(relative.as_os_str().as_bytes()) }
    }

    /// Waits for changes and names them relative to the watched directory. Both halves of a rename come one after the other.
    /// Names of ours are told of as what they were for.
    fn read(&mut self) -> Result<Vec<Change>, Errno> {
        let mut seen = self.look()?;
        if seen.last().is_some_and(|last| last.flags.contains(ReadFlags::MOVED_FROM))
            && event::poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&HALF)) == Ok(1)
        {
            seen.extend(self.look()?);
        }
        let mut changes = Vec::new();
        let (mut born, mut halves) = (Vec::new(), Vec::new());
        for Seen { directory, flags, cookie, name } in seen {
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Change { kind: ChangeKind::Overflow, name: ByteBuf::new() });
                continue;
            }
            let (Some(dir), Some(kind)) = (self.directories.get(&directory), kind(flags)) else { continue };
            let (path, ours) = (dir.join(&name), Ours::of(name.as_os_str().as_bytes()));
            let half = match kind {
                ChangeKind::RenamedTo => {
                    let at = halves.iter().position(|(other, _)| *other == cookie);
                    at.map(|at| halves.swap_remove(at).1)
                }
                _ => None,
            };
            let is_known = matches!(half, Some(Half::Theirs(_)));
            match (kind, ours, half) {
                (ChangeKind::RenamedFrom, ours, _) => {
                    halves.push((cookie, ours.map_or_else(|| Half::Theirs(path), Half::Ours)));
                    continue;
                }
                // It is on its way out.
                (ChangeKind::RenamedTo, Some(_), Some(Half::Theirs(from))) => {
                    changes.push(self.change(ChangeKind::Removed, &from));
                    continue;
                }
                (_, Some(_), _) => continue,
                // As if it had been written where it is.
                (_, None, Some(Half::Ours(Ours::New))) => {
                    let told = [ChangeKind::Created, ChangeKind::Attributes, ChangeKind::Modified];
                    changes.extend(told.map(|kind| self.change(kind, &path)));
                    continue;
                }
                (_, None, Some(Half::Ours(_))) => {
                    changes.push(self.change(ChangeKind::Modified, &path));
                    continue;
                }
                (_, None, Some(Half::Theirs(from))) => {
                    changes.push(self.change(ChangeKind::RenamedFrom, &from));
                    changes.push(self.change(kind, &path));
                }
                (_, None, None) if is_of_no_name(&name, kind, &path) => continue,
                (_, None, None) => changes.push(self.change(kind, &path)),
            }
            let came = matches!(kind, ChangeKind::Created | ChangeKind::RenamedTo);
            if came && self.recursive && flags.contains(ReadFlags::ISDIR) {
                born.push((path, is_known));
            }
        }
        // What went to a place that is not watched is gone.
        for (_, half) in halves {
            if let Half::Theirs(from) = half {
                changes.push(self.change(ChangeKind::Removed, &from));
            }
        }
        for (dir, is_known) in born {
            let added = if is_known { self.add(&dir) } else { self.add_born(&dir, &mut changes) };
            // A directory that is gone again needs no watch; any other failure means that changes may be missed.
            match added {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => changes.push(Change { kind: ChangeKind::Overflow, name: ByteBuf::new() }),
            }
        }
        Ok(changes)
    }

    /// What the kernel has to tell, at least one thing.
    fn look(&self) -> Result<Vec<Seen>, Errno> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut seen = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e),
            };
            let name = event.file_name().map_or(&[][..], |name| name.to_bytes());
            seen.push(Seen {
                directory: event.wd(),
                flags: event.events(),
                cookie: event.cookie(),
                name: PathBuf::from(std::ffi::OsStr::from_bytes(name)),
            });
            if reader.is_buffer_empty() {
                return Ok(seen);
            }
        }
    }
}

/// Whether it is told of a file that has no name yet: the kernel calls it `#` and a number, and there is none at that path.
fn is_of_no_name(name: &Path, kind: ChangeKind, path: &Path) -> bool {
    let number = name.as_os_str().as_bytes().strip_prefix(b"#").unwrap_or_default();
    matches!(kind, ChangeKind::Modified | ChangeKind::Attributes)
        && !number.is_empty()
        && number.iter().all(u8::is_ascii_digit)
        && rustix::fs::lstat(path).is_err()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn watcher(top: &Path) -> Watcher {
        let inotify = inotify::init(CreateFlags::CLOEXEC).unwrap();
        let mut watcher =
            Watcher { inotify, top: top.to_owned(), recursive: true, directories: HashMap::new() };
        watcher.add(top).unwrap();
        watcher
    }

    fn read(watcher: &mut Watcher) -> Vec<(ChangeKind, String)> {
        let changes = watcher.read().unwrap();
        changes.into_iter().map(|c| (c.kind, String::from_utf8(c.name.into_vec()).unwrap())).collect()
    }

    #[test]
    fn our_names_are_told_as_what_they_are_for() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        fs::create_dir(top.join("deep")).unwrap();
        fs::write(top.join("deep/gone"), "").unwrap();
        let mut watcher = watcher(top);
        let at = |name: &str| (top.join(Ours::New.name()), top.join(name));
        let (ours, name) = at("a");
        fs::write(&ours, "x").unwrap();
        fs::rename(&ours, &name).unwrap();
        let whole = [ChangeKind::Created, ChangeKind::Attributes, ChangeKind::Modified];
        assert_eq!(read(&mut watcher), whole.map(|kind| (kind, "a".to_owned())));
        let ours = top.join(Ours::Replacing.name());
        fs::write(&ours, "y").unwrap();
        fs::rename(&ours, &name).unwrap();
        assert_eq!(read(&mut watcher), [(ChangeKind::Modified, "a".to_owned())]);
        let ours = top.join(Ours::Removed(1).name());
        fs::rename(top.join("deep/gone"), &ours).unwrap();
        fs::remove_file(&ours).unwrap();
        assert_eq!(read(&mut watcher), [(ChangeKind::Removed, "deep/gone".to_owned())]);
    }

    #[test]
    fn renames_stay_together_and_one_that_leaves_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir_in(folder.path()).unwrap();
        let top = folder.path().join("top");
        fs::create_dir(&top).unwrap();
        fs::write(top.join("a"), "").unwrap();
        fs::write(top.join("b"), "").unwrap();
        let mut watcher = watcher(&top);
        fs::rename(top.join("a"), other.path().join("a")).unwrap();
        fs::rename(top.join("b"), top.join("c")).unwrap();
        let told = read(&mut watcher);
        let wanted =
            [(ChangeKind::RenamedFrom, "b"), (ChangeKind::RenamedTo, "c"), (ChangeKind::Removed, "a")];
        assert_eq!(told, wanted.map(|(kind, name)| (kind, name.to_owned())));
    }

    #[test]
    fn what_is_in_a_directory_that_came_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let made = tempfile::tempdir().unwrap();
        fs::create_dir(made.path().join("new")).unwrap();
        fs::write(made.path().join("new/file"), "x").unwrap();
        let mut watcher = watcher(folder.path());
        fs::rename(made.path().join("new"), folder.path().join("new")).unwrap();
        let told = read(&mut watcher);
        assert!(told.contains(&(ChangeKind::RenamedTo, "new".to_owned())), "{told:?}");
        assert!(told.contains(&(ChangeKind::Modified, "new/file".to_owned())), "{told:?}");
    }
}
