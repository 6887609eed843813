//! The agent of a pod without a pod: started as the cluster starts it, and looked at by programs of the same user.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sandstorm_agent_client::AGENT;

const USER: &str = "65534";

fn as_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program);
    command
}

/// Every process that executes the file.
fn processes_of(program: &Path) -> Vec<i32> {
    let is_it = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_it).collect()
}

/// A folder that every user can write to. What was started in it is ended with it, whatever became of the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("sandstorm-keeper-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
        Self(dir)
    }

    fn program(&self) -> PathBuf {
        self.0.join("agent")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in processes_of(&self.program()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

#[test]
fn programs_of_the_same_user_cannot_look_into_the_agents_processes() {
    if !is_root() {
        assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "only root can be another user");
        return;
    }
    let place = Place::new();
    let (source, program) = (place.0.join("source"), place.program());
    // By another process: a descriptor of ours that a fork of another thread inherits would keep the file busy.
    std::fs::write(&source, AGENT).unwrap();
    assert!(Command::new("cp").arg(&source).arg(&program).status().unwrap().success());
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut joined: Child = as_user(&program)
        .args(["pod", "join"])
        .arg(place.0.join("agent.sock"))
        .args(["64", "1024"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    joined.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let processes = processes_of(&program);
    assert_eq!(processes.len(), 3, "relay, keeper and agent: {processes:?}");
    for pid in processes {
        for what in ["maps", "mem", "environ", "root/"] {
            let path = format!("/proc/{pid}/{what}");
            let looked = as_user("ls").args(["-L", &path]).output().unwrap();
            let read = as_user("head").args(["-c", "1", &path]).output().unwrap();
            let denied = |output: &std::process::Output| {
                String::from_utf8_lossy(&output.stderr).contains("Permission denied")
            };
            assert!(denied(&looked) || denied(&read), "{path}: {looked:?} {read:?}");
        }
    }
    // A process of theirs that does not close itself is open to them.
    let own = as_user("sh").args(["-c", "head -c 1 /proc/$$/maps"]).output().unwrap();
    assert!(own.status.success(), "{own:?}");
    drop(place);
    joined.wait().unwrap();
}
