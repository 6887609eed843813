//! Writable space on the host's disk: a file without a name, a file system in it, and a mount of that.
//!
//! The file has no name, the loop device lets go of it when nothing of it is mounted, and the mount goes with the last
//! process that has it: however anybody dies, nothing is left. What is in it is read by nobody afterwards, so nothing of it
//! has to survive a crash: there is no journal, and the kernel orders no writes.

mod size;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use sandstorm_sys::disk;

use crate::mounts::file_system;
use size::Size;

/// Where devices come from.
const CONTROL: &str = "/dev/loop-control";

/// Others may take the device that was free a moment ago.
const ATTEMPTS: u32 = 64;

/// What the file system can do, whatever the host's configuration of `mke2fs` says: nothing that keeps a second copy, reads
/// sums of everything, or lets a program encrypt or seal files.
const FEATURES: &str = "none,extent,flex_bg,sparse_super,filetype,dir_index,large_file,huge_file,dir_nlink,extra_isize,\
                        uninit_bg,ext_attr,64bit";

/// File systems that are memory themselves.
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Why this host has no space on disk to give. `None`: nothing is in the way that can be seen before it is tried.
pub(crate) fn obstacle(folder: &Path, may_mount: bool) -> Option<String> {
    if !may_mount {
        return Some("only root can mount it; run sandstorm as root".to_owned());
    }
    if maker().is_none() {
        return Some("mke2fs is missing: install e2fsprogs".to_owned());
    }
    if !Path::new(CONTROL).exists() {
        return Some(format!("{CONTROL} is missing: this machine has no loop devices"));
    }
    match rustix::fs::statfs(folder) {
        Ok(found) if is_memory(&found) => Some(in_memory(folder)),
        Ok(_) => None,
        Err(e) => Some(format!("{}: {e}", folder.display())),
    }
}

/// Makes a file system that holds so much and so many files, and mounts it nowhere yet. Its root is this process's user's.
/// The error says in words what is in the way.
pub(crate) fn make(folder: &Path, bytes: u64, inodes: u64, name: &str) -> Result<OwnedFd, String> {
    let size = Size::of(bytes, inodes);
    let file = nameless(folder)?;
    rustix::fs::ftruncate(&file, size.bytes()).map_err(failed("the image could not be made"))?;
    format(&file, &size)?;
    let (device, path) = attach(&file, name)?;
    let options = [
        ("source", path.as_str()),
        // Nothing of it is read after a crash.
        ("nobarrier", ""),
        // What was never written reads as nothing already.
        ("noinit_itable", ""),
        ("errors", "continue"),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = file_system("ext4", &options, attributes).map_err(|e| match e {
        Errno::NODEV => "this kernel has no ext4".to_owned(),
        e => format!("the image could not be mounted: {e}"),
    });
    // From now on the mount keeps the device, and the device the file.
    drop(device);
    mount
}

/// Lets go of what was written and is on no disk yet. Everything that had the file system open is gone.
pub(crate) fn forget(mount: &OwnedFd) {
    // The root itself, which is ours: nothing below it is looked at.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::openat(mount, ".", flags, Mode::empty()) {
        // Where it cannot be done, whoever lets go of it last waits for the disk.
        let _ = disk::shut_down(root.as_fd());
    }
}

/// A file that nobody finds and nobody can give a name.
fn nameless(folder: &Path) -> Result<File, String> {
    let place = |e: Errno| format!("{}: {e}", folder.display());
    if is_memory(&rustix::fs::statfs(folder).map_err(place)?) {
        return Err(in_memory(folder));
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(file.into()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            Err(format!("the file system of {} has no files without a name", folder.display()))
        }
        Err(e) => Err(place(e)),
    }
}

fn is_memory(found: &rustix::fs::StatFs) -> bool {
    u32::try_from(found.f_type).is_ok_and(|kind| MEMORY.contains(&kind))
}

fn in_memory(folder: &Path) -> String {
    format!("{} is in memory, not on a disk", folder.display())
}

fn maker() -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join("mke2fs"))
        .find(|path| path.exists())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the launcher's helper has the image formatted, before any sandbox has it"
)]
fn format(file: &File, size: &Size) -> Result<(), String> {
    let maker = maker().ok_or("mke2fs is missing: install e2fsprogs")?;
    let input = file.try_clone().map_err(failed("the image could not be made"))?;
    let mut command = Command::new(maker);
    command
        .env_clear()
        // The host's own may ask for things that do not fit.
        .env("MKE2FS_CONFIG", "/dev/null")
        .args(["-F", "-q", "-o", "Linux", "-O", FEATURES, "-e", "continue", "-m", "0"])
        .args(["-b", &Size::BLOCK.to_string(), "-I", &Size::INODE.to_string()])
        .args(["-g", &size.group.to_string(), "-N", &size.inodes.to_string()])
        .args(["-E", "lazy_itable_init=1,nodiscard"])
        .arg("/proc/self/fd/0")
        .stdin(Stdio::from(input));
    let output = command.output().map_err(failed("mke2fs could not be started"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // It begins with its version.
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it was killed");
    Err(format!("mke2fs failed: {last}"))
}

/// The image as a disk, and where that is.
fn attach(file: &File, name: &str) -> Result<(File, String), String> {
    let control = File::options().read(true).write(true).open(CONTROL).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => format!("{CONTROL} is missing: this machine has no loop devices"),
        _ => format!("{CONTROL}: {e}"),
    })?;
    let mut last = io::Error::from(Errno::BUSY);
    for _ in 0..ATTEMPTS {
        let number = disk::free_loop(control.as_fd()).map_err(failed("no loop device is free"))?;
        let path = format!("/dev/loop{number}");
        let device =
            File::options().read(true).write(true).open(&path).map_err(|e| format!("{path}: {e}"))?;
        match disk::attach_loop(device.as_fd(), file.as_fd(), name) {
            Ok(()) => return Ok((device, path)),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => last = e,
            Err(e) => return Err(format!("{path}: {e}")),
        }
    }
    Err(format!("no loop device could be had: {last}"))
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> String {
    move |e| format!("{what}: {e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_said() {
        let why = |folder: &str, may_mount| obstacle(Path::new(folder), may_mount);
        assert!(why("/var/tmp", false).unwrap().contains("root"));
        if maker().is_some() && Path::new(CONTROL).exists() {
            assert!(why("/no/such/folder", true).unwrap().contains("/no/such/folder"));
            assert!(why("/dev/shm", true).unwrap().contains("in memory"));
        }
        assert!(nameless(Path::new("/dev/shm")).unwrap_err().contains("in memory"));
    }

    /// With the real program: what it makes of these numbers is its own matter.
    #[test]
    fn what_was_asked_for_fits() {
        let folder = tempfile::tempdir().unwrap();
        let Some(why) = obstacle(folder.path(), rustix::process::geteuid().is_root()) else {
            for (bytes, inodes) in [
                (1 << 20, 16),
                (1 << 20, 100_000),
                (16 << 20, 1000),
                (300 << 20, 65_536),
                (512 << 20, 1_000_000),
                (10 << 30, 1),
                (100 << 30, 10_000_000),
            ] {
                let mount = make(folder.path(), bytes, inodes, "sandstorm-test").unwrap();
                let found = rustix::fs::fstatfs(&mount).unwrap();
                let (room, files) = (found.f_bavail * 4096, found.f_ffree);
                assert!(room >= bytes && room <= bytes + bytes / 20 + (4 << 20), "{bytes}: {room}");
                assert!(files >= inodes && files <= inodes + inodes / 20 + 20_000, "{inodes}: {files}");
                assert!(
                    found.f_blocks * 4096 <= bytes + bytes / 20 + (24 << 20),
                    "{bytes}: {}",
                    found.f_blocks
                );
            }
            return;
        };
        eprintln!("skipped: {why}");
    }
}
