//! The mold of all PID 1s, how it is replaced, and what many jails need of their launcher.

use std::fs;

use rustix::process::{Pid, Resource, Signal, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::Case;
use crate::host::{Host, children, zygotes};

pub(crate) const CASES: &[Case] = &[
    ("a mold that ended is replaced", mold_dies),
    ("jails outlive the mold that they came from", jails_outlive_mold),
    ("PID 1 has nothing of the mold's or the launcher's open", descriptors_of_init),
    ("PID 1 cannot be told from one that was executed", same_name),
    ("the launcher's limit of descriptors is its own", limits),
    ("many joinable jails need few descriptors of their launcher each", many),
];

/// Those that take long: `cargo test -p sandstorm-jail --test guests -- --ignored`.
pub(crate) const LONG_CASES: &[Case] = &[("a thousand joinable jails at once", thousand)];

/// What a joinable jail may need of its launcher when there are many: 1,000 have to fit into a common limit of 20,000.
const DESCRIPTORS_EACH: usize = 14;

/// The mold of a launcher: the child with the agent's name that is in no namespace of its own.
fn mold(launcher: i32) -> i32 {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let is_mold =
        |pid: &i32| command_line(*pid) == "sandstorm-agent\0" && namespace(*pid) == namespace(launcher);
    let found: Vec<i32> = children(launcher).into_iter().filter(is_mold).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn command_line(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

fn descriptors(pid: i32) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    open.flatten().filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string())).collect()
}

fn kill_mold(host: &Host) -> i32 {
    let old = mold(host.launcher());
    rustix::process::kill_process(Pid::from_raw(old).unwrap(), Signal::KILL).unwrap();
    old
}

fn mold_dies(host: &mut Host) {
    host.launch("before");
    let old = kill_mold(host);
    host.launch("after");
    assert_ne!(mold(host.launcher()), old);
    assert_eq!(host.python("after", None, "print('runs')").stdout, "runs\n");
}

fn jails_outlive_mold(host: &mut Host) {
    host.launch("old");
    kill_mold(host);
    assert_eq!(host.python("old", None, "print('lives')").stdout, "lives\n");
    assert_eq!(host.kill("old").stuck, Vec::<String>::new());
}

fn descriptors_of_init(host: &mut Host) {
    // Whatever the launcher holds of another jail is not in this one.
    host.launch("first");
    let pid = host.launch_spec(Host::spec("second")).unwrap();
    let open = descriptors(pid);
    let count = |kind: &str| open.iter().filter(|name| name.contains(kind)).count();
    // The null device up to descriptor 2 and, since the control socket moved, nothing else; its host, its door, its own score,
    // its children.
    assert_eq!((count("socket:"), count("signalfd"), count("/proc/1/oom_score_adj")), (2, 1, 1), "{open:?}");
    assert_eq!(count("/dev/null") + 4, open.len(), "{open:?}");
    assert!(open.len() <= 8, "{open:?}");
}

fn same_name(host: &mut Host) {
    let pid = host.launch_spec(Host::spec("named")).unwrap();
    assert_eq!(command_line(pid), "sandstorm-agent\0");
    assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
    let seen = "import os\n\
                def attempt(what):\n\
                \x20   try: what(); return 'yes'\n\
                \x20   except OSError as e: return e.strerror\n\
                for name in ('environ', 'maps', 'mem', 'exe', 'fd', 'root', 'ns/pid'):\n\
                \x20   path = '/proc/1/' + name\n\
                \x20   look = os.readlink if name in ('exe', 'root', 'ns/pid') else (os.listdir if name == 'fd' else open)\n\
                \x20   print(name, attempt(lambda: look(path)))\n";
    let ran = host.python("named", None, seen);
    assert!(!ran.stdout.contains("yes") && ran.stderr.is_empty(), "{ran:?}");
}

fn limit_of(pid: i32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

fn limits(host: &mut Host) {
    let pid = host.launch_spec(Host::spec("limited")).unwrap();
    let guest = host.guest("limited", "owner");
    let ours = getrlimit(Resource::Nofile).maximum.unwrap().to_string();
    let may_raise = capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE);
    let most = fs::read_to_string("/proc/sys/fs/nr_open").unwrap().trim().to_owned();
    let most = if may_raise { most } else { ours.clone() };
    assert_eq!(limit_of(host.launcher()), [most.as_str(); 2]);
    for pid in [pid, mold(host.launcher()), zygotes(host.launcher())[0]] {
        assert_eq!(limit_of(pid), [ours.as_str(); 2], "{}", command_line(pid));
    }
    let asked = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\n";
    assert_eq!(host.python("limited", Some(guest), asked).stdout, "(256, 256)\n");
    assert_eq!(host.python("limited", None, asked).stdout, "(256, 256)\n");
}

fn many(host: &mut Host) {
    // As long as there are few, more is kept open for the jails that come after them.
    launch_many(host, 0..140);
    let before = descriptors(host.launcher()).len();
    launch_many(host, 140..200);
    let open = descriptors(host.launcher());
    let each = (open.len() - before) / 60;
    assert!(each <= DESCRIPTORS_EACH, "{each} descriptors for each jail: {:?}", &open[before..before + each]);
    // The first guest brings the zygote.
    run_guest(host, "many-198");
    let before = descriptors(host.launcher()).len();
    run_guest(host, "many-199");
    let after = descriptors(host.launcher()).len();
    assert!(after <= before, "a guest that is gone leaves {} descriptors open", after - before);
}

fn run_guest(host: &mut Host, jail: &str) {
    let guest = host.guest(jail, "owner");
    assert_eq!(host.python(jail, Some(guest), "print('runs')").stdout, "runs\n");
}

fn thousand(host: &mut Host) {
    launch_many(host, 0..1000);
    run_guest(host, "many-999");
}

fn launch_many(host: &mut Host, which: std::ops::Range<usize>) {
    for index in which {
        host.launch(&format!("many-{index}"));
    }
}
