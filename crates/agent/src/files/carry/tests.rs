use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use super::*;

/// Copies `from` below another folder; gives what was named on both ends.
fn copied(from: &Path, onto: &Path) -> (PathBuf, Vec<String>) {
    let (mut stream, mut named) = (Vec::new(), Vec::new());
    export(&[from], &mut stream, |left| named.push(left.message)).unwrap();
    let to = onto.join(from.strip_prefix("/").unwrap());
    fs::create_dir_all(&to).unwrap();
    import(onto, &mut stream.as_slice(), |left| named.push(left.message)).unwrap();
    (to, named)
}

#[test]
fn everything_arrives_as_it_was() {
    let (from, onto) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| from.path().join(name);
    fs::create_dir_all(at("deep/er")).unwrap();
    fs::write(at("deep/er/file"), vec![7; 3 * CHUNK + 5]).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at("script"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(at("script"), at("zz_same")).unwrap();
    symlink("/usr/bin/env", at("outside")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"end", (1 << 40) - 3).unwrap();
    drop(sparse);
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    fs::write(at("deep/locked"), "x").unwrap();
    fs::set_permissions(at("deep"), fs::Permissions::from_mode(0o500)).unwrap();
    let listener = UnixListener::bind(at("socket")).unwrap();
    let (to, named) = copied(from.path(), onto.path());
    drop(listener);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].contains("socket: a socket cannot be copied"), "{named:?}");
    for name in ["deep", "deep/er", "deep/er/file", "empty", "script", "fifo", "deep/locked"] {
        let (old, new) =
            (fs::symlink_metadata(at(name)).unwrap(), fs::symlink_metadata(to.join(name)).unwrap());
        assert_eq!(
            (old.mode(), old.mtime(), old.mtime_nsec()),
            (new.mode(), new.mtime(), new.mtime_nsec()),
            "{name}"
        );
        assert!(old.is_dir() || old.size() == new.size(), "{name}");
    }
    assert_eq!(fs::read(at("deep/er/file")).unwrap(), fs::read(to.join("deep/er/file")).unwrap());
    assert_eq!(fs::read_link(to.join("outside")).unwrap(), Path::new("/usr/bin/env"));
    assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("nowhere"));
    let (one, other) = (fs::metadata(to.join("script")).unwrap(), fs::metadata(to.join("zz_same")).unwrap());
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    let sparse = fs::metadata(to.join("sparse")).unwrap();
    assert!(sparse.size() == 1 << 40 && sparse.blocks() < 1000, "{} blocks", sparse.blocks());
    fs::set_permissions(at("deep"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(to.join("deep"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn half_a_stream_is_an_error_and_so_is_nonsense() {
    let (from, onto) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("file"), "content").unwrap();
    let mut stream = Vec::new();
    export(&[from.path()], &mut stream, |_| {}).unwrap();
    fs::create_dir_all(onto.path().join(from.path().strip_prefix("/").unwrap())).unwrap();
    for length in 0..stream.len() {
        assert!(
            import(onto.path(), &mut &stream[..length], |_| {}).is_err(),
            "{length} bytes are taken for all"
        );
    }
    let mut huge = stream.clone();
    huge[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(import(onto.path(), &mut huge.as_slice(), |_| {}).is_err());
    stream[0] = 9;
    assert!(import(onto.path(), &mut stream.as_slice(), |_| {}).is_err());
}

#[test]
fn what_is_left_behind_is_named_within_bounds() {
    let (from, onto) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sockets: Vec<_> =
        (0..80).map(|n| UnixListener::bind(from.path().join(format!("s{n}"))).unwrap()).collect();
    let (_, named) = copied(from.path(), onto.path());
    assert_eq!((sockets.len(), named.len()), (80, MOST_NAMED + 1));
    assert!(named[MOST_NAMED].contains("and more like it"));
}

#[test]
fn what_is_kept_with_a_file_comes_along() {
    let (from, onto) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("file");
    fs::write(&path, "x").unwrap();
    fs::write(from.path().join("plain"), "x").unwrap();
    let kept = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())];
    let pairs = kept.clone().map(|(name, text)| (name.into_bytes().into(), text.into_bytes().into()));
    let file = OwnedFd::from(fs::File::options().write(true).open(&path).unwrap());
    if let Err(error) = crate::files::metadata::keep(&file, &pairs) {
        eprintln!("skipped: this file system keeps nothing: {error}");
        return;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let (to, named) = copied(from.path(), onto.path());
    assert!(named.is_empty(), "{named:?}");
    assert_eq!(crate::files::metadata::kept(&to.join("file")), kept);
    assert_eq!(crate::files::metadata::kept(&to.join("plain")), []);
}
