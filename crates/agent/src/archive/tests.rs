use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

fn open(dir: &TempDir) -> OwnedFd {
    rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn bounds() -> Bounds {
    Bounds { entries: 100, bytes: 1 << 20, depth: 8 }
}

/// An archive with one entry whose header is exactly what the caller makes of it.
fn single(name: &[u8], kind: EntryType, link: &[u8], size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_mode(0o6755);
    header.set_size(size);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes.extend([0; 1024]);
    bytes
}

fn refused(archive: &[u8]) -> String {
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir(outer.path().join("in")).unwrap();
    fs::write(outer.path().join("canary"), "untouched").unwrap();
    let root =
        rustix::fs::open(outer.path().join("in"), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let error = unpack(archive, root.as_fd(), bounds()).unwrap_err().to_string();
    assert_eq!(fs::read_to_string(outer.path().join("canary")).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 2, "something was made outside");
    error
}

#[test]
fn a_tree_comes_back_as_it_went() {
    let from = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    fs::create_dir_all(from.path().join("a/b")).unwrap();
    fs::write(from.path().join("a/b/data.bin"), [0, 159, 146, 150]).unwrap();
    fs::write(from.path().join("a/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(from.path().join("a/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(from.path().join("left-out"), "x").unwrap();
    symlink("b/data.bin", from.path().join("a/link")).unwrap();
    fs::write(from.path().join("x".repeat(200)), "long name").unwrap();

    let mut bytes = Vec::new();
    pack(open(&from).as_fd(), &[b"left-out"], &mut bytes).unwrap();
    let unpacked = unpack(bytes.as_slice(), open(&to).as_fd(), bounds()).unwrap();

    assert_eq!(unpacked.files.len(), 4);
    assert_eq!(fs::read(to.path().join("a/link")).unwrap(), [0, 159, 146, 150]);
    assert_eq!(fs::metadata(to.path().join("a/run.sh")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(to.path().join("x".repeat(200))).unwrap(), "long name");
    assert!(!to.path().join("left-out").exists());
}

#[test]
fn names_that_climb_are_refused() {
    for name in [&b"../canary"[..], b"a/../../canary", b"/etc/canary", b"a/b/../../../canary"] {
        let error = refused(&single(name, EntryType::Regular, b"", 1, b"x"));
        assert!(error.contains("'..'") || error.contains("absolute"), "{error}");
    }
}

#[test]
fn links_that_leave_are_refused() {
    // The last climbs from wherever `a` leads, which may be another link.
    for target in [&b"/etc/passwd"[..], b"../canary", b"a/../../canary", b"a/../b"] {
        assert!(refused(&single(b"link", EntryType::Symlink, target, 0, b"")).contains("link leaves"));
    }
}

#[test]
fn special_and_hard_linked_entries_are_refused() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::Link, EntryType::GNUSparse] {
        assert!(!refused(&single(b"thing", kind, b"../canary", 0, b"")).is_empty());
    }
}

#[test]
fn a_file_is_not_written_through_a_link_of_the_same_archive() {
    let mut bytes = single(b"dir", EntryType::Symlink, b"elsewhere", 0, b"");
    bytes.truncate(512);
    bytes.extend(single(b"dir/file", EntryType::Regular, b"", 1, b"x"));
    let to = tempfile::tempdir().unwrap();
    fs::create_dir(to.path().join("elsewhere")).unwrap();
    let error = unpack(bytes.as_slice(), open(&to).as_fd(), bounds()).unwrap_err();
    assert!(matches!(error, ArchiveError::Write { .. }), "{error}");
    assert_eq!(fs::read_dir(to.path().join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn set_id_bits_do_not_arrive() {
    let to = tempfile::tempdir().unwrap();
    unpack(single(b"f", EntryType::Regular, b"", 1, b"x").as_slice(), open(&to).as_fd(), bounds()).unwrap();
    assert_eq!(fs::metadata(to.path().join("f")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn bounds_hold() {
    let mut many = Vec::new();
    for i in 0..101 {
        let mut entry = single(format!("f{i}").as_bytes(), EntryType::Regular, b"", 0, b"");
        entry.truncate(512);
        many.extend(entry);
    }
    many.extend([0; 1024]);
    assert!(refused(&many).contains("entries"));
    assert!(refused(&single(b"f", EntryType::Regular, b"", 2 << 20, b"x")).contains("bytes"));
    assert!(refused(&single(b"1/2/3/4/5/6/7/8/9", EntryType::Regular, b"", 1, b"x")).contains("depth"));
}

#[test]
fn a_size_that_two_headers_state_differently_is_refused() {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("size", b"3".as_slice())]).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    // The archive's end marker is not wanted yet.
    while bytes.len() > 512 && bytes[bytes.len() - 512..].iter().all(|b| *b == 0) {
        bytes.truncate(bytes.len() - 512);
    }
    bytes.extend(single(b"f", EntryType::Regular, b"", 0, b"abc"));
    assert!(refused(&bytes).contains("disagree"));
}

#[test]
fn a_cut_archive_is_an_error() {
    let whole = single(b"f", EntryType::Regular, b"", 600, &[b'x'; 600]);
    assert!(refused(&whole[..900]).contains("malformed"));
}

#[test]
fn half_a_file_does_not_stay() {
    let to = tempfile::tempdir().unwrap();
    let mut cut = single(b"whole", EntryType::Regular, b"", 4000, &[7; 4000]);
    cut.truncate(2000);
    assert!(matches!(unpack(cut.as_slice(), open(&to).as_fd(), bounds()), Err(ArchiveError::Malformed(_))));
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn an_endless_name_is_refused_before_it_is_read() {
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
    {
        let error = refused(&single(b"././@LongLink", kind, b"", 1 << 30, b"x"));
        assert!(error.contains("malformed"), "{kind:?}: {error}");
    }
}

#[test]
fn odd_sizes_are_refused() {
    for field in [*b"-0000000001\0", *b"99999999999\0", *b"0x000000010\0", [0xff; 12], [b' '; 12]] {
        let mut bytes = single(b"f", EntryType::Regular, b"", 0, b"");
        bytes[124..136].copy_from_slice(&field);
        let mut header = Header::from_byte_slice(&bytes[..512]).clone();
        header.set_cksum();
        bytes[..512].copy_from_slice(header.as_bytes());
        let to = tempfile::tempdir().unwrap();
        let outcome = unpack(bytes.as_slice(), open(&to).as_fd(), bounds());
        let empty = outcome.as_ref().is_ok_and(|u| u.bytes == 0);
        assert!(outcome.is_err() || empty, "{field:?}: {outcome:?}");
    }
}

#[test]
fn what_follows_the_end_is_not_unpacked() {
    let mut joined = single(b"first", EntryType::Regular, b"", 1, b"a");
    joined.extend(single(b"second", EntryType::Regular, b"", 1, b"b"));
    joined.extend(b"trailing garbage");
    let to = tempfile::tempdir().unwrap();
    let unpacked = unpack(joined.as_slice(), open(&to).as_fd(), bounds()).unwrap();
    assert_eq!(unpacked.files, [PathBuf::from("first")]);
    assert!(!to.path().join("second").exists());
}
