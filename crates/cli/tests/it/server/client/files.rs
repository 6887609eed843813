//! Files in and out.

use std::os::unix::fs::PermissionsExt;

use super::{Server, ask, json, sandbox, told, told_with_input};
use crate::support::{Place, Who, stderr};

#[test]
fn files_and_folders_come_and_go() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let place = Place::new();
    let local = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let there = |path: &str| format!("{id}:{path}");

    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let file = place.write("tool.bin", &large);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
    told(&server, &["sandbox", "cp", &local("tool.bin"), &there("")]);
    let stat = json(&server, &["files", "stat", &id, "tool.bin"]);
    assert_eq!((&stat["size"], &stat["mode"]), (&3_000_000.into(), &"0750".into()));
    told(&server, &["sandbox", "cp", &there("tool.bin"), &local("back.bin")]);
    assert_eq!(std::fs::read(place.path().join("back.bin")).unwrap(), large);

    place.write("project/deep/a.txt", "a");
    place.write("project/b.txt", "b");
    told(&server, &["sandbox", "cp", &local("project"), &there("/workspace/")]);
    assert_eq!(told(&server, &["files", "cat", &id, "project/deep/a.txt", "project/b.txt"]), "ab");
    told(&server, &["sandbox", "exec", &id, "--", "ln", "-s", "/etc/passwd", "project/link"]);
    told(&server, &["sandbox", "cp", &there("project"), &local("copy")]);
    assert_eq!(std::fs::read(place.path().join("copy/deep/a.txt")).unwrap(), b"a");
    assert!(!place.path().join("copy/link").exists(), "a link that leads out stays inside");

    told_with_input(&server, &["sandbox", "cp", "-", &there("/tmp/typed")], b"typed");
    assert_eq!(told(&server, &["sandbox", "cp", &there("/tmp/typed"), "-"]), "typed");
    let second = sandbox(&server);
    told(&server, &["sandbox", "cp", &there("project"), &format!("{second}:moved")]);
    assert_eq!(told(&server, &["files", "cat", &second, "moved/b.txt"]), "b");

    let missing = ask(&server, &["sandbox", "cp", &there("nowhere"), &local("x")]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        stderr(&missing).starts_with("error: there is no file /workspace/nowhere"),
        "{}",
        stderr(&missing)
    );
    for args in [
        &["files", "cat", &id, "nowhere"][..],
        &["files", "get", &id, "nowhere", &local("x")],
        &["files", "ls", &id, "nowhere"],
        &["files", "stat", &id, "nowhere"],
        &["files", "rm", &id, "nowhere"],
        &["files", "mv", &id, "nowhere", "somewhere"],
        &["files", "put", &id, &local("nowhere")],
    ] {
        let missing = ask(&server, args);
        assert_eq!(missing.status.code(), Some(2), "{args:?}: {}", stderr(&missing));
        assert!(stderr(&missing).contains("/nowhere"), "{args:?}: {}", stderr(&missing));
    }
    assert!(!place.path().join("x").exists());
}

#[test]
fn the_file_commands_do_what_they_say() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    told(&server, &["files", "mkdir", &id, "a/b", "c"]);
    told_with_input(&server, &["files", "put", &id, "-", "a/b/one.py"], b"1");
    told(&server, &["files", "mv", &id, "a/b/one.py", "a/two.py"]);
    let listed = told(&server, &["files", "ls", &id, "--depth", "3"]);
    assert!(listed.contains("a/two.py") && listed.contains("a/b/") && listed.contains("c/"), "{listed}");
    assert_eq!(told(&server, &["files", "search", &id, "*.py"]), "/workspace/a/two.py\n");
    let full = ask(&server, &["files", "rm", &id, "a"]);
    assert_eq!(full.status.code(), Some(125), "a folder that holds something: {}", stderr(&full));
    told(&server, &["files", "rm", "-r", &id, "a"]);
    let left = json(&server, &["files", "ls", &id]);
    let names: Vec<_> =
        left["entries"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
    assert_eq!(names, ["/workspace/c"]);
    let place = Place::new();
    told(&server, &["files", "get", &id, "/etc/hosts", place.path().to_str().unwrap()]);
    assert!(place.path().join("hosts").exists());
}
