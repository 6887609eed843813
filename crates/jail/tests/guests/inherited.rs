//! What processes of a jail have from the processes that made it: no memory and no descriptor of the host's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandstorm_agent::protocol::{FileTask, Task, ToAgent};

use crate::Case;
use crate::host::{Host, MARK, PYTHON, children, eventually, zygotes};

pub(crate) const CASES: &[Case] = &[
    ("no process of a jail has memory of its host", memory),
    ("no process of a jail has a descriptor of its host", descriptors),
];

/// A jail with one process of each kind: PID 1, a helper, a guest that waits, one that runs a program, and a program of the
/// agent. Their pids on the host, with the mold's and the zygote's.
fn populated(host: &mut Host, name: &str) -> Vec<(&'static str, i32)> {
    let first = host.launch_spec(Host::spec(name)).unwrap();
    let running = host.guest(name, "owner");
    host.guest(name, "owner");
    let sleep = "import time\ntime.sleep(600)\n";
    host.start(name, Some(running), sleep);
    host.start(name, None, sleep);
    // It waits for what it is to write.
    let helper = FileTask::Write { path: b"/workspace/later".to_vec().into(), mode: 0o644 };
    host.say(name, &ToAgent::Start { id: 9999, lasting: None, task: Task::File(helper) });
    eventually("a program and a helper run", || children(first).len() == 2);
    let launcher = host.launcher();
    let [zygote] = zygotes(launcher)[..] else { panic!("there is one zygote") };
    let mut all = vec![("PID 1", first), ("zygote", zygote)];
    all.extend(children(first).into_iter().map(|pid| ("child of the agent", pid)));
    let others = children(launcher).into_iter().filter(|pid| ![first, zygote].contains(pid));
    all.extend(others.map(|pid| ("mold or guest", pid)));
    assert!(all.len() >= 7, "{all:?}");
    all
}

/// The host's memory is full of a mark when it forks its launcher.
fn memory(host: &mut Host) {
    let all = populated(host, "memory");
    let launcher = host.launcher();
    assert!(count_marks(launcher) > 0, "the launcher is a copy of its host: the search finds nothing");
    for (kind, pid) in all {
        assert_eq!(count_marks(pid), 0, "{kind}");
    }
}

/// Looks through everything that a process has mapped. What is only reserved is nobody's memory.
const LOOK: &str = r"
import sys
wanted, looked, found = ''.join(sys.argv[2:]).encode(), 0, 0
with open(f'/proc/{sys.argv[1]}/maps') as maps, open(f'/proc/{sys.argv[1]}/mem', 'rb', 0) as memory:
    for line in maps:
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split('-'))
        if 'r' not in rights or '[v' in line or end - start > 1 << 30: continue
        memory.seek(start)
        try: content = memory.read(end - start)
        except OSError: continue
        looked += len(content)
        found += content.count(wanted)
print(found if looked > 100000 else 'nothing was read')
";

/// How often the mark is in the memory of a process.
fn count_marks(pid: i32) -> usize {
    let output = Command::new(PYTHON).args(["-c", LOOK, &pid.to_string()]).args(MARK).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().unwrap_or_else(|_| panic!("{pid}: {said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// One file is open when the launcher is forked, and nothing but the product's own care closes it. Files that the host opens
/// later cannot come along: a process with threads may not fork, which `sandstorm_sys::fork` refuses and tests.
fn descriptors(host: &mut Host) {
    let marked = host.path("inherited");
    let named = |pid: i32, path: &Path| links(pid).iter().filter(|link| *link == path).count();
    assert!(named(host.launcher(), &marked) > 0, "the launcher is a copy of its host");
    for round in 0..2 {
        let name = format!("round-{round}");
        for (kind, pid) in populated(host, &name) {
            assert_eq!(named(pid, &marked), 0, "{kind} in {name}");
        }
        let guest = host.guest(&name, "owner");
        for guest in [Some(guest), None] {
            let code = "import os\nfor fd in range(4096):\n\
                        \x20   try: print(fd, os.readlink(f'/proc/self/fd/{fd}').split(':')[0])\n\
                        \x20   except OSError: pass\n";
            let ran = host.python(&name, guest, code);
            assert_eq!(ran.stdout, "0 pipe\n1 pipe\n2 pipe\n", "guest {guest:?} in {name}: {}", ran.stderr);
        }
        host.kill(&name);
    }
}

/// What the descriptors of a process are.
fn links(pid: i32) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}
