//! What a sandbox watches and locks, nobody else is watched or locked by: each has inodes of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use super::attack_file;
use crate::support::{Who, result, sandstorm, stderr, stdout};

/// What every sandbox has from the host, or has like every other one.
const SHOWN: [&str; 8] = [
    "/",
    "/usr",
    "/usr/bin",
    "/usr/bin/env",
    "/usr/lib/os-release",
    "/etc/passwd",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
];

fn code() -> String {
    std::fs::read_to_string(attack_file("inodes.py")).unwrap()
}

fn python(who: Who, arguments: &[&str]) -> Command {
    let mut command = sandstorm(who);
    command.args(["run", "-l", "python", "-c", &code(), "--"]).args(arguments);
    command
}

/// A sandbox with locks and watches on all these, another one that opens and tries to lock them, and the host, which does
/// the same.
#[test]
fn watches_and_locks_end_at_the_sandbox() {
    for who in Who::all() {
        let loader = std::fs::canonicalize("/lib64/ld-linux-x86-64.so.2")
            .or_else(|_| std::fs::canonicalize("/lib/ld-linux-aarch64.so.1"))
            .unwrap();
        let mut places: Vec<&str> = SHOWN.to_vec();
        places.push(loader.to_str().unwrap());
        // Only root can have device nodes of its own; for everybody else the report says that they are the host's.
        let walls = &result(who, &["-l", "python", "-c", "pass"])["walls"];
        let missing = walls["missing"].as_array().unwrap();
        let missing = missing.iter().find(|wall| wall["name"] == "own_inodes");
        if who == Who::Root {
            assert_eq!(missing, None, "{who:?}");
            places.extend(["/dev", "/dev/null", "/dev/urandom"]);
        } else {
            let reason = missing.unwrap_or_else(|| panic!("{who:?}: {walls}"))["reason"].as_str().unwrap();
            assert!(reason.starts_with("/dev shown"), "{who:?}: {reason}");
        }
        let arguments = |mode: &'static str| [&[mode][..], &places].concat();
        let mut holder = python(who, &arguments("hold"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(holder.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let other = python(who, &arguments("look")).output().unwrap();
        let host = Command::new("/usr/bin/python3").args(["-c", &code()]).args(arguments("look")).output();
        let host = host.unwrap();
        holder.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut events = String::new();
        said.read_to_string(&mut events).unwrap();
        let held = holder.wait_with_output().unwrap();
        assert_eq!(line, "held\n", "{who:?}: {}", stderr(&held));
        assert_eq!(stdout(&other), "[]\n", "{who:?}: locks are seen by another: {}", stderr(&other));
        assert_eq!(stdout(&host), "[]\n", "{who:?}: locks are seen by the host: {}", stderr(&host));
        assert_eq!(events, "[]\n", "{who:?}: others are seen");
    }
}

/// The same instruments, where they have to work: between processes of one sandbox, on its own files and on the host's.
#[test]
fn watches_and_locks_work_within_a_sandbox() {
    let code = format!(
        "import subprocess, sys\n\
         code = {:?}\n\
         open('mine', 'w').write('x')\n\
         places = ['/workspace/mine', '/usr/bin/env']\n\
         def start(mode): return subprocess.Popen([sys.executable, '-c', code, mode, *places], text=True, \
         stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n\
         holder = start('hold')\n\
         print(holder.stdout.readline().strip())\n\
         print(start('look').communicate()[0].strip())\n\
         print(holder.communicate('\\n')[0].strip())\n",
        code()
    );
    for who in Who::all() {
        let output = sandstorm(who).args(["run", "-l", "python", "-c", &code]).output().unwrap();
        let wanted = "held\n\
                      ['flock /workspace/mine', 'fcntl /workspace/mine', 'flock /usr/bin/env', 'fcntl /usr/bin/env']\n\
                      ['/usr/bin/env', '/workspace/mine']\n";
        assert_eq!(stdout(&output), wanted, "{who:?}: {}", stderr(&output));
    }
}

/// The strict profile refuses the calls themselves.
#[test]
fn the_strict_profile_can_be_chosen() {
    let code = "import fcntl, os\n\
                def attempt(call):\n\
                \x20   try: return call()\n\
                \x20   except OSError as error: return error.strerror\n\
                print(attempt(lambda: fcntl.flock(os.open('mine', os.O_CREAT), fcntl.LOCK_EX)))\n";
    for (chosen, profile, said) in
        [("standard", "payload", "None\n"), ("strict", "payload-strict", "Operation not permitted\n")]
    {
        let output = sandstorm(Who::Root)
            .env("SANDSTORM_SYSTEM_CALLS", chosen)
            .args(["run", "--json", "-l", "python", "-c", code])
            .output()
            .unwrap();
        let result: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{chosen}: {e}: {}", stderr(&output)));
        assert_eq!(result["stdout"], said, "{chosen}");
        assert_eq!(result["walls"]["seccomp"]["profile"], profile);
    }
}
