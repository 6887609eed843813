//! Ctrl-C in the middle: the program ends, nothing is left, and nobody waits.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{PATIENCE, Place, Who, eventually, processes_with, sandstorm};

/// A run with a control group parent of its own, so that what it leaves can be told from what other tests do.
struct Watched {
    child: Child,
    parent: String,
}

impl Watched {
    fn start(name: &str, args: &[&str]) -> Self {
        let parent = format!("sandstorm-it-{name}-{}", std::process::id());
        let mut command = sandstorm(Who::Root);
        command.env("SANDSTORM_CGROUP_PARENT", &parent).arg("run").args(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, parent }
    }

    fn groups(&self) -> Vec<PathBuf> {
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|e| e.path());
        let parents = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]).map(|dir| dir.join(&self.parent));
        parents
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flatten()
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.is_dir())
            .collect()
    }

    fn interrupt(&self, signal: Signal) -> Instant {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        Instant::now()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for dir in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            let _ = std::fs::remove_dir(dir.path().join(&self.parent));
        }
    }
}

#[test]
fn a_program_is_ended_at_once_and_nothing_is_left() {
    for (name, signal) in [("interrupt", Signal::INT), ("terminate", Signal::TERM)] {
        // Deaf to every polite signal.
        let marker = format!("sleep 300.{}{}", std::process::id(), signal.as_raw());
        let script = format!("trap '' INT TERM HUP; echo up; while :; do {marker}; done");
        let mut run = Watched::start(name, &["-l", "bash", "-c", &script]);
        let mut lines = BufReader::new(run.child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        assert!(!run.groups().is_empty(), "there is no group to look at");
        let since = run.interrupt(signal);
        let status = run.child.wait().unwrap();
        assert!(since.elapsed() < PATIENCE, "took {:?}", since.elapsed());
        assert_eq!(status.code(), Some(137));
        let mut said = String::new();
        run.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "sandstorm: cancelled\n");
        assert_eq!(run.groups(), Vec::<PathBuf>::new());
        eventually("the program is gone", || processes_with(&marker).is_empty());
    }
}

/// While its sandbox is made, just after, and while it works.
#[test]
fn a_compiler_is_ended_too() {
    let place = Place::new();
    let endless = "constexpr long f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n\
                   int main() { constexpr long x = f(90); return x; }\n";
    let file = place.write("endless.cpp", endless);
    for delay in [0, 40, 400] {
        let mut run = Watched::start("compiler", &[file.to_str().unwrap()]);
        eventually("a sandbox is being made", || !run.groups().is_empty());
        std::thread::sleep(Duration::from_millis(delay));
        let since = run.interrupt(Signal::INT);
        let status = run.child.wait().unwrap();
        assert!(since.elapsed() < PATIENCE, "took {:?}", since.elapsed());
        let mut said = String::new();
        run.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((status.code(), run.groups()), (Some(137), Vec::new()), "after {delay} ms: {said}");
        assert!(said.ends_with("sandstorm: cancelled\n"), "after {delay} ms: {said}");
    }
}

#[test]
fn nobody_waits_for_a_reader_that_does_not_read() {
    let mut run = Watched::start("reader", &["-l", "bash", "-c", "while :; do echo and so on and on; done"]);
    let mut reader = BufReader::new(run.child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    // The pipe fills up while nobody reads on.
    std::thread::sleep(Duration::from_millis(500));
    run.interrupt(Signal::INT);
    eventually("it ends", || run.child.try_wait().unwrap().is_some());
    assert_eq!(run.child.wait().unwrap().code(), Some(137));
    assert_eq!(run.groups(), Vec::<PathBuf>::new());
}
