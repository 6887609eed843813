//! What goes into a run and what comes back out of it.

use std::os::unix::fs::symlink;

use crate::support::{self, Place, Who};

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
