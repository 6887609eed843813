//! What is kept with a file: texts in extended attributes of its own.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use crate::protocol::{METADATA, MOST_METADATA};

/// Longest list of attribute names, and longest value, that the kernel gives.
const LONGEST: usize = 64 << 10;

/// Keeps these names and texts with a file that keeps nothing yet.
pub(crate) fn keep(file: &OwnedFd, metadata: &[(ByteBuf, ByteBuf)]) -> Result<(), Errno> {
    for (name, text) in metadata {
        let name = [METADATA, name.as_slice()].concat();
        rustix::fs::fsetxattr(file, name, text, XattrFlags::CREATE)?;
    }
    Ok(())
}

/// What is kept with a file or directory, in the order of the names. What is no text is left out, and so is what does not fit.
/// A file system that keeps nothing has nothing to tell.
pub(crate) fn kept(path: &Path) -> Vec<(String, String)> {
    // Nearly every file has none: that is asked with little room.
    let mut little = [0; 64];
    match rustix::fs::llistxattr(path, &mut little[..]) {
        Ok(0) => return Vec::new(),
        Ok(_) | Err(Errno::RANGE) => {}
        Err(_) => return Vec::new(),
    }
    let mut buffer = vec![0; LONGEST];
    let Ok(length) = rustix::fs::llistxattr(path, &mut buffer[..]) else { return Vec::new() };
    let mut names: Vec<Vec<u8>> = buffer[..length.min(LONGEST)]
        .split(|byte| *byte == 0)
        .filter(|name| name.len() > METADATA.len() && name.starts_with(METADATA))
        .map(<[u8]>::to_vec)
        .collect();
    names.sort_unstable();
    let mut room = MOST_METADATA;
    let mut found = Vec::new();
    for name in names {
        let Ok(length) = rustix::fs::lgetxattr(path, name.as_slice(), &mut buffer[..]) else { continue };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (Some(key), Some(value)) = (text(&name[METADATA.len()..]), text(&buffer[..length.min(LONGEST)]))
        else {
            continue;
        };
        match room.checked_sub(key.len() + value.len()) {
            Some(left) => room = left,
            None => continue,
        }
        found.push((key, value));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn pair(name: &str, text: &str) -> (ByteBuf, ByteBuf) {
        (ByteBuf::from(name.as_bytes()), ByteBuf::from(text.as_bytes()))
    }

    #[test]
    fn what_is_kept_is_told_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = OwnedFd::from(File::create(&path).unwrap());
        assert_eq!(kept(&path), []);
        if let Err(error) = keep(&file, &[pair("b", "2"), pair("a", "1")]) {
            eprintln!("skipped: this file system keeps nothing: {error}");
            return;
        }
        let both = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())];
        assert_eq!(kept(&path), both);
        // A program inside can write anything there.
        for (name, text) in [("user.e2b.c", &[0xff][..]), ("user.other", b"x"), ("user.e2b.", b"no name")] {
            rustix::fs::fsetxattr(&file, name, text, XattrFlags::CREATE).unwrap();
        }
        assert_eq!(kept(&path), both);
        let long = vec![b'x'; MOST_METADATA];
        match rustix::fs::fsetxattr(&file, "user.e2b.aa", &long, XattrFlags::CREATE) {
            Ok(()) => assert_eq!(kept(&path), both, "what does not fit is left out"),
            Err(Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
