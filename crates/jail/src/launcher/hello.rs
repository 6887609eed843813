//! The first words between a resident launcher and whoever connects. Their encoding never changes, so that any two
//! versions understand each other so far.
//!
//! ```text
//! Hello    "SL" 1 n version*n        the versions that the client speaks, each two bytes, little-endian
//! Drain    "SL" 2                    end when the last jail has ended, and take no new client
//! Sources  "SL" 3 (kind path 0)*     what jails may show from now on: "=" a tree, "~" a pattern; said by the launcher's
//!                                    own user, and answered by "SL" 3
//! Welcome  "SL" 1 flags version pid  the version that is spoken from here on (0: none), then the pid in four bytes,
//!          length build              and the launcher's build as text
//! ```

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::net::{RecvFlags, SendFlags};

use super::sources::MountSources;
use super::{Abilities, VERSION};

const MAGIC: [u8; 2] = *b"SL";
const HELLO: u8 = 1;
const DRAIN: u8 = 2;
const SOURCES: u8 = 3;
const TREE: u8 = b'=';
const PATTERN: u8 = b'~';
const CONTROL_GROUPS: u8 = 1;
const FREEZER: u8 = 2;
const ZYGOTES: u8 = 4;
const DISK_SPACE: u8 = 8;
/// Longest word.
const LONGEST: usize = 64 << 10;

/// What a guest says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    Sources(MountSources),
    /// With the newest version that both speak.
    Hello {
        version: Option<u16>,
    },
    Drain,
}

/// What a launcher answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) version: u16,
    pub(super) abilities: Abilities,
    pub(super) pid: u32,
    pub(super) build: String,
}

fn send(socket: BorrowedFd<'_>, word: &[u8]) -> io::Result<()> {
    rustix::net::send(socket, word, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut word = vec![0; LONGEST];
    let (length, _) = rustix::net::recv(socket, word.as_mut_slice(), RecvFlags::empty())?;
    word.truncate(length);
    Ok(word)
}

pub(super) fn say_hello(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut word = vec![MAGIC[0], MAGIC[1], HELLO, 1];
    word.extend(VERSION.to_le_bytes());
    send(socket, &word)
}

pub(super) fn say_drain(socket: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, &[MAGIC[0], MAGIC[1], DRAIN])
}

pub(super) fn say_sources(socket: BorrowedFd<'_>, sources: &MountSources) -> io::Result<()> {
    let mut word = vec![MAGIC[0], MAGIC[1], SOURCES];
    let trees = sources.trees.iter().map(|tree| (TREE, tree.as_os_str().as_bytes()));
    let patterns = sources.patterns.iter().map(|pattern| (PATTERN, pattern.as_bytes()));
    for (kind, path) in trees.chain(patterns) {
        word.push(kind);
        word.extend(path);
        word.push(0);
    }
    match word.len() <= LONGEST {
        true => send(socket, &word),
        false => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

pub(super) fn say_sources_taken(socket: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, &[MAGIC[0], MAGIC[1], SOURCES])
}

pub(super) fn hear_sources_taken(socket: BorrowedFd<'_>) -> io::Result<()> {
    match receive(socket)?[..] {
        [b'S', b'L', SOURCES] => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

fn read_sources(words: &[u8]) -> Option<MountSources> {
    let mut sources = MountSources::default();
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    for word in words.split(|byte| *byte == 0).filter(|word| !word.is_empty()) {
        match word {
            [TREE, path @ ..] => sources.trees.push(OsStr::from_bytes(path).into()),
            [PATTERN, path @ ..] => sources.patterns.push(std::str::from_utf8(path).ok()?.to_owned()),
            _ => return None,
        }
    }
    Some(sources)
}

/// What a guest said; `None`: nothing that anybody understands.
pub(super) fn hear(socket: BorrowedFd<'_>) -> Option<Greeting> {
    read_greeting(&receive(socket).ok()?)
}

fn read_greeting(word: &[u8]) -> Option<Greeting> {
    match word.strip_prefix(&MAGIC)? {
        [DRAIN] => Some(Greeting::Drain),
        [SOURCES, words @ ..] => read_sources(words).map(Greeting::Sources),
        [HELLO, count, versions @ ..] if versions.len() == usize::from(*count) * 2 => {
            let speaks = versions.chunks_exact(2).any(|v| v == VERSION.to_le_bytes());
            Some(Greeting::Hello { version: speaks.then_some(VERSION) })
        }
        _ => None,
    }
}

pub(super) fn welcome(socket: BorrowedFd<'_>, version: u16, abilities: Abilities) -> io::Result<()> {
    let flags = if abilities.control_groups { CONTROL_GROUPS } else { 0 }
        | if abilities.freezer { FREEZER } else { 0 }
        | if abilities.zygotes { ZYGOTES } else { 0 }
        | if abilities.disk_space { DISK_SPACE } else { 0 };
    let build = env!("CARGO_PKG_VERSION").as_bytes();
    let mut word = vec![MAGIC[0], MAGIC[1], HELLO, flags];
    word.extend(version.to_le_bytes());
    word.extend(std::process::id().to_le_bytes());
    word.push(u8::try_from(build.len()).unwrap_or(0));
    word.extend(&build[..usize::from(u8::try_from(build.len()).unwrap_or(0))]);
    send(socket, &word)
}

pub(super) fn hear_welcome(socket: BorrowedFd<'_>) -> io::Result<Welcome> {
    read_welcome(&receive(socket)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn read_welcome(word: &[u8]) -> Option<Welcome> {
    let [HELLO, flags, rest @ ..] = word.strip_prefix(&MAGIC)? else { return None };
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (pid, rest) = rest.split_first_chunk::<4>()?;
    let (length, build) = rest.split_first()?;
    let abilities = Abilities {
        control_groups: flags & CONTROL_GROUPS != 0,
        freezer: flags & FREEZER != 0,
        zygotes: flags & ZYGOTES != 0,
        disk_space: flags & DISK_SPACE != 0,
    };
    (build.len() == usize::from(*length)).then(|| Welcome {
        version: u16::from_le_bytes(*version),
        abilities,
        pid: u32::from_le_bytes(*pid),
        build: String::from_utf8_lossy(build).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::packet;

    #[test]
    fn the_words_are_these_bytes_for_ever() {
        let (a, b) = packet::pair().unwrap();
        say_hello(a.as_fd()).unwrap();
        assert_eq!(receive(b.as_fd()).unwrap(), [b"SL".as_slice(), &[1, 1], &VERSION.to_le_bytes()].concat());
        say_drain(a.as_fd()).unwrap();
        assert_eq!(receive(b.as_fd()).unwrap(), b"SL\x02");
        let sources = MountSources { trees: vec!["/opt/a".into()], patterns: vec!["/etc/x-*".to_owned()] };
        say_sources(a.as_fd(), &sources).unwrap();
        assert_eq!(receive(b.as_fd()).unwrap(), b"SL\x03=/opt/a\0~/etc/x-*\0");
        assert_eq!(read_greeting(b"SL\x03=/opt/a\0~/etc/x-*\0"), Some(Greeting::Sources(sources)));
        assert_eq!(read_greeting(b"SL\x03"), Some(Greeting::Sources(MountSources::default())));
        let other = [b"SL".as_slice(), &[1, 3, 9, 9], &VERSION.to_le_bytes(), &[8, 8]].concat();
        assert_eq!(read_greeting(&other), Some(Greeting::Hello { version: Some(VERSION) }));
        assert_eq!(read_greeting(b"SL\x01\x01\xff\xff"), Some(Greeting::Hello { version: None }));
    }

    #[test]
    fn what_is_not_a_greeting_is_nothing() {
        for word in
            [&b""[..], b"SL", b"XX\x01\x00", b"SL\x01\x02\x01\x00", b"SL\x04", b"SL\x02\x00", b"SL\x03/usr\0"]
        {
            assert_eq!(read_greeting(word), None, "{word:?}");
        }
    }

    #[test]
    fn a_welcome_is_read_as_it_was_said() {
        let (a, b) = packet::pair().unwrap();
        let abilities = Abilities { control_groups: true, freezer: false, zygotes: true, disk_space: true };
        welcome(a.as_fd(), 7, abilities).unwrap();
        let heard = hear_welcome(b.as_fd()).unwrap();
        assert_eq!((heard.version, heard.abilities, heard.pid), (7, abilities, std::process::id()));
        assert_eq!(heard.build, env!("CARGO_PKG_VERSION"));
    }
}
