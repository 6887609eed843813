//! The counters of a jail, as this process can read them by itself.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_jail::cgroup::{Counters, Extent, Gauges, Meter};
use tokio::runtime::Handle;

/// Where the counters of one jail are, with a descriptor of its scratch file system. To hold it keeps that file system, and
/// nothing else of the jail.
#[derive(Debug)]
pub(crate) struct JailMeter {
    groups: Meter,
    /// The files, where they were opened ahead.
    opened: Option<Gauges>,
    scratch: Scratch,
    /// Where the files go when nobody needs them any more.
    shelf: GaugeShelf,
}

/// A descriptor of a scratch file system. The process that closes the last one unmounts that, and where it is on disk, waits
/// for the disk.
#[derive(Debug)]
struct Scratch(Option<OwnedFd>);

impl Drop for Scratch {
    fn drop(&mut self) {
        let on_disk = self.0.take_if(|scratch| !is_memory(scratch));
        if let Some((on_disk, runtime)) = on_disk.zip(Handle::try_current().ok()) {
            runtime.spawn_blocking(move || drop(on_disk));
        }
    }
}

fn is_memory(scratch: &OwnedFd) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    let found = rustix::fs::fstatfs(scratch).map(|found| u32::try_from(found.f_type));
    found.is_ok_and(|kind| kind == Ok(TMPFS))
}

/// Most groups whose files are kept for the next jail that has them.
const MOST: usize = 64;

/// Opened files of groups that one jail has after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct GaugeShelf(Arc<Mutex<HashMap<[PathBuf; 3], Gauges>>>);

impl GaugeShelf {
    fn take(&self, groups: &Meter) -> Gauges {
        let found = groups.lasting().and_then(|groups| self.files().remove(&groups));
        found.unwrap_or_default()
    }

    fn put(&self, groups: &Meter, files: Gauges) {
        let Some(groups) = groups.lasting() else { return };
        let mut kept = self.files();
        if kept.len() >= MOST {
            // Groups that are gone never come again; those that are not cost a few calls.
            kept.clear();
        }
        kept.insert(groups, files);
    }

    fn files(&self) -> MutexGuard<'_, HashMap<[PathBuf; 3], Gauges>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JailMeter {
    fn drop(&mut self) {
        if let Some(files) = self.opened.take() {
            self.shelf.put(&self.groups, files);
        }
    }
}

impl JailMeter {
    /// Takes what the launcher gave with a jail: the last of the descriptors is the scratch file system's.
    pub(crate) fn take(
        groups: Option<Meter>,
        descriptors: &mut Vec<OwnedFd>,
        shelf: &GaugeShelf,
    ) -> Option<Self> {
        let groups = groups?;
        let scratch = Scratch(Some(descriptors.pop()?));
        Some(Self { groups, opened: None, scratch, shelf: shelf.clone() })
    }

    /// Opens what tells how a program ended, before there is one that anybody waits for.
    pub(crate) fn open(&mut self) {
        self.opened = Some(self.groups.open(self.shelf.take(&self.groups)));
    }

    /// Lets go of it.
    pub(crate) fn close(&mut self) {
        self.opened = None;
    }

    /// Bytes in its scratch file system.
    pub(crate) fn disk_used(&self) -> Option<u64> {
        let disk = rustix::fs::fstatfs(self.scratch.0.as_ref()?).ok()?;
        Some(disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(u64::try_from(disk.f_bsize).ok()?))
    }

    /// `None`: the launcher has to be asked.
    pub(crate) fn read(&self, extent: Extent) -> Option<Counters> {
        let scratch = self.scratch.0.as_ref()?.as_fd();
        match &self.opened {
            Some(opened) => self.groups.read(opened, scratch, extent),
            None => self.groups.read(&Gauges::default(), scratch, extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A jail that has these groups.
    fn meter(root: &std::path::Path, jail: &str, shelf: &GaugeShelf) -> JailMeter {
        fs::write(root.join(jail), "populated 1\n").unwrap();
        let home = serde_json::json!({ "dir": root, "on_v1": true });
        let groups = serde_json::json!({
            "own": root.join(jail),
            "memory": home,
            "processes": home,
            "cpu_time": home,
            "used_before": { "secs": 0, "nanos": 0 },
        });
        let scratch = fs::File::open(root).unwrap().into();
        JailMeter::take(Some(serde_json::from_value(groups).unwrap()), &mut vec![scratch], shelf).unwrap()
    }

    /// The end of a pipe in the place of a file system: what is no memory is closed by a thread that may wait.
    #[test]
    fn who_lets_go_of_a_space_does_not_wait_for_its_disk() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
        let is_closed = || rustix::io::read(&reader, &mut [0; 1]) == Ok(0);
        let (go, busy) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let other = tokio::task::spawn_blocking(move || busy.recv());
            drop(Scratch(Some(writer)));
            assert!(!is_closed(), "the thread that may wait has something else to do");
            go.send(()).unwrap();
            other.await.unwrap().unwrap();
            // It is done in turn.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(is_closed());
        });
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(Scratch(Some(writer)));
        assert_eq!(
            rustix::io::read(&reader, &mut [0; 1]),
            Ok(0),
            "without such a thread it is closed at once"
        );
    }

    #[test]
    fn the_next_jail_of_some_groups_has_their_files_but_not_the_last_ones_own() {
        let (root, shelf) = (tempfile::tempdir().unwrap(), GaugeShelf::default());
        let files = [
            ("memory.oom_control", "oom_kill 0\n"),
            ("memory.max_usage_in_bytes", "4096\n"),
            ("pids.events", "max 0\n"),
            ("cpuacct.usage", "7\n"),
        ];
        files.iter().for_each(|(name, text)| fs::write(root.path().join(name), text).unwrap());
        let mut first = meter(root.path(), "first", &shelf);
        first.open();
        assert_eq!(first.read(Extent::Verdict).unwrap().peak_memory_bytes, Some(4096));
        drop(first);
        // Whoever looked for them now would not find them.
        files.iter().for_each(|(name, _)| fs::remove_file(root.path().join(name)).unwrap());
        let mut second = meter(root.path(), "second", &shelf);
        assert_eq!(second.read(Extent::Verdict), None);
        second.open();
        assert_eq!(second.read(Extent::Verdict).unwrap().peak_memory_bytes, Some(4096));
        drop(second);
        let mut third = meter(root.path(), "third", &shelf);
        fs::remove_file(root.path().join("third")).unwrap();
        third.open();
        assert_eq!(third.read(Extent::Verdict), None, "it is gone");
    }
}
