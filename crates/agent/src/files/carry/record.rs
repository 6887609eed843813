//! The records of a copy.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

/// Longest path and longest target of a link.
pub(super) const LONGEST: usize = 4095;
/// Largest piece of a file.
const PIECE: usize = crate::protocol::CHUNK;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    End = 0,
    Directory = 1,
    File = 2,
    Symlink = 3,
    /// Another name of what came before; followed by that one.
    Link = 4,
    Fifo = 5,
    /// Something that is kept with the next file: its name and its text follow.
    Metadata = 6,
}

/// What is the same for every kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
}

impl Head {
    pub(super) const END: Self = Self { kind: Kind::End, mode: 0, seconds: 0, nanoseconds: 0 };

    pub(super) fn of(kind: Kind, stat: &Stat) -> Self {
        #[allow(clippy::useless_conversion, reason = "these have other types on other machines")]
        let (seconds, nanoseconds) = (stat.st_mtime.into(), stat.st_mtime_nsec.try_into().unwrap_or(0));
        Self { kind, mode: stat.st_mode & 0o7777, seconds, nanoseconds }
    }

    pub(super) fn write(self, output: &mut impl Write, path: &Path) -> io::Result<()> {
        output.write_all(&[self.kind as u8])?;
        output.write_all(&self.mode.to_le_bytes())?;
        output.write_all(&self.seconds.to_le_bytes())?;
        output.write_all(&self.nanoseconds.to_le_bytes())?;
        bytes(output, path.as_os_str().as_bytes())
    }

    pub(super) fn read(input: &mut impl Read) -> io::Result<(Self, PathBuf)> {
        let mut fixed = [0; 17];
        input.read_exact(&mut fixed)?;
        let (kind, rest) = (fixed[0], &fixed[1..]);
        let kind = match kind {
            0 => Kind::End,
            1 => Kind::Directory,
            2 => Kind::File,
            3 => Kind::Symlink,
            4 => Kind::Link,
            5 => Kind::Fifo,
            6 => Kind::Metadata,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let mode = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) & 0o7777;
        let seconds =
            i64::from_le_bytes([rest[4], rest[5], rest[6], rest[7], rest[8], rest[9], rest[10], rest[11]]);
        let nanoseconds = u32::from_le_bytes([rest[12], rest[13], rest[14], rest[15]]);
        let path = read_bytes(input)?;
        Ok((Self { kind, mode, seconds, nanoseconds }, PathBuf::from(OsStr::from_bytes(&path))))
    }
}

/// Bytes behind their length.
pub(super) fn bytes(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    output.write_all(&(bytes.len() as u32).to_le_bytes())?;
    output.write_all(bytes)
}

pub(super) fn read_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    read_up_to(input, LONGEST)
}

fn read_up_to(input: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A piece of a file and its place; an empty one is the last, at the size of the file.
pub(super) fn piece(output: &mut impl Write, at: u64, content: &[u8]) -> io::Result<()> {
    output.write_all(&at.to_le_bytes())?;
    bytes(output, content)
}

pub(super) fn read_piece(input: &mut impl Read) -> io::Result<(u64, Vec<u8>)> {
    let mut at = [0; 8];
    input.read_exact(&mut at)?;
    Ok((u64::from_le_bytes(at), read_up_to(input, PIECE)?))
}
