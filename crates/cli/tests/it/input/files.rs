//! Names of files on their way in and out.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Place, Who, run, stderr, stdout};

use super::{assert_misuse, assert_refused};

fn given(files: &[&str]) -> std::process::Output {
    let mut arguments = vec!["run", "-l", "bash", "-c", "echo ran"];
    arguments.extend(files.iter().flat_map(|file| ["--file", file]));
    run(Who::Root, &arguments)
}

#[test]
fn targets_outside_what_can_be_written_are_refused() {
    let place = Place::new();
    let file = place.write("data", "content");
    let data = file.to_str().unwrap();
    for (target, says) in [
        ("../x", "may not go up"),
        ("a/../../b", "may not go up"),
        ("/tmp/../etc/x", "may not go up"),
        ("%2e%2e/x", "may not go up"),
        ("/etc/passwd", "files can be put below"),
        ("/proc/1/mem", "files can be put below"),
        ("/usr/bin/python3", "files can be put below"),
        ("/workspaces/x", "files can be put below"),
        ("/", "files can be put below"),
        ("/workspace", "files can be put below"),
        (".", "files can be put below"),
        ("", "path is empty"),
    ] {
        assert_misuse(&given(&[&format!("{data}:{target}")]), says);
    }
    assert_misuse(&given(&[&format!("{data}:{}", "n".repeat(300))]), "longer than 255 bytes");
}

#[test]
fn files_that_contradict_each_other_are_refused() {
    let place = Place::new();
    let file = place.write("data", "content");
    let named = |name: &str| format!("{}:{name}", file.display());
    assert_misuse(
        &given(&[&named("a"), &named("a-b"), &named("a/b")]),
        "cannot be both a file and the folder",
    );
    assert_misuse(&given(&[&named("a"), &named("./a")]), "is given twice");
    assert_misuse(&given(&[&named("main.sh")]), "given twice: as code and as a file");
    assert_misuse(&given(&["/nonexistent"]), "could not read /nonexistent");
    assert_misuse(&given(&[place.path().to_str().unwrap()]), "is a folder");
}

/// The caller named the link, so its content is meant; inside it is a plain file.
#[test]
fn a_link_is_given_as_what_it_points_to() {
    let place = Place::new();
    place.write("target", "content");
    let link = place.path().join("link");
    std::os::unix::fs::symlink("target", &link).unwrap();
    let script = "[ -L link ] || cat link";
    let output = run(Who::Root, &["run", "-l", "bash", "-c", script, "--file", link.to_str().unwrap()]);
    assert_eq!(stdout(&output), "content", "{}", stderr(&output));
}

fn below(dir: &Path) -> BTreeSet<String> {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn what_comes_back_cannot_lead_out() {
    for who in Who::all() {
        let place = Place::new();
        let out = place.path().join("out");
        let script = "echo fine > plain; ln -s plain inside; ln -s /etc/passwd absolute; ln -s ../../etc climbing; \
                      mkdir folder; ln -s ../../x folder/climbing; mkfifo pipe; chmod 777 plain; ln plain hard; \
                      ln -s /etc folder/link; echo x > $'line\\nbreak'; chmod u+s,g+s plain; :";
        let output = run(who, &["run", "-l", "bash", "-c", script, "--out", out.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{who:?}: {}", stderr(&output));
        let expected = ["folder", "hard", "inside", "line\nbreak", "main.sh", "plain"].map(str::to_owned);
        assert_eq!(below(&out), BTreeSet::from(expected), "{who:?}");
        assert!(below(&out.join("folder")).is_empty(), "{who:?}");
        assert_eq!(std::fs::read_link(out.join("inside")).unwrap(), Path::new("plain"));
        let mode = std::fs::metadata(out.join("plain")).unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{who:?}: set-id bits came back");
    }
}

/// A folder that somebody prepared with links must not let the program's files out of it.
#[test]
fn links_in_the_folder_are_not_followed() {
    let place = Place::new();
    let out = place.path().join("out");
    let victim = place.path().join("victim");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::create_dir_all(&victim).unwrap();
    place.write("victim/file", "precious");
    std::os::unix::fs::symlink(&victim, out.join("folder")).unwrap();
    std::os::unix::fs::symlink(victim.join("file"), out.join("file")).unwrap();
    let replace =
        run(Who::Root, &["run", "-l", "bash", "-c", "echo mine > file", "--out", out.to_str().unwrap()]);
    assert_eq!(replace.status.code(), Some(0), "{}", stderr(&replace));
    assert_eq!(std::fs::read_to_string(out.join("file")).unwrap(), "mine\n");
    let enter = run(
        Who::Root,
        &["run", "-l", "bash", "-c", "mkdir folder; echo mine > folder/file", "--out", out.to_str().unwrap()],
    );
    assert_refused(&enter, 125, "could not be written");
    assert_eq!(std::fs::read_to_string(victim.join("file")).unwrap(), "precious");
    assert_eq!(below(&victim).len(), 1);
}

#[test]
fn a_folder_that_is_none_is_refused_before_the_program_runs() {
    let place = Place::new();
    let file = place.write("file", "");
    let output = run(Who::Root, &["run", "-l", "bash", "-c", "echo ran", "--out", file.to_str().unwrap()]);
    assert_misuse(&output, "not a folder");
}
