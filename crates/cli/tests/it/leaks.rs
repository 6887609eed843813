//! Many runs at once, some of them killed from outside: when all is over, nothing of them is left.
//!
//! The runs happen in a pid namespace and with a `/run` of their own, so that everything that exists there is theirs
//! and can be counted. The test binary starts itself again inside.

mod served;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{self, Who};

/// How many at the same time.
const CROWD: usize = 16;

/// Set inside; holds the number of runs.
const RUNS: &str = "SANDSTORM_TEST_RUNS";

/// Set inside; holds a folder of the test's own.
const PLACE: &str = "SANDSTORM_TEST_PLACE";

/// The shell stays as PID 1 and reaps whatever loses its parent, as every machine's PID 1 does.
const STAGE: &str = "mount -t tmpfs none /run; \"$@\"; code=$?; exit $code";

/// Runs one of the tests below that happen on the stage.
fn stage(scene: &str, runs: usize) {
    if !rustix::process::geteuid().is_root() {
        return support::skip("only root can make a pid namespace for the tests");
    }
    let place = support::Place::new();
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", STAGE, "bash"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", scene, "--include-ignored", "--nocapture"])
        .env(RUNS, runs.to_string())
        .env(PLACE, place.path())
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    let told = format!("{}\n{}", support::stdout(&output), support::stderr(&output));
    assert!(output.status.success() && told.contains("nothing is left"), "{told}");
}

#[test]
fn a_crowd_of_runs_leaves_nothing_behind() {
    stage("leaks::inside", 120);
}

#[test]
#[ignore = "long"]
fn thousands_of_runs_leave_nothing_behind() {
    stage("leaks::inside", 2000);
}

/// What exists on the stage.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    processes: BTreeMap<i32, String>,
    /// Namespaces that some process is in.
    namespaces: usize,
    mounts: usize,
    groups: Vec<PathBuf>,
    leases: usize,
    descriptors: usize,
    /// Everything in the folders for state, leases and temporary files, but not what caches keep.
    files: Vec<PathBuf>,
}

impl Counts {
    fn take(place: &Path, parent: &str) -> Self {
        let pids = entries(Path::new("/proc"))
            .into_iter()
            .filter_map(|p| p.file_name()?.to_str()?.parse::<i32>().ok());
        let named =
            pids.filter_map(|pid| Some((pid, std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?)));
        let processes: BTreeMap<i32, String> =
            named.map(|(pid, name)| (pid, name.trim_end().to_owned())).collect();
        let links = processes.keys().flat_map(|pid| entries(&PathBuf::from(format!("/proc/{pid}/ns"))));
        let mut namespaces: Vec<PathBuf> = links.filter_map(|link| std::fs::read_link(link).ok()).collect();
        namespaces.sort();
        namespaces.dedup();
        let mut files = entries(place);
        files.extend(entries(Path::new("/run/sandstorm")));
        files.sort();
        Self {
            processes,
            namespaces: namespaces.len(),
            mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            groups: groups(parent),
            leases: leases(place),
            descriptors: entries(Path::new("/proc/self/fd")).len(),
            files,
        }
    }
}

impl Counts {
    /// What ended with its run may take a moment to be collected.
    #[expect(clippy::print_stderr, reason = "by this the stage tells that it came to its end")]
    fn is_all_that_is_left(&self, place: &Path, parent: &str) {
        let began = Instant::now();
        let mut after = Self::take(place, parent);
        while after != *self && began.elapsed() < support::PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            after = Self::take(place, parent);
        }
        remove_parent(parent);
        assert_eq!(after, *self);
        eprintln!("nothing is left");
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .map(|found| found.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// Groups of jails and instances, in every hierarchy. The parent itself stays for the next instance.
fn groups(parent: &str) -> Vec<PathBuf> {
    let hierarchies =
        entries(Path::new("/sys/fs/cgroup")).into_iter().chain([PathBuf::from("/sys/fs/cgroup")]);
    let below = |dir: PathBuf| entries(&dir.join(parent)).into_iter().filter(|path| path.is_dir());
    hierarchies.flat_map(below).collect()
}

/// Takes the parent of all groups away.
fn remove_parent(parent: &str) {
    for hierarchy in entries(Path::new("/sys/fs/cgroup")).into_iter().chain([PathBuf::from("/sys/fs/cgroup")])
    {
        let _ = std::fs::remove_dir(hierarchy.join(parent));
    }
}

fn leases(place: &Path) -> usize {
    [Path::new("/run/sandstorm/instances"), &place.join("runtime/sandstorm/instances")]
        .iter()
        .map(|dir| entries(dir).len())
        .sum()
}

/// Programs that try to leave something, with what an undisturbed run of each ends with. Only one of them is to end by its
/// time, on a machine that is as busy as they make it.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("echo hello", "ok", "5m"),
    ("(setsid bash -c 'trap \"\" TERM HUP; sleep 600' &); exit 0", "ok", "5m"),
    ("for i in 1 2 3 4 5; do sleep 600 & done; kill -STOP -1; exit 3", "error", "5m"),
    ("sleep 600", "timeout", "1s"),
    ("head -c 3M /dev/zero >/tmp/a; mkdir -p /tmp/b/c/d; mkfifo /tmp/pipe; sleep 0.1", "ok", "5m"),
    ("yes", "output", "5m"),
];

/// How a run is disturbed.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Client,
    Launcher,
    Both,
    Polite,
}

const BLOWS: [Blow; 4] = [Blow::Client, Blow::Launcher, Blow::Both, Blow::Polite];

fn one_run(number: usize, place: &Path) {
    let who = if number % 5 == 4 { Who::Ranged } else { Who::Root };
    let (code, status, time) = PROGRAMS[number % PROGRAMS.len()];
    let mut command = support::sandstorm(who);
    command
        .args(["run", "--json", "--timeout", time, "--output", "64K", "--config"])
        .arg(place.join("config.yaml"));
    command.args(["-l", "bash", "-c", code]).env("XDG_RUNTIME_DIR", place.join("runtime"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if number % 4 == 3 {
        let blow = BLOWS[number / 4 % BLOWS.len()];
        // Over the whole life of a run: before there is a jail, while one is made, while its program runs.
        std::thread::sleep(Duration::from_millis((number as u64 * 37) % 300));
        strike(&child, blow);
        let began = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(
            began.elapsed() < support::PATIENCE,
            "run {number} took {:?} to end after {blow:?}",
            began.elapsed()
        );
        assert!(!support::stderr(&output).contains("panicked"), "{}", support::stderr(&output));
        return;
    }
    let output = child.wait_with_output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("run {number} as {who:?}: {e}: {}", support::stderr(&output)));
    assert_eq!(result["status"], status, "run {number} as {who:?}: {result:#}");
}

fn strike(client: &Child, blow: Blow) {
    // Not reaped yet, so its number cannot be another's.
    let client = i32::try_from(client.id()).unwrap();
    let children =
        std::fs::read_to_string(format!("/proc/{client}/task/{client}/children")).unwrap_or_default();
    let launcher = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    let kill = |pid: i32, signal| {
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
    };
    match (blow, launcher) {
        (Blow::Polite, _) => kill(client, Signal::TERM),
        (Blow::Client, _) | (_, None) => kill(client, Signal::KILL),
        (Blow::Launcher, Some(launcher)) => kill(launcher, Signal::KILL),
        (Blow::Both, Some(launcher)) => {
            kill(launcher, Signal::KILL);
            kill(client, Signal::KILL);
        }
    }
}

fn honest_run(who: Who, place: &Path) {
    let mut command = support::sandstorm(who);
    command.args(["run", "--config"]).arg(place.join("config.yaml")).args(["-l", "bash", "-c", "echo fine"]);
    let output = command.env("XDG_RUNTIME_DIR", place.join("runtime")).output().unwrap();
    assert_eq!(support::stdout(&output), "fine\n", "{who:?}: {}", support::stderr(&output));
}

/// A counter that sees nothing proves nothing.
fn see_a_living_run(place: &Path, parent: &str, before: &Counts) {
    let mut command = support::sandstorm(Who::Root);
    command.args(["run", "--config"]).arg(place.join("config.yaml")).args(["-l", "bash", "-c", "sleep 600"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    support::eventually("a living run shows", || {
        let seen = Counts::take(place, parent);
        // Client, launcher, mold, agent, shell and sleep; user, pid, mount, network, ipc, uts and cgroup namespace.
        seen.processes.len() == before.processes.len() + 6
            && seen.namespaces >= before.namespaces + 7
            && seen.leases == 1
            && !seen.groups.is_empty()
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "the part of the tests above that happens on their stage"]
fn inside() {
    use std::os::unix::fs::PermissionsExt;
    let (Ok(runs), Ok(place)) = (std::env::var(RUNS), std::env::var(PLACE)) else { return };
    let runs: usize = runs.parse().unwrap();
    let place = PathBuf::from(place);
    let parent = format!(
        "sandstorm-leaks-{}-{runs}",
        place.file_name().unwrap().to_str().unwrap().trim_start_matches('.')
    );
    std::fs::write(place.join("config.yaml"), format!("cgroup_parent: {parent}\n")).unwrap();
    std::fs::create_dir(place.join("runtime")).unwrap();
    std::fs::set_permissions(place.join("runtime"), std::fs::Permissions::from_mode(0o777)).unwrap();
    for who in [Who::Root, Who::Ranged] {
        honest_run(who, &place);
    }
    let before = Counts::take(&place, &parent);
    assert!(before.groups.is_empty() && before.leases == 0, "{before:#?}");

    see_a_living_run(&place, &parent, &before);

    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return;
                    }
                    one_run(number, &place);
                }
            });
        }
    });
    // What was killed with its launcher goes by itself; its groups and its lease go with the next run.
    support::eventually("every process is gone", || {
        Counts::take(&place, &parent).processes.len() <= before.processes.len()
    });
    for who in [Who::Root, Who::Ranged] {
        honest_run(who, &place);
    }
    before.is_all_that_is_left(&place, &parent);
}
