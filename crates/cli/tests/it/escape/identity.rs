//! Whom a program is on the host.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{find_process, unique};
use crate::support::{Who, eventually, result, sandstorm, shell};

/// A program that waits, and what the host sees of it.
struct Waiting {
    child: Child,
    pid: u32,
}

impl Waiting {
    fn start(who: Who) -> Self {
        let word = unique();
        let script = format!("exec -a {word} sleep 600");
        let child =
            sandstorm(who).args(["run", "-l", "bash", "-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        eventually("the program is seen", || find_process(&word).is_some());
        Self { child, pid: find_process(&word).unwrap() }
    }

    /// All four uids, as the host counts.
    fn uids(&self) -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        line.split_whitespace().map(|uid| uid.parse().unwrap()).collect()
    }

    /// `(inside, outside, count)` of each line of a map.
    fn map(&self, name: &str) -> Vec<(u32, u32, u32)> {
        let text = std::fs::read_to_string(format!("/proc/{}/{name}", self.pid)).unwrap();
        let number = |word: Option<&str>| word.unwrap().parse().unwrap();
        text.lines()
            .map(|line| line.split_whitespace())
            .map(|mut words| (number(words.next()), number(words.next()), number(words.next())))
            .collect()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn caller(who: Who) -> u32 {
    let id = |user: &str| {
        let output = Command::new("id").args(["-u", user]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    match who {
        Who::Root => rustix::process::geteuid().as_raw(),
        Who::Ranged => id("sandstorm-test"),
        Who::Single => 65534,
    }
}

#[test]
fn every_sandbox_is_somebody_else_on_the_host() {
    for who in Who::all() {
        let (a, b) = (Waiting::start(who), Waiting::start(who));
        for one in [&a, &b] {
            assert!(!one.uids().contains(&0), "{who:?}: {:?}", one.uids());
            for name in ["uid_map", "gid_map"] {
                let map = one.map(name);
                assert!(
                    !map.is_empty() && map.iter().all(|(_, outside, _)| *outside > 0),
                    "{who:?}: {map:?}"
                );
            }
        }
        if who == Who::Single {
            // There is only one id to be; the result has to say so.
            let walls = &result(who, &["-l", "bash", "-c", ":"])["walls"];
            assert_eq!(walls["uid_wall"], false);
            assert!(
                walls["missing"].as_array().unwrap().iter().any(|wall| wall["name"] == "uid_wall"),
                "{walls}"
            );
            continue;
        }
        assert_ne!(a.uids(), b.uids(), "{who:?}");
        let overlap = a
            .map("uid_map")
            .iter()
            .any(|x| b.map("uid_map").iter().any(|y| x.1 < y.1 + y.2 && y.1 < x.1 + x.2));
        assert!(!overlap, "{who:?}: {:?} and {:?}", a.map("uid_map"), b.map("uid_map"));
        assert!(!a.uids().contains(&caller(who)), "{who:?}");
        let walls = &result(who, &["-l", "bash", "-c", ":"])["walls"];
        assert_eq!(walls["uid_wall"], true);
    }
}

#[test]
fn the_next_holder_of_the_ids_finds_nothing_of_the_last() {
    for who in Who::all() {
        let mark = unique();
        let places = "/workspace /tmp /dev/shm /home/user";
        let write =
            format!("for d in {places}; do echo {mark} > $d/left; chmod 666 $d/left; done; cat /tmp/left");
        assert_eq!(shell(who, &write).trim(), mark);
        let look = format!(
            "for d in {places}; do cat $d/left 2>&1; done; find / -xdev -name left 2>/dev/null; true"
        );
        let found = shell(who, &look);
        assert_eq!(found.matches("No such file").count(), 4, "{who:?}: {found}");
        assert!(!found.contains(&mark), "{who:?}: {found}");
    }
}

#[test]
fn supplementary_groups_are_gone_or_reported() {
    for who in Who::all() {
        assert_eq!(shell(who, "id -G").trim(), "1000", "{who:?}");
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let with_groups = |flags: &[&str], who: Who| -> Value {
        let inner = sandstorm(who);
        let mut command = Command::new("setpriv");
        command.args(flags).arg("--").arg(crate::support::binary());
        command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command
            .args(["run", "--json", "-l", "bash", "-c", "grep ^Groups: /proc/self/status"])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let root = with_groups(&["--groups=4,24,27"], Who::Root);
    assert_eq!(root["stdout"].as_str().unwrap().trim(), "Groups:", "{root}");
    let single = with_groups(&["--reuid=65534", "--regid=65534", "--groups=4,24"], Who::Single);
    let missing = single["walls"]["missing"].as_array().unwrap();
    assert!(missing.iter().any(|wall| wall["name"] == "groups"), "{single}");
}

/// With a single block there is one sandbox at a time, and its successor meets nobody of its own kind on the host: the
/// block is free only when the last process that had it is gone.
#[test]
fn the_only_block_is_given_on_when_its_last_process_is_gone() {
    if !rustix::process::geteuid().is_root() {
        crate::support::skip("blocks of ids are root's");
        return;
    }
    // A range of this test's own, so that no other sandbox of the machine is counted.
    let start = 2_000_000_000;
    let only = |command: &mut Command| {
        command.env("SANDSTORM_IDS_START", start.to_string()).env("SANDSTORM_IDS_BLOCKS", "1");
    };
    let on_host = || {
        let owners = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            use std::os::unix::fs::MetadataExt;
            let name = entry.file_name().to_str()?.parse::<u32>().ok()?;
            Some((name, entry.metadata().ok()?.uid()))
        });
        owners.filter(|(_, uid)| (start..start + 65_536).contains(uid)).count()
    };
    // Its own place for locks: other tests hold slots of the usual one.
    let held = tempfile::tempdir().unwrap();
    let inside = |script: &str| {
        let mut command = Command::new("unshare");
        let mount = format!("mount --bind {} /run && exec \"$@\"", held.path().display());
        command.args(["--mount", "sh", "-c", &mount, "sh"]).arg(crate::support::binary());
        command.args(["run", "--timeout", "5m", "-l", "bash", "-c", script]).env("HOME", "/nonexistent");
        only(&mut command);
        command
    };
    let crowd = "for i in $(seq 40); do (setsid sleep 600 &) ; done; echo up; sleep 600";
    let mut first = inside(crowd).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the crowd is there", || on_host() > 40);
    let refused = inside("true").output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no free block"), "{refused:?}");
    first.kill().unwrap();
    first.wait().unwrap();
    // Whoever gets the block next is alone with it, at whatever moment that is.
    loop {
        let mut next =
            inside("echo here; sleep 1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(next.stdout.as_mut().unwrap()), &mut line)
            .unwrap();
        let seen = on_host();
        let ended = next.wait_with_output().unwrap();
        if line == "here\n" {
            assert!(seen <= 4, "{seen} processes have the ids of a new sandbox");
            break;
        }
        assert!(String::from_utf8_lossy(&ended.stderr).contains("no free block"), "{ended:?}");
    }
}
