//! What a source must not have, and what it is told.

use std::time::Duration;

use super::root;
use super::zygote::Zygote;

#[test]
fn threads() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let (mut source, mut destination) = (zygote.running(), zygote.guest());
    source.run("import threading\ne = threading.Event()\nt = threading.Thread(target=e.wait)\nt.start()");
    assert_eq!(source.refused(&mut destination), "the source has 2 threads");
    assert_eq!(source.run("e.set(), t.join()"), "(None, None)");
}

/// Each leaves the source as it was and the destination waiting.
#[test]
fn what_it_has_open_by_name() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    let file = zygote.directory.path().join("notes");
    let file = file.to_str().unwrap();
    source.run("import os, socket, select, subprocess, mmap");
    let cases = [
        (format!("f = open({file:?}, 'w')"), "f.close()", format!("an open file {file}")),
        ("f = socket.socket()".to_owned(), "f.close()", "a socket (descriptor".to_owned()),
        ("f = select.epoll()".to_owned(), "f.close()", "a kernel object [eventpoll]".to_owned()),
        ("f = os.pipe()".to_owned(), "os.close(f[0]); os.close(f[1])", "a pipe (descriptor".to_owned()),
        (
            "f = subprocess.Popen(['/bin/sleep', '1000'])".to_owned(),
            "f.kill(); f.wait()",
            "the source has child processes".to_owned(),
        ),
        ("f = mmap.mmap(-1, 4096)".to_owned(), "f.close()", "shared memory: /dev/zero (deleted)".to_owned()),
        (
            "import ctypes; f = ctypes.c_void_p(); ctypes.CDLL(None).timer_create(1, None, ctypes.byref(f))"
                .to_owned(),
            "ctypes.CDLL(None).timer_delete(f)",
            "the source has timers".to_owned(),
        ),
        (
            "import faulthandler; faulthandler.enable(file=2)".to_owned(),
            "faulthandler.disable()",
            "signal ".to_owned(),
        ),
    ];
    for (make, undo, words) in cases {
        let mut destination = zygote.guest();
        assert_eq!(source.run(&make), "done", "{make}");
        let refusal = source.refused(&mut destination);
        assert!(refusal.contains(&words), "{make}: {refusal}");
        source.run(undo);
    }
    let copy = zygote.guest();
    source.copy_to(&copy).unwrap();
}

#[test]
fn a_library_that_the_destination_cannot_see() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let (mut source, destination) = (zygote.running(), zygote.guest());
    let library = zygote.directory.path().join("own.so");
    std::fs::copy("/lib/x86_64-linux-gnu/libz.so.1", &library).unwrap();
    source.run(&format!("import ctypes; own = ctypes.CDLL({library:?})"));
    std::fs::rename(&library, zygote.directory.path().join("moved.so")).unwrap();
    std::fs::copy("/lib/x86_64-linux-gnu/libz.so.1", &library).unwrap();
    // The name in the source's mappings follows the file; another file is now at the old one.
    let copied = source.copy_to(&destination);
    assert!(copied.is_ok(), "{copied:?}");
    std::fs::remove_file(zygote.directory.path().join("moved.so")).unwrap();
    let destination = zygote.guest();
    let error = source.copy_to(&destination).unwrap_err();
    assert!(error.to_string().contains("moved.so"), "{error}");
    assert_eq!(source.run("own is not None"), "True");
}

#[test]
fn a_source_that_is_busy() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let (began, go) = (zygote.directory.path().join("began"), zygote.directory.path().join("go"));
    let mut source = zygote.running();
    let mut destination = zygote.guest();
    source.run(&format!(
        "import os, time\ndef wait():\n    open({began:?}, 'w').close()\n    \
         while not os.path.exists({go:?}): time.sleep(0.01)\n    return 'waited'"
    ));
    source.send("wait()").unwrap();
    while !began.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(source.refused(&mut destination), "the source is busy");
    std::fs::write(go, "").unwrap();
    assert_eq!(source.answer().unwrap(), "'waited'");
}

#[test]
fn guests_of_different_zygotes() {
    if !root() {
        return;
    }
    let (mut one, mut other) = (Zygote::start(), Zygote::start());
    let (mut source, mut destination) = (one.running(), other.guest());
    let refusal = source.refused(&mut destination);
    assert!(refusal.contains("not forks of one process"), "{refusal}");
}

#[test]
fn a_source_that_is_gone() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let (mut source, mut destination) = (zygote.running(), zygote.guest());
    source.run("import os");
    assert!(source.try_run("os._exit(0)").is_err());
    let refusal = source.refused(&mut destination);
    assert_eq!(refusal, "the source ended");
}

/// Rights that the source gave up would be back in the copy.
#[test]
fn a_source_with_filters_of_its_own() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let (mut source, mut destination) = (zygote.running(), zygote.guest());
    source.run("import ctypes, struct\nstep = struct.pack('<HBBI', 6, 0, 0, 0x7fff0000)");
    source.run(
        "program = struct.pack('<HxxxxxxQ', 1, ctypes.cast(ctypes.c_char_p(step), ctypes.c_void_p).value)",
    );
    assert_eq!(source.run("ctypes.CDLL(None).prctl(22, 2, program, 0, 0)"), "0");
    let refusal = source.refused(&mut destination);
    assert_eq!(refusal, "the two guests are not alike: Seccomp_filters 2 there, Seccomp_filters 1 here");
}

#[test]
fn a_directory_that_only_the_source_is_in() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let place = zygote.directory.path().join("gone");
    std::fs::create_dir(&place).unwrap();
    let (mut source, destination) = (zygote.running(), zygote.guest());
    source.run(&format!("import os; os.chdir({place:?})"));
    std::fs::remove_dir(&place).unwrap();
    let error = source.copy_to(&destination).unwrap_err();
    assert!(error.to_string().contains("no working directory") && error.destination_spoiled, "{error}");
    assert!(destination.has_ended_after(Duration::from_secs(60)));
    assert_eq!(source.run("6 * 7"), "42");
}
