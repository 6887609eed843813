//! Runs that are ended from outside, and readers that do not read.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Who};

/// Seconds to sleep that no other test sleeps: how a program is found from outside.
fn mark(number: u32) -> String {
    format!("{}.{number}", 10_000 + std::process::id() % 50_000)
}

fn start(who: Who, args: &[&str]) -> Child {
    let mut all = vec!["run"];
    all.extend(args);
    support::sandstorm(who).args(all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn ctrl_c_ends_the_run_and_leaves_nothing() {
    use rustix::process::Signal;
    for (number, (who, how)) in
        [(Who::Root, Signal::INT), (Who::Ranged, Signal::INT), (Who::Single, Signal::TERM)]
            .into_iter()
            .enumerate()
    {
        if !Who::all().contains(&who) {
            continue;
        }
        let mark = format!("sleep {}", mark(number as u32));
        let script = format!("trap '' INT TERM; (setsid {mark} &); echo up; {mark}");
        let mut child = start(who, &["-l", "bash", "-c", &script, "--json"]);
        support::eventually("the program runs", || support::processes_with(&mark).len() == 2);
        let began = Instant::now();
        signal(&child, how);
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(137), "{who:?}");
        assert!(began.elapsed() < support::PATIENCE, "{who:?} took {:?}", began.elapsed());
        assert_eq!(support::processes_with(&mark), Vec::<i32>::new(), "{who:?}");
        let mut result = String::new();
        child.stdout.take().unwrap().read_to_string(&mut result).unwrap();
        let result: serde_json::Value = serde_json::from_str(&result).unwrap();
        assert_eq!((&result["status"], &result["stdout"]), (&"killed".into(), &"up\n".into()), "{result:#}");
    }
}

#[test]
fn ctrl_c_ends_a_compile() {
    let place = support::Place::new();
    // Deep templates keep the compiler busy for far longer than this test waits.
    let code = "template<int N, int M> struct F { static const long v = F<N-1, M>::v + F<N-1, M+1>::v; };\n\
                template<int M> struct F<0, M> { static const long v = M; };\nint main() { return F<800, 0>::v; }";
    let file = place.write("slow.cpp", code);
    let child = start(Who::Root, &[file.to_str().unwrap(), "--json"]);
    // Below this one: other tests compile as well.
    let mut compilers = Vec::new();
    support::eventually("the compiler runs", || {
        compilers = support::descendants_named(child.id(), "cc1plus");
        !compilers.is_empty()
    });
    signal(&child, rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(137), "{}", support::stderr(&output));
    assert!(compilers.iter().all(|pid| !support::is_named(*pid, "cc1plus")), "{compilers:?} compile on");
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// A reader that does not read stops the program through its pipe, but not the clock, and costs no memory.
#[test]
fn a_slow_reader_costs_no_memory_and_no_time() {
    let mark = mark(10);
    let script = format!("exec -a 'flood {mark}' yes");
    let mut child = start(Who::Root, &["-l", "bash", "-c", &script, "--output", "1G", "--timeout", "4s"]);
    let name = format!("flood {mark}");
    support::eventually("the program runs", || !support::processes_with(&name).is_empty());
    std::thread::sleep(Duration::from_secs(1));
    let early = resident_kib(child.id());
    std::thread::sleep(Duration::from_secs(2));
    let late = resident_kib(child.id());
    // What it wrote in that time would be hundreds of megabytes; its buffers may still have been filling up.
    assert!(early > 0 && late < early + (32 << 10), "grew from {early} KiB to {late} KiB");
    support::eventually("the deadline ends the program", || support::processes_with(&name).is_empty());
    let mut read = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124));
    assert!(read.len() < 16 << 20, "{} bytes were kept for a reader that did not read", read.len());
}

#[test]
fn ctrl_c_works_while_nobody_reads() {
    let mut child = start(Who::Root, &["-l", "bash", "-c", "yes", "--output", "1G", "--timeout", "5m"]);
    let waiting = child.stdout.take().unwrap();
    support::eventually("nobody reads what it writes", || {
        rustix::io::ioctl_fionread(&waiting).unwrap() >= 32 << 10
    });
    signal(&child, rustix::process::Signal::INT);
    support::eventually("the client ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

/// `sandstorm run … | head -1`: nobody reads any more, so nobody runs any more.
#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let mut child = start(Who::Root, &["-l", "bash", "-c", "yes", "--output", "1G", "--timeout", "5m"]);
    let mut first = [0; 2];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    support::eventually("the client ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

/// Whatever happens to Sandstorm itself is not the program's result.
#[test]
fn a_launcher_that_dies_is_our_failure() {
    let mark = format!("sleep {}", mark(20));
    let child = start(Who::Root, &["-l", "bash", "-c", &format!("echo up; {mark}"), "--json"]);
    support::eventually("the program runs", || support::processes_with(&mark).len() == 1);
    let client = child.id();
    let children = std::fs::read_to_string(format!("/proc/{client}/task/{client}/children")).unwrap();
    let launcher = rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", support::stdout(&output));
    assert_eq!(support::stdout(&output), "");
    support::eventually("the program is gone", || support::processes_with(&mark).is_empty());
}
