//! Bad input: each kind is told clearly, with the right exit code, before anything ran, and leaves nothing behind.

mod broken_hosts;
mod files;
mod interrupts;
mod limits;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Output;

use crate::support::{Place, Who, run, run_with_input, sandstorm, stderr, stdout};

/// The caller's mistake: exit code 2, one clear complaint, and no program that ran.
pub(crate) fn assert_misuse(output: &Output, says: &str) {
    assert_refused(output, 2, says);
}

pub(crate) fn assert_refused(output: &Output, code: i32, says: &str) {
    let complaint = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    assert!(complaint.starts_with("error: "), "{complaint}");
    assert!(complaint.contains(says), "{says:?} is not in {complaint:?}");
    assert!(complaint.len() < 2000, "a complaint of {} bytes", complaint.len());
    assert!(complaint.lines().all(|line| !line.contains("panicked")), "{complaint}");
    assert!(!stdout(output).contains("ran"), "the program ran");
}

#[test]
fn no_code() {
    let place = Place::new();
    for content in ["", "   \n\t\n"] {
        let file = place.write("empty.py", content);
        assert_misuse(&run(Who::Root, &["run", file.to_str().unwrap()]), "the program is empty");
        assert_misuse(&run(Who::Root, &["run", "-l", "python", "-c", content]), "the program is empty");
        let output = run_with_input(Who::Root, &["run", "-l", "python", "-"], content.as_bytes());
        assert_misuse(&output, "the program is empty");
    }
}

#[test]
fn far_too_much_code() {
    let place = Place::new();
    let much = vec![b'#'; 100 << 20];
    let file = place.write("much.py", &much);
    assert_misuse(&run(Who::Root, &["run", file.to_str().unwrap()]), "too large: 104857600 bytes");
    let output = run_with_input(Who::Root, &["run", "-l", "python", "-"], &much);
    assert_misuse(&output, "more than 16 MiB of code");
}

#[test]
fn code_that_is_no_text() {
    let place = Place::new();
    for (content, says) in [
        (b"print('ran')\0".as_slice(), "it holds NUL characters"),
        (b"print('ran')\n\xff\xfe", "byte 14 is not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x80", "is not UTF-8"),
    ] {
        let file = place.write("garbage.py", content);
        assert_misuse(&run(Who::Root, &["run", file.to_str().unwrap()]), says);
        assert_misuse(&run_with_input(Who::Root, &["run", "-l", "python", "-"], content), says);
    }
}

#[test]
fn names_that_are_no_text() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"pro\xffgram.py");
    std::fs::write(place.path().join(name), "print('ran')").unwrap();
    let output = sandstorm(Who::Root).arg("run").arg(place.path().join(name)).output().unwrap();
    assert_misuse(&output, "is not UTF-8; rename it");
    let state = OsStr::from_bytes(b"/tmp/st\xffate");
    let mut command = sandstorm(Who::Root);
    command.arg("--state-dir").arg(state).args(["run", "-l", "python", "-c", "print('ran')"]);
    assert_misuse(&command.output().unwrap(), "not UTF-8");
    let target = OsStr::from_bytes(b"data:na\xffme");
    let arguments = ["run", "-l", "python", "-c", "print('ran')", "--file"];
    assert_misuse(&sandstorm(Who::Root).args(arguments).arg(target).output().unwrap(), "is not UTF-8");
}

#[test]
fn unknown_languages() {
    let near = run(Who::Root, &["run", "-l", "pyhton", "-c", "print('ran')"]);
    assert_misuse(&near, "unknown language \"pyhton\"; did you mean \"python\"?");
    let far = run(Who::Root, &["run", "-l", "klingon", "-c", "print('ran')"]);
    assert_misuse(&far, "unknown language \"klingon\"; `sandstorm languages` lists them");
    let place = Place::new();
    let file = place.write("program.xyz", "print('ran')");
    assert_misuse(&run(Who::Root, &["run", file.to_str().unwrap()]), "the name does not tell the language");
    assert_misuse(
        &run_with_input(Who::Root, &["run", "-"], b"print('ran')"),
        "the code does not tell its language",
    );
}

#[test]
fn programs_that_are_not_files() {
    let place = Place::new();
    let missing = place.path().join("missing.py");
    assert_misuse(&run(Who::Root, &["run", missing.to_str().unwrap()]), "No such file or directory");
    assert_misuse(&run(Who::Root, &["run", place.path().to_str().unwrap()]), "is a folder");
    assert_misuse(&run(Who::Root, &["run", "-l", "python", "/dev/zero"]), "is not a regular file");
    let fifo = place.path().join("fifo.py");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    assert_misuse(&run(Who::Root, &["run", fifo.to_str().unwrap()]), "is not a regular file");
}

#[test]
fn bad_values_of_other_flags() {
    for (flag, value, says) in [
        ("--env", "NAME", "expected NAME=VALUE"),
        ("--env", "=value", "environment variable name"),
        ("--env", "A B=value", "environment variable name"),
        ("--network", "bad/host", "names no host"),
        ("--network", "", "--network"),
        ("--require", "", "requirement must have"),
        ("--stdin-file", "/nonexistent", "could not read /nonexistent"),
    ] {
        assert_misuse(&run(Who::Root, &["run", "-l", "bash", "-c", "echo ran", flag, value]), says);
    }
}

#[test]
fn a_secret_in_a_bad_variable_is_not_repeated() {
    let output = run(Who::Root, &["run", "-l", "bash", "-c", "echo ran", "--env", "BAD NAME=hunter2"]);
    assert_misuse(&output, "--env BAD NAME");
    assert!(!stderr(&output).contains("hunter2"));
}

#[test]
fn unknown_keys_of_the_configuration_are_named_with_their_line() {
    let place = Place::new();
    let file = place.write("sandstorm.yaml", "limits:\n  memory: 64M\n  memroy: 1G\n");
    let output = run(Who::Root, &["--config", file.to_str().unwrap(), "run", "-l", "bash", "-c", "echo ran"]);
    assert_misuse(&output, "sandstorm.yaml:3:3: unknown key `limits.memroy`");
    assert!(stderr(&output).contains("did you mean `memory`?"));
    let missing = run(Who::Root, &["--config", "/nonexistent.yaml", "run", "-l", "bash", "-c", "echo ran"]);
    assert_misuse(&missing, "cannot read the configuration /nonexistent.yaml");
}

#[test]
fn complaints_cannot_repaint_the_terminal() {
    let output = run(Who::Root, &["run", "-l", "\u{1b}[2Jpython\u{7}", "-c", "print('ran')"]);
    assert_misuse(&output, "unknown language");
    assert!(!stderr(&output).contains('\u{1b}') && !stderr(&output).contains('\u{7}'));
}
