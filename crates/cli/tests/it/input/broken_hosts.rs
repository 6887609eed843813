//! Machines with a full disk, nothing to write to, or nothing to run with.

use std::process::{Command, Output};

use crate::support::{Place, Who, binary, skip, stderr, stdout};

use super::assert_refused;

/// Runs a shell script in a mount namespace of its own, where `$S` is the binary and `$D` an empty folder.
fn with_own_mounts(place: &Place, script: &str) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can mount");
        return None;
    }
    let folder = place.path().join("mounted");
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", script]).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    command.env("HOME", "/nonexistent").env("S", binary()).env("D", &folder);
    Some(command.output().unwrap())
}

#[test]
fn a_full_disk_for_files_that_come_back() {
    let place = Place::new();
    let script = r#"mount -t tmpfs -o size=64k none "$D"
        code=0; "$S" run -l bash -c 'echo done; head -c 1000000 /dev/zero > big' --out "$D/out" || code=$?
        echo "left: $(ls -A "$D/out")"; exit $code"#;
    let Some(output) = with_own_mounts(&place, script) else { return };
    assert_refused(
        &output,
        125,
        "the program's files could not be brought back: \"big\" could not be written",
    );
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    // The program's output was shown, and no half of its file lies about.
    assert_eq!(stdout(&output), "done\nleft: \n");
}

#[test]
fn a_result_is_told_even_if_its_files_are_lost() {
    let place = Place::new();
    let script = r#"mount -t tmpfs -o size=64k none "$D"
        "$S" run --json -l bash -c 'head -c 1000000 /dev/zero > big' --out "$D/out""#;
    let Some(output) = with_own_mounts(&place, script) else { return };
    assert_refused(&output, 125, "could not be brought back");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["status"], "ok");
}

const HELLO: &str = "int puts(const char *); int main(void) { puts(\"compiled\"); }";

#[test]
fn a_full_or_read_only_state_directory_costs_only_the_cache() {
    let place = Place::new();
    let program = place.write("hello.c", HELLO);
    for (options, says) in [("size=64k", "No space left on device"), ("size=64k,ro", "Read-only file system")]
    {
        let script = format!(
            r#"mount -t tmpfs -o {options} none "$D"; head -c 1000000 /dev/zero > "$D/filler" || :
            "$S" --state-dir "$D/state" run {}; find "$D" -type f -not -name filler"#,
            program.display()
        );
        let Some(output) = with_own_mounts(&place, &script) else { return };
        assert_eq!(
            (stdout(&output).as_str(), output.status.code()),
            ("compiled\n", Some(0)),
            "{}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("the compile cache cannot be written"), "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn a_read_only_home_is_no_hindrance() {
    let place = Place::new();
    let script = r#"mount -t tmpfs -o ro,size=64k none "$D"
        HOME="$D" XDG_STATE_HOME="$D/s" setpriv --reuid=65534 --regid=65534 --clear-groups -- "$S" run -l bash -c 'echo works'"#;
    let Some(output) = with_own_mounts(&place, script) else { return };
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("works\n", Some(0)), "{}", stderr(&output));
}

#[test]
fn the_state_directory_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let program = place.write("hello.c", HELLO);
    let state = place.path().join("a/state");
    let output = crate::support::sandstorm(Who::Root)
        .args(["--state-dir", state.to_str().unwrap(), "run", program.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "compiled\n", "{}", stderr(&output));
    assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Where the interpreter's link leads nowhere, the language is as good as not installed.
#[test]
fn a_missing_interpreter_is_named_with_its_installation() {
    let place = Place::new();
    let script = r#"mount -t tmpfs none /etc/alternatives; mount --bind /dev/null "$(readlink -f /usr/bin/sqlite3)"
        code=0; "$S" run -l sql -c 'select 1' || code=$?; exit $code"#;
    let Some(output) = with_own_mounts(&place, script) else { return };
    assert_refused(&output, 2, "is not installed");
    assert!(stderr(&output).contains("apt-get install"), "{}", stderr(&output));
}
