//! Writable space on the host's disk: it holds more than memory would, keeps its limit and its walls, and leaves nothing.

use std::path::Path;

use serde_json::json;

use crate::support::{Who, eventually, result, run, skip, stderr};

/// Prints the number of the device behind the workspace.
pub(crate) const DEVICE: &str = "stat -c %Hd:%Ld /workspace";

/// Whether this machine has what it takes; else says what is missing.
pub(crate) fn is_possible() -> bool {
    let missing = match () {
        () if !rustix::process::geteuid().is_root() => "only root has space on disk",
        () if !Path::new("/usr/sbin/mke2fs").exists() => "there is no mke2fs",
        () if !Path::new("/dev/loop-control").exists() => "there are no loop devices",
        () => return true,
    };
    skip(missing);
    false
}

/// Whether a device, as [`DEVICE`] tells it, is a loop device that has a file.
pub(crate) fn is_attached(device: &str) -> bool {
    assert!(device.starts_with("7:"), "no loop device: {device}");
    Path::new("/sys/dev/block").join(device).join("loop").exists()
}

/// 64 MiB of memory, and 300 of disk.
fn on_disk(script: &str) -> serde_json::Value {
    let limits = ["--memory", "64M", "--disk", "300M", "--inodes", "5000"];
    let program = ["-l", "bash", "-c", script];
    result(Who::Root, &[&["--space", "disk"], &limits[..], &program[..]].concat())
}

#[test]
fn more_is_written_than_there_is_memory_and_nothing_is_left() {
    if !is_possible() {
        return;
    }
    let told =
        on_disk(&format!("{DEVICE}; head -c 200M /dev/zero > big; wc -c < big; stat -f -c '%b %S %c' ."));
    assert_eq!((&told["status"], &told["limits_hit"]), (&json!("ok"), &json!([])), "{told:#}");
    let lines: Vec<&str> = told["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines[1], "209715200");
    let numbers: Vec<u64> = lines[2].split(' ').map(|number| number.parse().unwrap()).collect();
    let size = numbers[0] * numbers[1];
    assert!((300 << 20..320 << 20).contains(&size), "{size}");
    assert!((5000..7000).contains(&numbers[2]), "{numbers:?}");
    eventually("the device lets go of its file", || !is_attached(lines[0]));
}

#[test]
fn a_full_one_refuses_what_is_written_and_ends_nobody() {
    if !is_possible() {
        return;
    }
    let told = on_disk(
        "head -c 400M /dev/zero > big 2> /tmp/why || cat /tmp/why; wc -c < big; rm big; echo lives > on; cat on",
    );
    assert_eq!(told["status"], "ok", "{told:#}");
    let lines: Vec<&str> = told["stdout"].as_str().unwrap().lines().collect();
    let written: u64 = lines[lines.len() - 2].parse().unwrap();
    assert!((290 << 20..310 << 20).contains(&written), "{told:#}");
    assert_eq!(lines.last(), Some(&"lives"), "{told:#}");
    let full = on_disk("head -c 400M /dev/zero > big; true");
    assert_eq!((&full["status"], &full["limits_hit"]), (&json!("ok"), &json!(["disk"])), "{full:#}");
    let many = on_disk("mkdir d; for i in {1..7000}; do : > d/$i || break; done; true");
    assert_eq!((&many["status"], &many["limits_hit"]), (&json!("ok"), &json!(["inodes"])), "{many:#}");
}

#[test]
fn its_files_belong_to_the_program_and_its_walls_stand() {
    if !is_possible() {
        return;
    }
    let told = on_disk(
        "touch own; stat -c '%u:%g %a' own /workspace /home/user /tmp /dev/shm
        for place in /workspace /home/user /tmp /dev/shm; do
            grep \" $place \" /proc/self/mounts | cut -d ' ' -f 3,4 | grep -o 'ext4\\|nosuid\\|nodev\\|noexec' | tr '\\n' ' '
            echo; ls -A $place | grep lost
        done
        cp /bin/true /dev/shm/true; /dev/shm/true 2> /dev/null; echo $?
        ln -s /etc/hostname link; cat link; ls /dev | grep -c loop",
    );
    let lines: Vec<&str> = told["stdout"].as_str().unwrap().lines().collect();
    let owners = ["1000:1000 644", "1000:1000 755", "1000:1000 700", "1000:1000 1777", "1000:1000 1777"];
    assert_eq!(lines[..5], owners, "{told:#}");
    let options: Vec<&str> = lines[5..9].iter().map(|line| line.trim()).collect();
    let plain = "ext4 nosuid nodev";
    assert_eq!(options, [plain, plain, plain, "ext4 nosuid nodev noexec"], "{told:#}");
    assert_eq!(lines[9..], ["126", "sandbox", "0"], "{told:#}");
}

#[test]
fn who_is_not_root_is_refused_in_words() {
    for who in Who::all().into_iter().filter(|who| *who != Who::Root) {
        let output = run(who, &["run", "--space", "disk", "-l", "bash", "-c", "true"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("cannot be on disk") && said.contains("root"), "{said}");
        // In memory it works as ever.
        let output = run(who, &["run", "--space", "memory", "-l", "bash", "-c", "true"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}
