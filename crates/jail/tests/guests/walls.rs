//! A guest stands behind the same walls as a program that the agent started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandstorm_agent::protocol::{Ending, FromAgent, InputStream, ToAgent};
use sandstorm_jail::Tree;

use crate::Case;
use crate::host::{Host, PYTHON, children, eventually, zygotes};

pub(crate) const CASES: &[Case] = &[
    ("walls of a guest equal those of a program", same_walls),
    ("a guest holds no descriptor of the zygote", descriptors),
    ("zygotes of two owners have different layouts", layouts),
    ("what ran a program runs no other, in no jail of its owner either", once),
    ("the zygote has few rights and no way out of its root", zygote_rights),
    ("a guest is charged to its jail", charges),
    ("the process limit counts guests", process_limit),
    ("no inode of a jail is another's", inodes),
    ("no guest and no program can lower its score", scores),
    ("programs and guests of one jail can signal each other", signals),
];

/// What a program finds of itself and its surroundings, as a text that is equal wherever the walls are.
const PROBE: &str = r#"
import ctypes, os, resource, signal
def show(name, value): print(f"{name}: {value}")
status = open("/proc/self/status").read().splitlines()
wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
          "Seccomp", "Threads", "SigBlk", "SigIgn", "SigCgt", "Umask")
for line in status:
    if line.split(":")[0] in wanted: print(line)
show("filters", [line for line in status if line.startswith("Seccomp_filters")])
for kind in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
    show(kind, os.readlink(f"/proc/self/ns/{kind}"))
show("cgroup", sorted(open("/proc/self/cgroup").read().splitlines()))
show("mounts", open("/proc/self/mountinfo").read())
show("root", os.stat("/").st_dev)
show("cwd", os.getcwd())
show("oom", open("/proc/self/oom_score_adj").read())
libc = ctypes.CDLL(None, use_errno=True)
show("dumpable", libc.prctl(3))
show("securebits", libc.prctl(27))
death = ctypes.c_int()
libc.prctl(2, ctypes.byref(death))
show("keyring", libc.syscall(250, 0, -3, 0, 0, 0) if os.uname().machine == "x86_64" else "")
show("session", os.getsid(0) == os.getpid() == os.getpgrp())
show("parent", os.getppid() in (0, 1))
for name in sorted(dir(resource)):
    if name.startswith("RLIMIT_"): show(name, resource.getrlimit(getattr(resource, name)))
def attempt(what, call):
    try: show(what, call())
    except OSError as error: show(what, error.strerror)
attempt("write /usr", lambda: open("/usr/x", "w"))
attempt("write /etc", lambda: open("/etc/x", "w"))
attempt("read /proc/1/mem", lambda: open("/proc/1/mem", "rb"))
attempt("become root", lambda: os.setuid(0))
attempt("change root", lambda: os.chroot("/tmp"))
attempt("signal init", lambda: os.kill(1, signal.SIGTERM))
attempt("mount", lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
attempt("unshare", lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else libc.unshare(0x10000000))
attempt("listing of the root", lambda: sorted(os.listdir("/")))
attempt("exec from /dev/shm", lambda: os.access("/dev/shm", os.X_OK))
"#;

fn same_walls(host: &mut Host) {
    // A tree that is mounted but not among the Landlock rules shows that a guest is under them, too.
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("key"), "secret").unwrap();
    fs::set_permissions(secret.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut spec = Host::spec("walls");
    let tree = sandstorm_jail::Tree { source: secret.path().to_owned(), target: "/exposed".into() };
    spec.root.exposed.push(tree);
    host.launch_spec(spec).unwrap();
    let guest = host.guest("walls", "owner");
    let probe = format!("{PROBE}\nattempt('beyond landlock', lambda: open('/exposed/key').read())\n");
    let program = host.python("walls", None, &probe);
    let ran = host.python("walls", Some(guest), &probe);
    assert_eq!(
        (program.ending, ran.ending),
        (Ending::Code(0), Ending::Code(0)),
        "{} {}",
        program.stderr,
        ran.stderr
    );
    assert_eq!(program.walls, ran.walls);
    assert!(program.stdout.contains("beyond landlock: Permission denied"), "{}", program.stdout);
    // A program inherits PID 1's filter under its own; a guest has the payload's alone, which is the stricter one.
    let comparable = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("filters:")).map(str::to_owned).collect()
    };
    let (expected, found) = (comparable(&program.stdout), comparable(&ran.stdout));
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected.len(), found.len());
}

fn descriptors(host: &mut Host) {
    host.launch("fds");
    let guest = host.guest("fds", "owner");
    let code = "import os\n\
                for fd in sorted(map(int, os.listdir('/proc/self/fd'))):\n\
                \x20   try: print(fd, os.readlink(f'/proc/self/fd/{fd}').split(':')[0])\n\
                \x20   except OSError: pass\n";
    let ran = host.python("fds", Some(guest), code);
    assert_eq!(ran.stdout, "0 pipe\n1 pipe\n2 pipe\n", "{}", ran.stderr);
}

fn layouts(host: &mut Host) {
    host.launch("one");
    let code = "import ctypes\n\
                libc = ctypes.CDLL(None)\n\
                print(ctypes.cast(libc.getpid, ctypes.c_void_p).value, hash('layout'))\n";
    let mut found = Vec::new();
    for owner in ["a", "a", "b", "b"] {
        let guest = host.guest("one", owner);
        found.push(host.python("one", Some(guest), code).stdout);
    }
    // Those of one owner are forks of one process: that is why an owner has a zygote of their own.
    assert_eq!((&found[0], &found[2]), (&found[1], &found[3]));
    assert_ne!(found[0], found[2]);
    assert_eq!(zygotes(host.launcher()).len(), 2);
}

/// Leaves something wherever a program can, and then tells what of it was there before.
const LITTER: &str = r#"
import builtins, ctypes, os, socket, sys
found = []
def left(name, was, leave):
    try:
        if was(): found.append(name)
    except OSError: pass
    try: leave()
    except OSError: pass
left('module', lambda: hasattr(builtins, 'litter'), lambda: setattr(builtins, 'litter', 1))
left('environment', lambda: 'LITTER' in os.environ, lambda: os.environ.update(LITTER='1'))
left('import', lambda: 'this' in sys.modules or '/litter' in sys.path, lambda: sys.path.append('/litter'))
for place in ('/tmp', '/workspace', '/home/user', '/dev/shm'):
    left(place, lambda: os.path.exists(place + '/litter'), lambda: open(place + '/litter', 'w').close())
libc = ctypes.CDLL(None, use_errno=True)
left('shared memory', lambda: libc.shmget(4711, 4096, 0) >= 0, lambda: libc.shmget(4711, 4096, 0o1666))
left('queue', lambda: libc.msgget(4711, 0) >= 0, lambda: libc.msgget(4711, 0o1666))
kept = socket.socket(socket.AF_UNIX)
def listens():
    with socket.socket(socket.AF_UNIX) as other:
        try: other.connect('\0litter')
        except OSError: return False
        return True
left('socket', listens, lambda: (kept.bind('\0litter'), kept.listen()))
left('processes', lambda: len([pid for pid in os.listdir('/proc') if pid.isdigit()]) > 2, lambda: None)
print(sorted(found), flush=True)
"#;

/// One guest is one process, which runs one program. A second one is refused it while the first runs and when it is over,
/// and so is another jail of the same owner; and a fork for that jail finds nothing of what the first one left.
fn once(host: &mut Host) {
    host.launch("one");
    host.launch("two");
    let used = host.guest("one", "owner");
    let running = host.start("one", Some(used), &format!("{LITTER}import sys\nsys.stdin.read()\n"));
    let output = host.from_agent("one", |said| match said {
        FromAgent::Output { id, bytes, .. } if *id == running => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    });
    // The line's end may come as a piece of its own.
    assert_eq!(output.trim_end(), "[]");
    let [zygote] = zygotes(host.launcher())[..] else { panic!("there is one zygote") };
    let in_one = processes(host, "one");
    assert_eq!(in_one.len(), 2, "PID 1 and the guest");
    refused(host, "one", used, "while it runs");
    // The same owner's other jail, while the first one's program is there.
    let fresh = host.guest("two", "owner");
    assert_eq!(zygotes(host.launcher()), [zygote], "forks of one process");
    assert!(in_one.is_disjoint(&processes(host, "two")), "a process is in both jails");
    let ran = host.python("two", Some(fresh), LITTER);
    assert_eq!((ran.stdout.as_str(), ran.ending), ("[]\n", Ending::Code(0)), "{}", ran.stderr);
    // A guest ends with its program, so there is nothing that could serve again.
    host.say("one", &ToAgent::CloseInput { id: running, to: InputStream::Main });
    assert_eq!(host.ran("one", running).ending, Ending::Code(0));
    eventually("what ran is gone", || processes(host, "one").len() == 1 && processes(host, "two").len() == 1);
    refused(host, "one", used, "when it is over");
    refused(host, "two", fresh, "when it is over");
    // And a third one in the first jail finds what is the jail's, and nothing of what is a process's.
    let third = host.guest("one", "owner");
    let ran = host.python("one", Some(third), LITTER);
    for gone in ["module", "environment", "import", "socket", "processes"] {
        assert!(!ran.stdout.contains(gone), "{gone}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("/workspace"), "the same jail has its files: {}", ran.stdout);
}

/// What is in a jail, as the host sees it: numbers with the moments at which they began.
fn processes(host: &Host, jail: &str) -> BTreeSet<(i32, String)> {
    let inside = |pid: &i32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.lines().any(|line| line.ends_with(&format!("/{jail}")))
    };
    let began = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        (pid, after_name.split_whitespace().nth(19).unwrap_or_default().to_owned())
    };
    children(host.launcher()).into_iter().filter(inside).map(began).collect()
}

/// A program for that guest does not start.
fn refused(host: &mut Host, jail: &str, guest: u32, when: &str) {
    let task = host.start(jail, Some(guest), "print('again')");
    let failed = host.from_agent(jail, |said| match said {
        FromAgent::Failed { id, .. } if *id == task => Some(true),
        FromAgent::Started { id, .. } if *id == task => Some(false),
        _ => None,
    });
    assert!(failed, "guest {guest} ran a program for {jail} {when}");
}

fn zygote_rights(host: &mut Host) {
    host.launch("rights");
    host.guest("rights", "owner");
    let [zygote] = zygotes(host.launcher())[..] else { panic!("there is one zygote") };
    let status = fs::read_to_string(format!("/proc/{zygote}/status")).unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    // SETGID, SETUID, SETPCAP, SYS_CHROOT, SYS_ADMIN.
    let kept = format!("{:016x}", 1u64 << 6 | 1 << 7 | 1 << 8 | 1 << 18 | 1 << 21);
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(line(set), kept, "{set}");
    }
    assert_eq!((line("CapInh"), line("CapAmb")), (format!("{:016x}", 0), format!("{:016x}", 0)));
    assert_eq!((line("NoNewPrivs"), line("Threads")), ("1".to_owned(), "1".to_owned()));
    let namespace = |pid: i32, kind: &str| fs::metadata(format!("/proc/{pid}/ns/{kind}")).unwrap().ino();
    for kind in ["mnt", "net", "ipc", "uts"] {
        assert_ne!(namespace(zygote, kind), namespace(host.launcher(), kind), "{kind}");
    }
    let mounts = fs::read_to_string(format!("/proc/{zygote}/mountinfo")).unwrap();
    for mount in mounts.lines() {
        let words: Vec<_> = mount.split(' ').collect();
        assert!(words[5].starts_with("ro") || words[4] == "/dev/null", "{mount}");
        assert!(!mount.contains(" - proc "), "{mount}");
    }
    let open = fs::read_dir(format!("/proc/{zygote}/fd")).unwrap().count();
    // Three null devices, the socket, and what leads back to its own pid namespace.
    assert!(open <= 6, "{open} descriptors");
}

fn charges(host: &mut Host) {
    host.launch("charged");
    let guest = host.guest("charged", "owner");
    let [zygote] = zygotes(host.launcher())[..] else { panic!("there is one zygote") };
    let before = memory(zygote);
    let code = "kept = bytearray(48 << 20)\n\
                for at in range(0, len(kept), 4096): kept[at] = 1\n\
                input_free = sum(range(3_000_000))\n\
                print(open('/proc/self/cgroup').read())\n\
                import time; time.sleep(60)\n";
    let task = host.start("charged", Some(guest), code);
    let lines = host.from_agent("charged", |said| match said {
        sandstorm_agent::protocol::FromAgent::Output { id, bytes, .. } if *id == task => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    });
    assert!(lines.lines().all(|line| line.ends_with(":/") || line.is_empty()), "{lines}");
    let name = "charged".to_owned();
    host.ask(&sandstorm_jail::launcher::Request::Count { name }, &[]);
    let counters = host.hear(|answer, _| match answer {
        sandstorm_jail::launcher::Answer::Counted { counters, .. } => Some(counters.clone().unwrap()),
        _ => None,
    });
    assert!(counters.memory_bytes.unwrap() > 48 << 20, "{counters:?}");
    assert!(counters.cpu_time.unwrap().as_millis() > 5, "{counters:?}");
    assert!(memory(zygote) < before + (8 << 20), "the zygote is charged for its guest");
    // Every process of the jail but PID 1 is the guest, and every group of the one is the other's.
    let groups = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let inside: Vec<String> = children(host.launcher()).into_iter().map(groups).collect();
    let inside: Vec<&String> = inside.iter().filter(|groups| groups.contains("/charged\n")).collect();
    assert_eq!(inside.len(), 2);
    assert_eq!(inside[0], inside[1]);
}

/// What the memory group of a process is charged with.
fn memory(pid: i32) -> u64 {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let v1 = groups.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path.to_owned()));
    let file = match v1 {
        Some(path) => format!("/sys/fs/cgroup/memory{path}/memory.usage_in_bytes"),
        None => {
            let path = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
            format!("/sys/fs/cgroup{path}/memory.current")
        }
    };
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn process_limit(host: &mut Host) {
    let mut spec = Host::spec("few");
    spec.limits.processes = 4;
    host.launch_spec(spec).unwrap();
    let guest = host.guest("few", "owner");
    let code = "import os\n\
                count = 0\n\
                try:\n\
                \x20   while True:\n\
                \x20       if os.fork() == 0:\n\
                \x20           import time; time.sleep(60)\n\
                \x20       count += 1\n\
                except OSError as error: print(count, error.strerror)\n\
                os.killpg(0, 9)\n";
    let ran = host.python("few", Some(guest), code);
    // Four, less PID 1 and the guest itself.
    assert_eq!(ran.stdout, "2 Resource temporarily unavailable\n", "{}", ran.stderr);
}

/// Holds locks and watches, or looks for those of others.
const INODES: &str = include_str!("../../../../tests/escape/inodes.py");

fn on_inodes(mode: &str, places: &[&str]) -> String {
    format!("import sys\nsys.argv[1:] = {:?}\n{INODES}", [&[mode][..], places].concat())
}

/// Jails of one description, of which the first is built by its PID 1 and the others are views of what the launcher has
/// prepared, with guests of the same owner and of another one, and with trees, single files and mounts below a tree.
fn inodes(host: &mut Host) {
    let trees = tempfile::tempdir().unwrap();
    let at = |path: &str| trees.path().join(path);
    let open =
        |path: &Path, mode| fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    open(trees.path(), 0o755).unwrap();
    for folder in ["layer", "layer/below", "mounted"] {
        fs::create_dir(at(folder)).unwrap();
        open(&at(folder), 0o755).unwrap();
    }
    for file in ["layer/file", "small", "mounted/file"] {
        fs::write(at(file), "x").unwrap();
    }
    fs::write(at("large"), vec![b'x'; 3 << 20]).unwrap();
    let mounted = Bound::new(&at("mounted"), at("layer/below"));
    let spec = |name: &str| {
        let mut spec = Host::spec(name);
        let tree = |name: &str| Tree { source: at(name), target: Path::new("/").join(name) };
        // The mount below keeps a root from being prepared, so it is not in all of them.
        let shown: &[&str] = if name == "nested" { &["layer"] } else { &["small", "large"] };
        spec.root.trees.extend(shown.iter().map(|name| tree(name)));
        spec
    };
    for name in ["first", "second", "third", "nested"] {
        host.launch_spec(spec(name)).unwrap();
    }
    let places = [
        "/",
        "/usr",
        "/usr/bin/env",
        "/etc/passwd",
        "/etc/ld.so.cache",
        "/etc/ssl/certs",
        "/dev",
        "/dev/null",
        "/dev/zero",
        "/proc/self/exe",
        "/small",
        "/large",
        "/layer",
        "/layer/file",
        "/layer/below",
        "/layer/below/file",
    ];
    let sources: Vec<String> = places
        .iter()
        .filter(|place| !place.starts_with("/proc"))
        .map(|place| match at(place.trim_start_matches('/')) {
            source if *place != "/" && source.exists() => source.display().to_string(),
            _ => (*place).to_owned(),
        })
        .collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let guests: Vec<(&str, Option<u32>)> = vec![
        ("first", Some(host.guest("first", "one"))),
        ("second", Some(host.guest("second", "one"))),
        ("third", None),
        ("nested", Some(host.guest("nested", "two"))),
    ];
    let holders: Vec<(&str, u32)> = guests
        .iter()
        .map(|(name, guest)| {
            let task = host.start(name, *guest, &on_inodes("hold", &places));
            host.from_agent(name, |said| match said {
                FromAgent::Output { id, bytes, .. } if *id == task => {
                    assert_eq!(String::from_utf8_lossy(bytes), "held\n");
                    Some(())
                }
                FromAgent::Exited { id, .. } if *id == task => panic!("{name}: it ended"),
                _ => None,
            });
            (*name, task)
        })
        .collect();
    // Jails that begin, guests that come, programs that open all of it, and the host.
    host.launch_spec(spec("fourth")).unwrap();
    let guest = host.guest("fourth", "one");
    for guest in [Some(guest), None] {
        let looked = host.python("fourth", guest, &on_inodes("look", &places));
        assert_eq!((looked.stdout.as_str(), looked.stderr.as_str()), ("[]\n", ""), "guest {guest:?}");
    }
    let looked = Command::new(PYTHON).args(["-c", INODES, "look"]).args(&sources).output().unwrap();
    let said = String::from_utf8_lossy(&looked.stdout);
    assert_eq!(said, "[]\n", "on the host: {}", String::from_utf8_lossy(&looked.stderr));
    for (name, task) in holders {
        let bytes = b"\n".to_vec().into();
        host.say(name, &ToAgent::Input { id: task, to: InputStream::Main, bytes });
        let ran = host.ran(name, task);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("[]\n", ""), "{name}");
    }
    drop(mounted);
}

/// A folder that is shown at another place of the host, too.
struct Bound(PathBuf);

impl Bound {
    fn new(what: &Path, place: PathBuf) -> Self {
        rustix::mount::mount_bind(what, &place).unwrap();
        Self(place)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

fn scores(host: &mut Host) {
    let first = host.launch_spec(Host::spec("scores")).unwrap();
    let guest = host.guest("scores", "owner");
    let agents = fs::read_to_string(format!("/proc/{first}/oom_score_adj")).unwrap();
    let agents: i32 = agents.trim().parse().unwrap();
    assert!(agents > 0, "it hides behind the host's processes");
    let code = format!(
        "import os\n\
         def score(to):\n\
         \x20   try:\n\
         \x20       with open('/proc/self/oom_score_adj', 'w') as file: file.write(str(to))\n\
         \x20   except OSError as error: first = error.strerror\n\
         \x20   else: return None\n\
         \x20   try: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), str(to).encode())\n\
         \x20   except OSError as error: return first if first == error.strerror else (first, error.strerror)\n\
         \x20   return 'written without truncation'\n\
         print(score(0), score({agents} - 1), score({agents}), open('/proc/self/oom_score_adj').read().strip())\n"
    );
    // Landlock lets no payload write to any score. Without it, whoever has the privilege to lower a score has set the lowest
    // with it; some hosts keep that from root.
    let privilege = rustix::thread::CapabilitySet::SYS_RESOURCE;
    let held = rustix::thread::capabilities(None).unwrap().effective.contains(privilege);
    let no = "Permission denied";
    let payloads = sandstorm_agent::PAYLOAD_RANK.max(agents);
    let expected = match (sandstorm_jail::landlock::kernel_abi() > 0, held) {
        (true, _) => format!("{no} {no} {no} {payloads}\n"),
        (false, true) => format!("{no} {no} None {agents}\n"),
        (false, false) => format!("None None None {agents}\n"),
    };
    for guest in [Some(guest), None] {
        let ran = host.python("scores", guest, &code);
        assert_eq!(ran.stdout, expected, "guest {guest:?}: {}", ran.stderr);
    }
    let after = fs::read_to_string(format!("/proc/{first}/oom_score_adj")).unwrap();
    assert_eq!(after.trim(), agents.to_string(), "it has the score of a program after it started one");
}

fn signals(host: &mut Host) {
    host.launch("signals");
    let guest = host.guest("signals", "owner");
    let task = host.start("signals", Some(guest), "import os, time\nprint(os.getpid())\ntime.sleep(60)\n");
    let pid = host.from_agent("signals", |said| match said {
        sandstorm_agent::protocol::FromAgent::Output { id, bytes, .. } if *id == task => {
            Some(String::from_utf8_lossy(bytes).trim().to_owned())
        }
        _ => None,
    });
    let code = format!("import os\nprint('{pid}' in os.listdir('/proc'))\nos.kill({pid}, 15)\n");
    let ran = host.python("signals", None, &code);
    // Each is under Landlock by itself, so neither may look into the other, nor list it.
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("False\n", ""));
    assert_eq!(host.ran("signals", task).ending, Ending::Signal(15));
}
