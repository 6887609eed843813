//! What a copy has of its source.

use super::root;
use super::zygote::Zygote;

#[test]
fn variables_functions_and_generators() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("x = {'a': [1, 2, 3], 'b': (4, 5.5)}\ndef f(n):\n    return n * x['a'][-1]\ng = iter(range(10))\nnext(g)");
    source.run("def gen():\n    total = 0\n    while True:\n        total += (yield total)\nh = gen(); next(h); h.send(5)");
    let mut copy = zygote.guest();
    let report = source.copy_to(&copy).unwrap();
    assert!(report.pages > 0 && report.bytes == report.pages * 4096, "{report:?}");
    assert_eq!(copy.run("f(14), next(g), h.send(7), x['b']"), "(42, 1, 12, (4, 5.5))");
    assert_eq!(source.run("f(14), next(g), h.send(8), x['b']"), "(42, 1, 13, (4, 5.5))");
    // What one does now is not seen by the other.
    assert_eq!(copy.run("x['a'].append(9)"), "None");
    assert_eq!(source.run("x['a']"), "[1, 2, 3]");
    source.run("x['a'].append(7); y = 1");
    assert_eq!(copy.run("x['a'], 'y' in globals()"), "([1, 2, 3, 9], False)");
}

#[test]
fn ten_and_a_hundred_mebibytes() {
    if !root() {
        return;
    }
    for mebibytes in [0, 1, 10, 100] {
        let mut zygote = Zygote::start();
        let mut source = zygote.running();
        source.run(&format!("import os, zlib\nblocks = [os.urandom(1 << 20) for _ in range({mebibytes})]"));
        let mut copy = zygote.guest();
        let report = source.copy_to(&copy).unwrap();
        println!("{mebibytes} MiB: {report:?}");
        assert!(report.bytes >= mebibytes << 20, "{report:?}");
        let sums = "len(blocks), [zlib.crc32(block) for block in blocks]";
        assert_eq!(copy.run(sums), source.run(sums));
    }
}

/// Of much memory that was never written to, or written with zeroes, only what is in it goes over.
#[test]
fn emptiness_is_not_copied() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run(
        "import mmap\nhuge = mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)",
    );
    source.run("huge[1 << 35] = 7\nzeroes = bytearray(32 << 20)\nfor i in range(0, len(zeroes), 4096): zeroes[i] = 0");
    let mut copy = zygote.guest();
    let report = source.copy_to(&copy).unwrap();
    assert!(report.bytes < 8 << 20, "{report:?}");
    assert_eq!(copy.run("huge[1 << 35], huge[(1 << 35) + 4096], zeroes == bytes(32 << 20)"), "(7, 0, True)");
}

/// Memory that the source gave back, and memory that only the destination wrote to.
#[test]
fn what_the_source_does_not_have_is_gone() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("a = bytearray(64 << 20); a[-1] = 1");
    source.run("del a; import gc; gc.collect()");
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    // The destination of the first copy is the source of the next, and has more than its sibling.
    copy.run("b = [bytes([i % 256]) * 100000 for i in range(300)]");
    let mut third = zygote.guest();
    copy.copy_to(&third).unwrap();
    assert_eq!(third.run("len(b), b[255][:2], 'a' in globals()"), r"(300, b'\xff\xff', False)");
    let size = |guest: &super::zygote::TestGuest| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", guest.pid.as_raw_nonzero())).unwrap();
        maps.lines().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(size(&copy), size(&third));
}

#[test]
fn modules_and_libraries_that_came_later() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("import sys; known = set(sys.modules)");
    assert_eq!(
        source.run("[name in known for name in ('_decimal', '_sqlite3', 'csv')]"),
        "[False, False, False]"
    );
    source.run("import decimal, sqlite3, csv, ssl\ndecimal.getcontext().prec = 50\nbase = sqlite3.connect(':memory:')");
    source.run("_ = base.execute('create table t (n)'); _ = base.executemany('insert into t values (?)', [(i,) for i in range(100)])");
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    let question = "decimal.Decimal(1) / 7, base.execute('select sum(n) from t').fetchone(), csv.__name__, ssl.create_default_context().protocol";
    let answer = source.run(question);
    assert!(
        answer.contains("0.14285714285714285714285714285714285714285714285714") && answer.contains("(4950,)"),
        "{answer}"
    );
    assert_eq!(copy.run(question), answer);
    // A library that neither had: the loader's own state is right.
    assert_eq!(copy.run("import curses; curses.__name__"), "done");
    assert_eq!(copy.run("curses.__name__"), "'curses'");
}

#[test]
fn deep_recursion_left_a_large_stack() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    // Sorting with a key calls back through C, so the machine's stack grows with it.
    source.run("import sys; sys.setrecursionlimit(100000)\ndef deep(n):\n    return n if n == 0 else sorted([n], key=lambda m: deep(m - 1))[0] and n\ndepth = deep(1500)");
    assert_eq!(source.run("depth"), "1500");
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    assert_eq!(copy.run("depth, deep(1500)"), "(1500, 1500)");
    assert_eq!(source.run("deep(1500)"), "1500");
}

#[test]
fn working_directory_mask_and_limits() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let place = zygote.directory.path().join("a place");
    std::fs::create_dir(&place).unwrap();
    let mut source = zygote.running();
    source.run("import os, resource");
    source.run(&format!(
        "os.chdir({place:?}); os.umask(0o27); resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))"
    ));
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    let expected = format!("({:?}, 23, (300, 400))", place.to_str().unwrap()).replace('"', "'");
    assert_eq!(copy.run("os.getcwd(), os.umask(0o27), resource.getrlimit(resource.RLIMIT_NOFILE)"), expected);
}

#[test]
fn signals() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("import os, signal\nheard = []\nsignal.signal(signal.SIGUSR1, lambda *a: heard.append(a[0]))");
    source
        .run("signal.signal(signal.SIGUSR2, signal.SIG_IGN); signal.signal(signal.SIGPIPE, signal.SIG_DFL)");
    source.run("signal.signal(signal.SIGINT, signal.SIG_DFL); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])");
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    copy.run("os.kill(os.getpid(), signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR2); os.kill(os.getpid(), signal.SIGHUP)");
    assert_eq!(
        copy.run("heard, signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.sigpending()"),
        "([10], {<Signals.SIGHUP: 1>}, {<Signals.SIGHUP: 1>})"
    );
    assert_eq!(source.run("heard"), "[]");
    copy.run("pid = os.getpid()");
    assert!(copy.try_run("os.kill(pid, signal.SIGINT)").is_err(), "the interrupt has its default action");
}

#[test]
fn another_number_in_its_namespace() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("import os, threading, subprocess\nnumber = os.getpid()");
    let mut copy = zygote.guest_after(5);
    source.copy_to(&copy).unwrap();
    assert_eq!(copy.run("number, os.getpid()"), "(2, 7)");
    // libc compares the cached number in locks that know their owner, and signals itself by it.
    assert_eq!(copy.run("import signal; signal.signal(signal.SIGUSR1, lambda *a: None); signal.raise_signal(signal.SIGUSR1)"), "done");
    assert_eq!(copy.run("subprocess.run(['/bin/echo', 'x'], capture_output=True).stdout"), r"b'x\n'");
    copy.run("t = threading.Thread(target=lambda: None); t.start(); t.join()");
    assert_eq!(copy.run("threading.active_count()"), "1");
}

#[test]
fn its_own_streams_and_a_closed_one() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("import os, sys; os.close(0)");
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    copy.run("print('from the copy', flush=True)");
    source.run("print('from the source', flush=True)");
    let mut said = [0; 64];
    let length = rustix::io::read(&copy.streams[1], &mut said).unwrap();
    assert_eq!(&said[..length], b"from the copy\n");
    let length = rustix::io::read(&source.streams[1], &mut said).unwrap();
    assert_eq!(&said[..length], b"from the source\n");
    assert_eq!(
        copy.run("sorted(os.listdir('/proc/self/fd'))[:3]"),
        source.run("sorted(os.listdir('/proc/self/fd'))[:3]")
    );
}

#[test]
fn twenty_copies_of_one() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("import random; random.seed(4); values = [random.random() for _ in range(50000)]; made = 0");
    let mut copies = Vec::new();
    for n in 1..=20 {
        source.run("made += 1");
        let mut copy = zygote.guest();
        source.copy_to(&copy).unwrap();
        assert_eq!(copy.run("made"), n.to_string());
        copies.push(copy);
    }
    let sum = source.run("sum(values)");
    for (n, copy) in copies.iter_mut().enumerate() {
        assert_eq!(copy.run("sum(values)"), sum);
        copy.run(&format!("made = {}", n * 100));
    }
    for (n, copy) in copies.iter_mut().enumerate() {
        assert_eq!(copy.run("made"), (n * 100).to_string());
    }
    assert_eq!(source.run("made"), "20");
}

/// Memory of the kinds that a fork treats in its own way.
#[test]
fn what_a_fork_does_not_carry() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    source.run("import mmap\nkinds = [mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(3)]");
    source.run("for area in kinds: area[:5] = b'bytes'");
    // MADV_WIPEONFORK keeps random generators from giving the same numbers twice.
    source.run("kinds[1].madvise(18); kinds[2].madvise(mmap.MADV_DONTFORK)");
    let mut copy = zygote.guest();
    source.copy_to(&copy).unwrap();
    assert_eq!(source.run("[area[:5] for area in kinds]"), "[b'bytes', b'bytes', b'bytes']");
    assert_eq!(copy.run("[area[:5] for area in kinds[:2]]"), r"[b'bytes', b'\x00\x00\x00\x00\x00']");
    assert!(
        copy.try_run("kinds[2][0]").is_err(),
        "that mapping is not there, and the fault ends the process"
    );
}

/// Not by a read but by a call that the kernel does not count: then it is stopped all the time.
#[test]
fn a_source_that_waits_in_another_way() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = zygote.running();
    let wait_in_receive = "import socket, struct
side = socket.socket(fileno=200)
names = {}
while True:
    text = side.recv(struct.unpack('<I', side.recv(4))[0]).decode()
    try:
        answer = repr(eval(text, names)).encode()
    except SyntaxError:
        exec(text, names)
        answer = b'done'
    side.sendall(struct.pack('<I', len(answer)) + answer)";
    source.send(wait_in_receive).unwrap();
    assert_eq!(source.run("value = [1] * 1000000"), "done");
    // A machine that is busy for a moment may spend it where nobody is stopped: of a few, one shows it.
    let mut reports = Vec::new();
    let mut copy = loop {
        let copy = zygote.guest();
        let report = source.copy_to(&copy).unwrap();
        reports.push(report);
        if report.stopped_microseconds > report.microseconds / 2 {
            break copy;
        }
        assert!(reports.len() < 10, "{reports:?}");
    };
    assert_eq!(copy.run("sum(value)"), "1000000");
    assert_eq!(source.run("sum(value)"), "1000000");
}
