//! What several jails have one after the other or at the same time: groups and prepared roots. Nobody can tell.

use std::fs;
use std::time::Duration;

use sandstorm_jail::Tree;
use sandstorm_jail::cgroup::Counters;
use sandstorm_jail::launcher::{Answer, Request};

use crate::Case;
use crate::host::{Host, eventually};

pub(crate) const CASES: &[Case] = &[
    ("groups that nothing happened to serve the next jail, which starts from nothing", groups_again),
    ("groups in which a limit was met serve nobody again", groups_that_refused),
    ("groups that were frozen serve nobody again", groups_that_were_frozen),
    ("jails with other limits have other groups", other_limits),
    ("a prepared root shows what one shows that PID 1 built", same_root),
    ("a tree that was replaced on the host is seen by the next jail", replaced_tree),
];

/// The group of a jail that counts its memory, if that is one that could be used again: beside a unified tree.
fn memory_group(host: &mut Host, name: &str) -> Option<String> {
    let pid = host.launch_spec(Host::spec(name)).unwrap();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    assert!(unified.ends_with(&format!("/{name}")), "{groups}");
    groups.lines().find_map(|line| line.split_once(":memory:")).map(|(_, path)| path.to_owned())
}

fn counters(host: &mut Host, name: &str) -> Counters {
    host.ask(&Request::Count { name: name.to_owned() }, &[]);
    host.hear(|answer, _| match answer {
        Answer::Counted { counters, .. } => Some(counters.clone().unwrap()),
        _ => None,
    })
}

/// The groups of a jail that did something, and those of the next one.
fn before_and_after(host: &mut Host, act: impl FnOnce(&mut Host)) -> Option<(String, String)> {
    let before = memory_group(host, "before")?;
    act(host);
    host.kill("before");
    wait_until_unused(&before);
    Some((before, memory_group(host, "after")?))
}

/// What a jail used goes a moment after it: its processes from the group, and its memory from the count.
fn wait_until_unused(group: &str) {
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/memory{group}/{name}"));
    eventually("the group is still in use", || match (read("cgroup.procs"), read("memory.usage_in_bytes")) {
        (Ok(processes), Ok(bytes)) => processes.is_empty() && bytes.trim().parse::<u64>().unwrap() < 1 << 20,
        _ => true,
    });
    // The launcher looks at it in its own time.
    std::thread::sleep(Duration::from_millis(200));
}

fn groups_again(host: &mut Host) {
    let mut used = None;
    let found = before_and_after(host, |host| {
        let code = "kept = bytearray(64 << 20)\n\
                    for at in range(0, len(kept), 4096): kept[at] = 1\n\
                    sum(range(3_000_000))\n\
                    open('/tmp/file', 'wb').write(bytes(8 << 20))\n";
        assert_eq!(host.python("before", None, code).stderr, "");
        used = Some(counters(host, "before"));
    });
    let Some((before, after)) = found else { return };
    assert_eq!(before, after, "the groups were not used again");
    let (used, now) = (used.unwrap(), counters(host, "after"));
    assert!(used.peak_memory_bytes.unwrap() > 64 << 20, "{used:?}");
    assert!(now.peak_memory_bytes.unwrap() < 16 << 20, "{now:?}");
    assert!(now.memory_bytes.unwrap() < 16 << 20, "{now:?}");
    assert!(now.cpu_time.unwrap() < used.cpu_time.unwrap() / 2, "{now:?} after {used:?}");
    assert_eq!((now.memory_kills, now.process_refusals, now.processes), (Some(0), Some(0), Some(1)));
}

fn groups_that_refused(host: &mut Host) {
    let found = before_and_after(host, |host| {
        let code = "import os, signal\n\
                    try:\n\
                    \x20   while True:\n\
                    \x20       if os.fork() == 0: signal.pause()\n\
                    except OSError: os.killpg(0, 9)\n";
        host.python("before", None, code);
        assert!(counters(host, "before").process_refusals.unwrap() > 0);
    });
    let Some((before, after)) = found else { return };
    assert_ne!(before, after);
    assert_eq!(counters(host, "after").process_refusals, Some(0));
}

fn groups_that_were_frozen(host: &mut Host) {
    let found = before_and_after(host, |host| {
        host.ask(&Request::Pause { name: "before".to_owned() }, &[]);
        host.done("before").unwrap();
        host.ask(&Request::Resume { name: "before".to_owned() }, &[]);
        host.done("before").unwrap();
    });
    let Some((before, after)) = found else { return };
    assert_ne!(before, after);
}

fn other_limits(host: &mut Host) {
    let Some(before) = memory_group(host, "before") else { return };
    host.kill("before");
    wait_until_unused(&before);
    let mut spec = Host::spec("after");
    spec.limits.memory_bytes += 1 << 20;
    let pid = host.launch_spec(spec).unwrap();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(!groups.contains(&before), "{groups}");
}

/// Every mount, every name in the directories that are made for a jail, and what cannot be written to.
const LOOK: &str = "import os\n\
    for line in sorted(open('/proc/self/mountinfo')):\n\
    \x20   front, back = line.split(' - ')\n\
    \x20   print(front.split()[4:6], back.split()[0])\n\
    for top in ('/', '/etc', '/dev', '/etc/ssl', '/home'):\n\
    \x20   print(top, oct(os.stat(top).st_mode))\n\
    \x20   for name in sorted(os.listdir(top)):\n\
    \x20       path = os.path.join(top, name)\n\
    \x20       link = os.readlink(path) if os.path.islink(path) else ''\n\
    \x20       print(path, oct(os.lstat(path).st_mode), link)\n\
    for path in ('/etc/passwd', '/etc/hosts', '/etc/resolv.conf'): print(open(path).read())\n\
    for path in ('/x', '/etc/x', '/dev/x', '/etc/passwd', '/proc/sys/kernel/hostname', '/proc/kcore'):\n\
    \x20   try: open(path, 'a').close(); print(path, 'written')\n\
    \x20   except OSError as error: print(path, error.errno)\n";

fn same_root(host: &mut Host) {
    let mut seen: Vec<Vec<String>> = Vec::new();
    for name in ["built", "prepared", "copied"] {
        host.launch(name);
        let ran = host.python(name, None, LOOK);
        assert_eq!(ran.stderr, "");
        seen.push(sorted(&ran.stdout));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

/// Mounts are listed in the order in which they were made.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn replaced_tree(host: &mut Host) {
    let place = tempfile::tempdir().unwrap();
    let shown = place.path().join("shown");
    let put = |content: &str| {
        fs::create_dir(&shown).unwrap();
        fs::write(shown.join("file"), content).unwrap();
    };
    put("old");
    let mut see = |name: &str| {
        let mut spec = Host::spec(name);
        spec.root.trees.push(Tree { source: shown.clone(), target: "/opt/shown".into() });
        host.launch_spec(spec).unwrap();
        host.python(name, None, "print(open('/opt/shown/file').read(), end='')\n").stdout
    };
    for name in ["one", "two", "three"] {
        assert_eq!(see(name), "old", "{name}");
    }
    fs::rename(&shown, place.path().join("away")).unwrap();
    put("new");
    assert_eq!(see("four"), "new");
}
