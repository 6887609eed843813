//! Every call that building a jail makes, failing: there is an error with a name, no program, and nothing left.
//!
//! The calls fail because of a filter around the whole binary, put there by the example `deny` of `sandstorm-sys`. It
//! runs in a pid namespace and with a `/run` of its own, so that everything left behind can be counted.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::{Place, Who, binary, example, sandstorm, skip, stderr, stdout};

/// A call that fails, only where its arguments are these.
struct Fault {
    name: &'static str,
    call: libc::c_long,
    when: &'static [(u32, u32)],
    /// What the error says, the same whoever runs it.
    says: &'static str,
}

const fn fault(
    name: &'static str,
    call: libc::c_long,
    when: &'static [(u32, u32)],
    says: &'static str,
) -> Fault {
    Fault { name, call, when, says }
}

const PR_SET_PDEATHSIG: u32 = 1;
const PR_SET_DUMPABLE: u32 = 4;
const PR_CAPBSET_READ: u32 = 23;
const PR_CAPBSET_DROP: u32 = 24;
const PR_SET_SECUREBITS: u32 = 28;
const PR_SET_NO_NEW_PRIVS: u32 = 38;
const PR_CAP_AMBIENT: u32 = 47;
const F_ADD_SEALS: u32 = 1033;
const FSCONFIG_CMD_CREATE: u32 = 6;
const AF_NETLINK: u32 = 16;

const FAULTS: &[Fault] = &[
    fault("memfd_create", libc::SYS_memfd_create, &[], "seal the agent program"),
    fault("fcntl(F_ADD_SEALS)", libc::SYS_fcntl, &[(1, F_ADD_SEALS)], "seal the agent program"),
    fault("setsid", libc::SYS_setsid, &[], "'session'"),
    fault("prctl(PR_SET_PDEATHSIG)", libc::SYS_prctl, &[(0, PR_SET_PDEATHSIG)], "'parent death signal'"),
    fault("setresgid", libc::SYS_setresgid, &[], "'group id'"),
    fault("setresuid", libc::SYS_setresuid, &[], "'user id'"),
    fault("unshare", libc::SYS_unshare, &[], "'cgroup namespace'"),
    fault("keyctl", libc::SYS_keyctl, &[], "'keyring'"),
    fault("mount", libc::SYS_mount, &[], "'private mounts'"),
    fault("open_tree", libc::SYS_open_tree, &[], "'mount /"),
    fault("mount_setattr", libc::SYS_mount_setattr, &[], "'mount /usr'"),
    fault("fsopen", libc::SYS_fsopen, &[], "'writable file system'"),
    fault("fsconfig", libc::SYS_fsconfig, &[], "'writable file system'"),
    fault(
        "fsconfig(FSCONFIG_CMD_CREATE)",
        libc::SYS_fsconfig,
        &[(1, FSCONFIG_CMD_CREATE)],
        "'writable file system'",
    ),
    fault("fsmount", libc::SYS_fsmount, &[], "'writable file system'"),
    fault("move_mount", libc::SYS_move_mount, &[], "'writable file system'"),
    fault("fchdir", libc::SYS_fchdir, &[], "'root file system'"),
    fault("mkdirat", libc::SYS_mkdirat, &[], "'writable /workspace'"),
    fault("fchownat", libc::SYS_fchownat, &[], "'writable /workspace'"),
    fault("pivot_root", libc::SYS_pivot_root, &[], "'pivot root'"),
    fault("umount2", libc::SYS_umount2, &[], "'detach old root'"),
    fault("chdir", libc::SYS_chdir, &[], "'enter root'"),
    fault("sethostname", libc::SYS_sethostname, &[], "'host name'"),
    fault("socket(AF_NETLINK)", libc::SYS_socket, &[(0, AF_NETLINK)], "'network"),
    fault("landlock_create_ruleset", libc::SYS_landlock_create_ruleset, &[(2, 0)], "'landlock rules'"),
    fault("landlock_add_rule", libc::SYS_landlock_add_rule, &[], "'landlock rule for"),
    fault("landlock_restrict_self", libc::SYS_landlock_restrict_self, &[], "'landlock domain'"),
    fault("prctl(PR_SET_NO_NEW_PRIVS)", libc::SYS_prctl, &[(0, PR_SET_NO_NEW_PRIVS)], "'landlock domain'"),
    fault("capset", libc::SYS_capset, &[], "'capabilities'"),
    fault("prctl(PR_CAPBSET_DROP)", libc::SYS_prctl, &[(0, PR_CAPBSET_DROP)], "'bounding set'"),
    fault("prctl(PR_CAPBSET_READ)", libc::SYS_prctl, &[(0, PR_CAPBSET_READ)], "'measure the walls'"),
    fault("prctl(PR_SET_SECUREBITS)", libc::SYS_prctl, &[(0, PR_SET_SECUREBITS)], "'secure bits'"),
    fault("close_range", libc::SYS_close_range, &[], "'descriptors'"),
    fault("seccomp", libc::SYS_seccomp, &[], "'seccomp filter'"),
    fault("execveat", libc::SYS_execveat, &[], "'execute the agent'"),
    // From here on it is the agent that fails, and the child that it makes.
    fault("prctl(PR_SET_DUMPABLE)", libc::SYS_prctl, &[(0, PR_SET_DUMPABLE)], "create on local"),
    fault("prctl(PR_CAP_AMBIENT)", libc::SYS_prctl, &[(0, PR_CAP_AMBIENT)], "create on local"),
    fault("signalfd4", libc::SYS_signalfd4, &[], "create on local"),
];

/// Makes the run, then tells what is left: processes of this pid namespace and leases.
const STAGE: &str = r#"
mount -t tmpfs none /run || exit 99
"$@"; code=$?
for try in $(seq 1500); do
    left=; for p in /proc/[0-9]*; do [ "$p" = /proc/1 ] || left="$left $(tr '\0' ' ' 2>/dev/null < $p/cmdline)"; done
    left=$(echo $left | sed 's/^ *$//')
    [ -z "$left" ] && break
    sleep 0.02
done
echo "left:[$left] leases:[$(ls /run/sandstorm/instances "$XDG_RUNTIME_DIR/sandstorm/instances" 2>/dev/null | grep -v : | tr -d '\n')]"
exit $code
"#;

fn denier() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| example("sandstorm-sys", "deny"))
}

/// Runs a program while one call fails.
fn run_with(who: Who, call: libc::c_long, when: &[(u32, u32)], flags: &[&str], parent: &str) -> Output {
    let place = Place::new();
    let config = place.write("config.yaml", format!("cgroup_parent: {parent}\n"));
    let input = place.write("input", "");
    let runtime = place.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", STAGE, "bash"]);
    if who == Who::Single {
        std::os::unix::fs::chown(&runtime, Some(65534), Some(65534)).unwrap();
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    }
    command.arg(denier()).arg(call.to_string());
    command.args(when.iter().map(|(argument, value)| format!("{argument}={value}")));
    command.arg("--").arg(binary()).arg("run").arg("--config").arg(&config).arg("--stdin-file").arg(&input);
    command.args(flags).args(["-l", "bash", "-c", "echo the program ran"]);
    command.env_clear().envs(sandstorm(who).get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("XDG_RUNTIME_DIR", &runtime).output().unwrap()
}

/// Groups below a parent that only this test uses.
fn groups_below(parent: &str) -> Vec<String> {
    let found = Command::new("find")
        .args(["/sys/fs/cgroup", "-path", &format!("*/{parent}/*"), "-type", "d"])
        .output();
    stdout(&found.unwrap()).lines().map(str::to_owned).collect()
}

fn stages() -> Vec<Who> {
    if rustix::process::geteuid().is_root() {
        return vec![Who::Root, Who::Single];
    }
    skip("only root can make a pid namespace for the tests");
    Vec::new()
}

#[test]
fn a_step_that_fails_ends_the_launch_and_leaves_nothing() {
    for who in stages() {
        let parent = format!("sandstorm-faults-{}-{who:?}", std::process::id());
        let mut wrong = Vec::new();
        for Fault { name, call, when, says } in FAULTS {
            let output = run_with(who, *call, when, &[], &parent);
            let (printed, error) = (stdout(&output), stderr(&output));
            let groups = groups_below(&parent);
            let right = output.status.code() == Some(125)
                && printed == "left:[] leases:[]\n"
                && error.contains(says)
                && error.starts_with("error: ")
                && groups.is_empty();
            if !right {
                wrong.push(format!(
                    "{name} as {who:?}: {:?}\n{printed}{error}{groups:?}",
                    output.status.code()
                ));
            }
        }
        remove_groups(&parent);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// A network that cannot be captured is no network: nothing runs beside half of its rules.
#[test]
fn a_network_that_cannot_be_captured_ends_the_launch() {
    const NETLINK_NETFILTER: u32 = 12;
    const RULES: &[(u32, u32)] = &[(0, AF_NETLINK), (2, NETLINK_NETFILTER)];
    const ROUTES: &[(u32, u32)] = &[(0, AF_NETLINK), (2, 0)];
    let faults = [
        fault("socket(NETLINK_NETFILTER)", libc::SYS_socket, RULES, "'network"),
        fault("socket(NETLINK_ROUTE)", libc::SYS_socket, ROUTES, "'network"),
        fault("listen", libc::SYS_listen, &[], "'network"),
    ];
    for who in stages() {
        let parent = format!("sandstorm-no-capture-{}-{who:?}", std::process::id());
        for Fault { name, call, when, says } in &faults {
            let output = run_with(who, *call, when, &["--network", "a.test"], &parent);
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{name} as {who:?}: {error}");
            assert_eq!(stdout(&output), "left:[] leases:[]\n", "{name} as {who:?}");
            assert!(error.contains(says), "{name} as {who:?}: {error}");
        }
        remove_groups(&parent);
    }
}

/// The harness itself: without a fault the program runs.
#[test]
fn without_a_fault_the_program_runs() {
    for who in stages() {
        let parent = format!("sandstorm-no-fault-{}-{who:?}", std::process::id());
        // A condition that no call meets.
        let output = run_with(who, libc::SYS_pivot_root, &[(0, 1)], &[], &parent);
        assert_eq!(stdout(&output), "the program ran\nleft:[] leases:[]\n", "{who:?}: {}", stderr(&output));
        assert!(groups_below(&parent).is_empty(), "{who:?}: {:?}", groups_below(&parent));
        remove_groups(&parent);
    }
}

/// No user namespaces: the error names the setting that forbids them, and nothing runs without.
#[test]
fn without_user_namespaces_the_setting_is_named() {
    if stages().is_empty() {
        return;
    }
    let place = Place::new();
    let input = place.write("input", "");
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-user=65534",
        "--map-group=65534",
        "--keep-caps",
        "--mount",
        "--pid",
        "--fork",
    ]);
    command.args(["--mount-proc", "bash", "-c"]);
    command.arg(format!("echo 0 > /proc/sys/user/max_user_namespaces || exit 98\n{STAGE}")).arg("bash");
    command.arg(binary()).arg("run").arg("--stdin-file").arg(&input);
    command.args(["-l", "bash", "-c", "echo the program ran"]);
    command
        .env_clear()
        .envs(sandstorm(Who::Root).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.env("XDG_RUNTIME_DIR", place.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(stdout(&output), "left:[] leases:[]\n");
    assert!(stderr(&output).contains("raise the sysctl user.max_user_namespaces"), "{}", stderr(&output));
}

/// A kernel that says it has no Landlock: a missing wall, refused by a strict policy.
#[test]
fn without_landlock_a_strict_run_is_refused() {
    let version_query: &[(u32, u32)] = &[(2, 1)];
    for who in stages() {
        let parent = format!("sandstorm-no-landlock-{}-{who:?}", std::process::id());
        let output = run_with(who, libc::SYS_landlock_create_ruleset, version_query, &["--strict"], &parent);
        assert_eq!(output.status.code(), Some(125), "{who:?}: {}", stdout(&output));
        assert_eq!(stdout(&output), "left:[] leases:[]\n", "{who:?}");
        if who == Who::Root {
            assert!(stderr(&output).contains("landlock"), "{who:?}: {}", stderr(&output));
        }
        remove_groups(&parent);
    }
}

/// The parent stays for the next launch; here there is none.
fn remove_groups(parent: &str) {
    let found =
        Command::new("find").args(["/sys/fs/cgroup", "-name", parent, "-type", "d"]).output().unwrap();
    for path in stdout(&found).lines() {
        let _ = std::fs::remove_dir(path);
    }
}
