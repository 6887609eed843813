//! What goes into a run and what comes back out of it.

use std::os::unix::fs::symlink;

use crate::support::{self, Place, Who, run, stderr};

#[test]
fn input_files_variables_and_arguments_go_in() {
    let place = Place::new();
    let input = place.write("input.txt", "from a file\n");
    let data = place.write("data.bin", [0u8, 255, 10]);
    let script =
        "cat; echo \"$GREETING\"; od -An -tx1 sub/other.bin; cat data.bin | wc -c; printf '%s|' \"$@\"";
    let renamed = format!("{}:sub/other.bin", data.display());
    for who in Who::all() {
        let args = [
            "-l",
            "bash",
            "-c",
            script,
            "--stdin-file",
            input.to_str().unwrap(),
            "--env",
            "GREETING=hello = you",
            "--file",
            data.to_str().unwrap(),
            "--file",
            &renamed,
            "--",
            "one",
            "two three",
            "",
        ];
        let (result, cli) = support::ending(who, &args);
        assert_eq!(cli, 0, "{result:#}");
        assert_eq!(result["stdout"], "from a file\nhello = you\n 00 ff 0a\n3\none|two three||", "{who:?}");
    }
}

#[test]
fn standard_input_is_passed_on_and_its_end_with_it() {
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    for who in Who::all() {
        let output = support::run_with_input(who, &["run", "-l", "bash", "-c", "cat"], &large);
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        assert!(output.stdout == large, "{who:?}: what came back is not what went in");
        // A program that does not read ends all the same.
        let output = support::run_with_input(who, &["run", "-l", "bash", "-c", "exit 3"], &large);
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn files_come_back() {
    for who in Who::all() {
        let place = Place::new();
        let out = place.path().join("out");
        let script = "mkdir -p a/b; echo deep >a/b/c; printf '\\0\\377' >bytes; ln -s a/b/c link; chmod 755 bytes; exit 4";
        let args = ["-l", "bash", "-c", script, "--out", out.to_str().unwrap()];
        let (result, cli) = support::ending(who, &args);
        assert_eq!(cli, 4, "{result:#}");
        assert_eq!(std::fs::read(out.join("a/b/c")).unwrap(), b"deep\n", "{who:?}");
        assert_eq!(std::fs::read(out.join("bytes")).unwrap(), [0, 255]);
    }
}

#[test]
fn files_come_back_from_a_run_that_was_ended() {
    let place = Place::new();
    let out = place.path().join("out");
    let args = [
        "-l",
        "bash",
        "-c",
        "echo half >so-far; sleep 60",
        "--timeout",
        "1s",
        "--out",
        out.to_str().unwrap(),
    ];
    let (result, cli) = support::ending(Who::Root, &args);
    assert_eq!((result["status"].as_str(), cli), (Some("timeout"), 124));
    assert_eq!(std::fs::read_to_string(out.join("so-far")).unwrap(), "half\n");
}

/// The program names files outside the folder in every way that an archive can: nothing of them may be touched, and
/// nothing that was there before may be followed.
#[test]
fn hostile_links_do_not_lead_out_of_the_folder() {
    for who in Who::all() {
        let place = Place::new();
        let out = place.path().join("out");
        std::fs::create_dir(&out).unwrap();
        std::fs::set_permissions(&out, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let victim = place.write("victim", "untouched");
        std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        // A link that was in the folder before, to a name that the program will write.
        symlink(&victim, out.join("planted")).unwrap();
        let script = format!(
            "ln -s {victim} straight; ln -s ../victim up; ln -s .. dots; ln -s {root} whole; echo pwned >planted; mkfifo pipe; echo fine >good",
            victim = victim.display(),
            root = place.path().display(),
        );
        let args = ["run", "--json", "-l", "bash", "-c", &script, "--out", out.to_str().unwrap()];
        let _ = support::run(who, &args);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched", "{who:?}");
        for entry in std::fs::read_dir(&out).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            let name = entry.file_name();
            assert!(
                kind.is_file() || kind.is_dir() || name == "planted" && kind.is_symlink(),
                "{who:?}: {name:?} is {kind:?}"
            );
        }
    }
}

/// A process that the program left behind and that stops everything it can reach does not keep the files: the end of a
/// run's program is the end of everything in its sandbox.
#[test]
fn what_is_left_behind_cannot_hold_the_files_back() {
    // It begins when the program itself has ended: before that it would stop the program, which then ends by its limit.
    let left_behind = "import os, signal\n\
                       for i in range(200): open(f'f{i}', 'w').write('x')\n\
                       program = os.getpid()\n\
                       if os.fork() == 0:\n\
                       \x20   os.setsid()\n\
                       \x20   while os.getppid() == program: pass\n\
                       \x20   while True:\n\
                       \x20       try: os.kill(-1, signal.SIGSTOP)\n\
                       \x20       except OSError: pass\n";
    for who in Who::all() {
        let place = Place::new();
        let out = place.path().join("out");
        let args =
            ["run", "--timeout", "5m", "--out", out.to_str().unwrap(), "-l", "python", "-c", left_behind];
        let began = std::time::Instant::now();
        let output = run(who, &args);
        assert!(output.status.success(), "{who:?}: {}", stderr(&output));
        assert!(began.elapsed() < support::PATIENCE, "{who:?}: it was waited for");
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 201, "{who:?}");
    }
}

/// Links that climb from wherever another link leads do not come back either.
#[test]
fn chained_links_do_not_lead_out_of_the_folder() {
    let place = Place::new();
    let out = place.path().join("out");
    let script =
        "mkdir -p p/q/r; ln -s ../../.. p/q/r/up; ln -s p/q/r/up/../../../../etc/passwd z; ln -s p/q ok";
    let output = run(Who::Root, &["run", "--out", out.to_str().unwrap(), "-l", "bash", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(out.join("z").symlink_metadata().is_err(), "a link that leads out came back");
    assert!(out.join("ok").symlink_metadata().is_ok(), "a link that stays inside did not");
}
