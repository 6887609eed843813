//! The wall report against the walls: a program inside measures them by itself, and both must agree.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::escape::{attack_code, find_process, unique};
use crate::support::{Place, Who, eventually, example, result, sandstorm, skip, stderr, stdout};

/// Mount points where a guest may write.
const WRITABLE: [&str; 5] = ["/dev/shm", "/home/user", "/root", "/tmp", "/workspace"];

/// Mount points that every sandbox has, whatever the host: with the read-only trees of the host and the masks of
/// kernel files, which depend on it, this is the whole table.
const GOLDEN: [(&str, &str, &str); 12] = [
    ("/", "tmpfs", "ro,nosuid,nodev"),
    ("/dev/pts", "devpts", "rw,nosuid,noexec"),
    ("/dev/shm", "tmpfs", "rw,nosuid,nodev,noexec"),
    ("/home/user", "tmpfs", "rw,nosuid,nodev"),
    ("/proc", "proc", "rw,nosuid,nodev,noexec"),
    ("/proc/bus", "proc", "ro,nosuid,nodev,noexec"),
    ("/proc/fs", "proc", "ro,nosuid,nodev,noexec"),
    ("/proc/irq", "proc", "ro,nosuid,nodev,noexec"),
    ("/proc/sys", "proc", "ro,nosuid,nodev,noexec"),
    ("/root", "tmpfs", "rw,nosuid,nodev"),
    ("/tmp", "tmpfs", "rw,nosuid,nodev"),
    ("/workspace", "tmpfs", "rw,nosuid,nodev"),
];

/// The devices of a launcher that is root: nodes of the jail's own.
const OWN_DEVICES: [(&str, &str, &str); 1] = [("/dev", "tmpfs", "ro,nosuid,noexec")];

/// Everybody else can only show the host's.
const HOST_DEVICES: [(&str, &str, &str); 6] = [
    ("/dev/full", "device", "rw,nosuid,noexec"),
    ("/dev/null", "device", "rw,nosuid,noexec"),
    ("/dev/random", "device", "rw,nosuid,noexec"),
    ("/dev/tty", "device", "rw,nosuid,noexec"),
    ("/dev/urandom", "device", "rw,nosuid,noexec"),
    ("/dev/zero", "device", "rw,nosuid,noexec"),
];

/// What a sandbox reports, and what a program in it and one on the host measure.
struct Seen {
    walls: Value,
    inside: Value,
    outside: Value,
}

fn look(who: Who) -> Seen {
    let code = attack_code("measure");
    let result = result(who, &["-l", "python", "-c", &code]);
    let inside = serde_json::from_str(result["stdout"].as_str().unwrap())
        .unwrap_or_else(|e| panic!("{who:?}: no measure ({e}): {result:#}"));
    let output = Command::new("python3").args(["-c", &code]).output().unwrap();
    Seen { walls: result["walls"].clone(), inside, outside: serde_json::from_slice(&output.stdout).unwrap() }
}

#[test]
fn the_report_equals_what_a_program_inside_measures() {
    for who in Who::all() {
        let Seen { walls, inside, outside } = look(who);
        for (field, kind) in [
            ("userns", "user"),
            ("pidns", "pid"),
            ("netns", "net"),
            ("ipcns", "ipc"),
            ("mountns", "mnt"),
            ("utsns", "uts"),
            ("cgroupns", "cgroup"),
        ] {
            let separate = inside["namespaces"][kind] != outside["namespaces"][kind];
            assert_eq!(walls[field], separate, "{who:?} {field}");
            assert!(separate, "{who:?} shares its {kind} namespace with the host");
        }
        let map = inside["uid_map"].as_array().unwrap();
        let ids: u64 = map.iter().map(|extent| extent[2].as_u64().unwrap()).sum();
        assert_eq!(walls["uid_wall"], ids > 1, "{who:?}: {map:?}");
        let root = mounts(&inside).find(|mount| mount["target"] == "/").unwrap();
        assert_eq!(walls["pivot"], root["kind"] == "tmpfs" && root["source"] == "/", "{who:?}: {root}");
        assert_eq!(walls["caps"]["effective"], inside["caps"]["CapEff"], "{who:?}");
        assert_eq!(walls["caps"]["permitted"], inside["caps"]["CapPrm"], "{who:?}");
        assert_eq!(walls["caps"]["bounding"], inside["caps"]["CapBnd"], "{who:?}");
        assert_eq!(walls["nnp"], inside["nnp"] == "1", "{who:?}");
        assert_eq!(!walls["seccomp"].is_null(), inside["seccomp"] == "2", "{who:?}");
        assert_eq!(walls["landlock"]["abi"], outside["landlock"], "{who:?}");
        assert_eq!(walls["proc"] == "hidden", inside["hidden"] == true, "{who:?}");
        assert_eq!(walls["net"]["mode"] == "none", inside["interfaces"] == json!(["lo"]), "{who:?}");
        let missing: BTreeSet<&str> =
            walls["missing"].as_array().unwrap().iter().map(|wall| wall["name"].as_str().unwrap()).collect();
        assert_eq!(missing.contains("uid_wall"), ids == 1, "{who:?}: {missing:?}");
        assert_eq!(missing.contains("groups"), !inside["groups"].as_array().unwrap().is_empty(), "{who:?}");
    }
}

#[test]
fn what_stands_inside_is_what_should_stand() {
    for who in Who::all() {
        let Seen { walls, inside, .. } = look(who);
        assert_eq!(inside["uid"], 1000, "{who:?}");
        assert_eq!(inside["groups"], json!([]), "{who:?}");
        let caps: Vec<u64> =
            inside["caps"].as_object().unwrap().values().map(|set| set.as_u64().unwrap()).collect();
        assert_eq!(caps, [0; 5], "{who:?}");
        assert_eq!((&inside["nnp"], &inside["seccomp"]), (&json!("1"), &json!("2")), "{who:?}");
        assert!(
            inside["cgroup"].as_array().unwrap().iter().all(|group| group == "/"),
            "{who:?}: {}",
            inside["cgroup"]
        );
        assert_eq!(inside["descriptors"], json!([0, 1, 2]), "{who:?}");
        assert_eq!(inside["limits"]["RLIMIT_CORE"], json!([1, 1]), "{who:?}");
        for limit in ["RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO"] {
            assert_eq!(inside["limits"][limit], json!([0, 0]), "{who:?} {limit}");
        }
        if who != Who::Root {
            assert_eq!(walls["cgroup"]["version"], "none", "{who:?} has no groups to make here");
        }
    }
}

#[test]
fn the_mounts_are_those_of_the_golden_table() {
    for who in Who::all() {
        let Seen { inside, .. } = look(who);
        let devices = if who == Who::Root { &OWN_DEVICES[..] } else { &HOST_DEVICES };
        let golden = GOLDEN.iter().chain(devices);
        let mut golden: BTreeSet<String> =
            golden.map(|(target, kind, options)| format!("{target} {kind} {options}")).collect();
        for mount in mounts(&inside) {
            let target = mount["target"].as_str().unwrap();
            let options: BTreeSet<&str> =
                mount["options"].as_array().unwrap().iter().map(|option| option.as_str().unwrap()).collect();
            let line = describe(mount, &options);
            assert_eq!(mount["shared"], false, "{who:?}: {line}");
            assert!(options.contains("nosuid"), "{who:?}: {line}");
            let device = mount["device"] == true || mount["kind"] == "devpts" || target == "/dev";
            assert!(options.contains("nodev") || device, "{who:?}: {line}");
            if golden.remove(&line) {
                continue;
            }
            // What the host has besides: trees of its own, and covers over files of the kernel.
            let host_tree =
                ["/usr", "/etc/", "/bin", "/sbin", "/lib"].iter().any(|tree| target.starts_with(tree));
            let mask = target.starts_with("/proc/") && (mount["device"] == true || mount["kind"] == "tmpfs");
            assert!(host_tree || mask, "{who:?}: a mount that is in no list: {line}");
            assert!(options.contains("ro") || mount["device"] == true, "{who:?}: {line}");
            assert!(!WRITABLE.contains(&target), "{who:?}: {line}");
        }
        assert!(golden.is_empty(), "{who:?}: missing {golden:?}");
    }
}

fn mounts(seen: &Value) -> impl Iterator<Item = &Value> {
    seen["mounts"].as_array().unwrap().iter()
}

/// Target, kind and the options that matter, in one order.
fn describe(mount: &Value, options: &BTreeSet<&str>) -> String {
    let kind = if mount["device"] == true { "device" } else { mount["kind"].as_str().unwrap() };
    let shown: Vec<&str> =
        ["ro", "rw", "nosuid", "nodev", "noexec"].into_iter().filter(|o| options.contains(o)).collect();
    format!("{} {kind} {}", mount["target"].as_str().unwrap(), shown.join(","))
}

/// A tree that is mounted by mistake: only Landlock is left, and it has to do.
#[test]
fn landlock_alone_keeps_a_mounted_tree_closed() {
    let opener = example("sandstorm-engine", "second_wall");
    let place = Place::new();
    for folder in ["granted", "exposed"] {
        place.write(&format!("{folder}/secret"), format!("content of {folder}\n"));
        let program = place.write(&format!("{folder}/program"), "#!/bin/sh\nexit 0\n");
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new(opener)
        .args(["runtime", "granted", "exposed"].map(|name| place.path().join(name)))
        .output()
        .unwrap();
    let wanted = "granted is mounted\ncontent of granted\ngranted is read\ngranted is opened\ngranted is copied\n\
                  granted is executed\nexposed is mounted\ncat: /exposed/secret: Permission denied\n";
    assert_eq!(stdout(&output), wanted, "{}", stderr(&output));
}

/// From the host: the program is in a group of its own in every hierarchy that the report names.
#[test]
fn the_groups_are_those_of_the_report() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root has control groups here");
    }
    let word = unique();
    let script = format!("exec -a {word} sleep 600");
    let mut running = sandstorm(Who::Root)
        .args(["run", "-l", "bash", "-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the program is seen", || find_process(&word).is_some());
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", find_process(&word).unwrap())).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let walls = &result(Who::Root, &["-l", "bash", "-c", ":"])["walls"]["cgroup"];
    let controllers = walls["controllers"].as_array().unwrap();
    assert!(!controllers.is_empty(), "{walls}");
    for controller in controllers.iter().map(|name| name.as_str().unwrap()) {
        let own = groups.lines().any(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let names = fields.next().unwrap_or_default();
            let path = fields.next().unwrap_or_default();
            // Beside the older trees the unified one has no controllers, but it freezes.
            let unified = names.is_empty() && (walls["version"] == "v2" || controller == "freezer");
            (names.split(',').any(|name| name == controller) || unified) && path.starts_with("/sandstorm/")
        });
        assert!(own, "{controller} does not hold the program:\n{groups}");
    }
}
