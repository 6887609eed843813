//! Whatever an archive holds, unpacking it touches nothing outside its folder.

#![no_main]

use std::os::fd::AsFd;

use libfuzzer_sys::fuzz_target;
use rustix::fs::{Mode, OFlags};
use sandstorm_agent::archive::{Bounds, unpack};

fuzz_target!(|data: &[u8]| {
    let outer = tempfile::tempdir().expect("a folder");
    let inner = outer.path().join("in");
    std::fs::create_dir(&inner).expect("a folder");
    let root = rustix::fs::open(&inner, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it opens");
    let _ = unpack(data, root.as_fd(), Bounds { entries: 50, bytes: 1 << 20, depth: 8 });
    assert_eq!(std::fs::read_dir(outer.path()).expect("it lists").count(), 1, "something was made outside");
});
