//! This machine's side of a copy.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use futures_util::StreamExt;
use sandstorm_agent::archive::{Bounds, pack, unpack};

use super::{Content, Load, Pieces, received, told};
use crate::complaint::misuse;
use crate::pipe;

const PIECE: usize = 256 * 1024;

/// A file or folder of this machine, read by a thread of its own.
pub(super) fn open(path: &Path) -> anyhow::Result<Load> {
    let found =
        std::fs::metadata(path).map_err(|e| misuse(format!("could not read {}: {e}", path.display())))?;
    let source = File::open(path).map_err(|e| misuse(format!("could not read {}: {e}", path.display())))?;
    let (mut writer, receiver) = pipe::from_thread();
    if found.is_dir() {
        std::thread::spawn(move || {
            if let Err(error) = pack(source.as_fd(), &[], &mut writer) {
                writer.fail(io::Error::other(error));
            }
        });
        return Ok(Load { name: name(path), content: Content::Folder(received(receiver)) });
    }
    if !found.is_file() {
        return Err(misuse(format!("{} is neither a file nor a folder", path.display())));
    }
    std::thread::spawn(move || {
        if let Err(error) = read_all(source, &mut writer) {
            writer.fail(error);
        }
    });
    let mode = Some(found.permissions().mode() & 0o777);
    Ok(Load { name: name(path), content: Content::File { pieces: received(receiver), mode } })
}

/// The last part of a path, also of `.` and of those that end in `/..`.
fn name(path: &Path) -> Option<String> {
    let whole = path.file_name().map(ToOwned::to_owned);
    let name = whole.or_else(|| path.canonicalize().ok()?.file_name().map(ToOwned::to_owned));
    name.and_then(|name| name.into_string().ok())
}

fn read_all(mut source: File, writer: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(()),
            n => writer.write_all(&buffer[..n])?,
        }
    }
}

/// Writes below `target`, and says where.
pub(super) async fn write(load: Load, target: &Path) -> anyhow::Result<String> {
    let target = match (&load.name, target.is_dir()) {
        (Some(name), true) => target.join(name),
        (None, true) => return Err(misuse(format!("{} is a folder: name the file in it", target.display()))),
        (_, false) => target.to_owned(),
    };
    match load.content {
        Content::File { pieces, mode } => write_file(pieces, &target, mode).await?,
        Content::Folder(archive) => unpack_into(archive, &target).await?,
    }
    Ok(target.display().to_string())
}

/// Whole or not at all, where the target is an ordinary file.
async fn write_file(mut pieces: Pieces, target: &Path, mode: Option<u32>) -> anyhow::Result<()> {
    let failed = || format!("could not write {}", target.display());
    // A pipe or a device is written to, not replaced; so is what a link leads to.
    let special = std::fs::symlink_metadata(target).is_ok_and(|found| !found.is_file());
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    let part = if special { None } else { Some(Part(beside(target))) };
    let mut file = match &part {
        Some(part) => options.create_new(true).open(&part.0),
        None => options.open(target),
    }
    .with_context(failed)?;
    while let Some(piece) = pieces.next().await {
        file.write_all(&piece.map_err(told)?).with_context(failed)?;
    }
    if let Some(part) = part {
        let wanted = mode.unwrap_or(0o666) & !umask() & 0o777;
        file.set_permissions(Permissions::from_mode(wanted)).with_context(failed)?;
        std::fs::rename(&part.0, target).with_context(failed)?;
    }
    Ok(())
}

/// A file that is not whole yet; gone unless it got its name.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // After the rename there is nothing of this name.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    target.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

fn umask() -> u32 {
    // The only way to read it is to set it; no other thread makes files meanwhile.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

/// Unpacks an archive that hostile code may have made: it can only make files below `target`.
async fn unpack_into(mut archive: Pieces, target: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(target).with_context(|| format!("could not make {}", target.display()))?;
    let folder = File::open(target).with_context(|| format!("could not open {}", target.display()))?;
    let (sender, reader) = pipe::to_thread();
    let unpacking = tokio::task::spawn_blocking(move || unpack(reader, folder.as_fd(), Bounds::SANDBOX));
    let mut broken = None;
    while let Some(piece) = archive.next().await {
        match piece {
            // An unpacker that stopped early has its own error to tell.
            Ok(piece) => {
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                broken = Some(told(error));
                break;
            }
        }
    }
    drop(sender);
    let unpacked = unpacking.await.context("unpacking broke off")?;
    match broken {
        Some(error) => Err(error),
        None => unpacked.map(drop).with_context(|| format!("could not unpack into {}", target.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(bytes: &'static [u8], fails: bool) -> Load {
        let mut pieces = vec![Ok(bytes::Bytes::from_static(bytes))];
        if fails {
            pieces.push(Err(io::Error::other("cut off")));
        }
        let pieces = futures_util::stream::iter(pieces).boxed();
        Load { name: Some("name".to_owned()), content: Content::File { pieces, mode: Some(0o755) } }
    }

    #[tokio::test]
    async fn a_file_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        write(load(b"content", false), folder.path()).await.unwrap();
        assert_eq!(std::fs::read(folder.path().join("name")).unwrap(), b"content");
        write(load(b"half", true), folder.path()).await.unwrap_err();
        assert_eq!(std::fs::read(folder.path().join("name")).unwrap(), b"content");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[tokio::test]
    async fn what_is_no_ordinary_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write(load(b"new", false), &link).await.unwrap();
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert!(link.is_symlink());
    }

    #[tokio::test]
    async fn a_folder_goes_through_an_archive_and_an_evil_one_does_not() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("deep")).unwrap();
        std::fs::write(from.path().join("deep/file"), "x").unwrap();
        let target = to.path().join("copy");
        write(open(from.path()).unwrap(), &target).await.unwrap();
        assert_eq!(std::fs::read(target.join("deep/file")).unwrap(), b"x");

        let mut header = [0_u8; 512];
        header[..9].copy_from_slice(b"../escape");
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(b"00000000000");
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let evil = bytes::Bytes::from([header.as_slice(), &[0; 1024]].concat());
        let archive = futures_util::stream::iter([Ok(evil)]).boxed();
        let load = Load { name: None, content: Content::Folder(archive) };
        let inner = to.path().join("inner");
        let refused = format!("{:#}", write(load, &inner).await.unwrap_err());
        assert!(refused.contains("escape"), "{refused}");
        assert!(!to.path().join("escape").exists());
    }
}
