//! Running the binary as root and as an ordinary user, and looking at what happened.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// As whom the binary runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The user who runs the tests, root in CI.
    Root,
    /// An ordinary user with a subordinate range of ids.
    Ranged,
    /// An ordinary user with one id and nothing else.
    Single,
}

impl Who {
    /// Everybody that this machine lets us be. In CI all of them, or the test fails.
    pub fn all() -> Vec<Self> {
        if rustix::process::geteuid().is_root() {
            return vec![Self::Root, Self::Ranged, Self::Single];
        }
        skip("only root can run the tests as other users");
        vec![Self::Root]
    }
}

/// The user with a subordinate range that `scripts/setup.sh test` makes.
const RANGED_USER: &str = "sandstorm-test";

/// Says why something was left out; where nothing may be left out, fails.
#[expect(clippy::print_stderr, reason = "a skip prints its reason")]
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(),
        "nothing may be skipped here, but: {reason}"
    );
    eprintln!("skipped: {reason}");
}

/// The binary at a place that every user can reach: a checkout may lie in somebody's home.
pub fn binary() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        remove_leftovers();
        let dir = std::env::temp_dir().join(format!("sandstorm-it-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let copy = dir.join("sandstorm");
        copy_program(Path::new(env!("CARGO_BIN_EXE_sandstorm")), &copy);
        copy
    })
}

/// By another process: a descriptor of ours that a fork of another thread inherits would keep the file busy.
fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Removes what earlier runs of these tests left: a test process has no moment after its last test.
fn remove_leftovers() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix("sandstorm-it-")
            .and_then(|rest| rest.split('-').find_map(|n| n.parse::<u32>().ok()));
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder for one test, that every user can reach and write to.
#[derive(Debug)]
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        path
    }
}

/// The binary as a command with an environment of its own: nothing of the tests' configuration reaches it.
pub fn sandstorm(who: Who) -> Command {
    let mut command = match who {
        Who::Root => Command::new(binary()),
        Who::Ranged => {
            as_user(&[&format!("--reuid={RANGED_USER}"), &format!("--regid={RANGED_USER}"), "--init-groups"])
        }
        Who::Single => as_user(&["--reuid=65534", "--regid=65534", "--clear-groups"]),
    };
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    let state = std::env::temp_dir().join(format!("sandstorm-it-state-{}-{who:?}", std::process::id()));
    command.env("SANDSTORM_STATE_DIR", state);
    // A busy machine is no reason to end a program, unless a test is about just that.
    command.env("SANDSTORM_LIMITS_WALL", "5m");
    command
}

fn as_user(flags: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(flags).arg("--").arg(binary());
    command
}

/// Runs with arguments and waits for the end.
pub fn run(who: Who, args: &[&str]) -> Output {
    sandstorm(who).args(args).output().unwrap()
}

/// Runs with something on standard input.
pub fn run_with_input(who: Who, args: &[&str], input: &[u8]) -> Output {
    let mut child = sandstorm(who)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may end without reading all of it.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// `sandstorm run --json` with these arguments: the result, which must have come.
pub fn result(who: Who, args: &[&str]) -> Value {
    let mut all = vec!["run", "--json"];
    all.extend(args);
    let output = run(who, &all);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("no result ({e}): {}", String::from_utf8_lossy(&output.stderr)))
}

/// What a shell script printed inside a sandbox, which must have succeeded.
pub fn shell(who: Who, script: &str) -> String {
    let result = result(who, &["-l", "bash", "-c", script]);
    assert_eq!(result["status"], "ok", "{script}\n{result:#}");
    result["stdout"].as_str().unwrap().to_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `sandstorm run --json` with these arguments: the result, and what the binary exited with.
pub fn ending(who: Who, args: &[&str]) -> (Value, i32) {
    let mut all = vec!["run", "--json"];
    all.extend(args);
    let output = run(who, &all);
    let result = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?} as {who:?}: no result ({e}): {}", stderr(&output)));
    (result, output.status.code().unwrap())
}

/// Processes of this machine with exactly this command line.
pub fn processes_with(words: &str) -> Vec<i32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").trim_end() == words
    })
    .collect()
}

/// How long anything may take that has to happen: as long as a busy machine needs, and shorter than what ends by itself.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so, and says how long that took; fails when it never is.
#[track_caller]
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

/// Tries something that is promised within a time and says how long it took. A busy machine may miss it once, but what is
/// always too slow does not pass.
#[track_caller]
pub fn promised(what: &str, within: Duration, mut trial: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 4 {
        took.push(trial());
        if took.last().is_some_and(|took| *took <= within) {
            return;
        }
    }
    panic!("never within {within:?}: {what}: {took:?}");
}

/// A port of the loopback address that is taken, and where nobody listens, for as long as the descriptor lives. One that
/// was only given back could be another test's by now.
pub fn silent_port() -> (std::os::fd::OwnedFd, u16) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &std::net::SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let address = std::net::SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    (socket, address.port())
}

/// An example program of another crate, built now, at a place that every user can reach.
pub fn example(package: &str, name: &str) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package, "--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "{name} does not build");
    let folder = Path::new(env!("CARGO_BIN_EXE_sandstorm")).parent().unwrap();
    let copy = binary().with_file_name(name);
    copy_program(&folder.join("examples").join(name), &copy);
    copy
}

/// Processes below this one that execute a program of this name.
pub fn descendants_named(ancestor: u32, name: &str) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| is_named(*pid, name))
        .filter(|pid| {
            std::iter::successors(Some(*pid), |pid| parent(*pid))
                .any(|pid| u32::try_from(pid) == Ok(ancestor))
        })
        .collect()
}

pub fn is_named(pid: i32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}
