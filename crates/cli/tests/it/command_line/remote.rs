//! Commands that talk to a server, as far as they go without one.

use crate::support::{Place, Who, run, sandstorm, silent_port, stderr, stdout};

#[test]
fn help_is_as_written() {
    for (name, args) in [
        ("sandbox", &["sandbox", "--help"][..]),
        ("sandbox_create", &["sandbox", "create", "--help"]),
        ("sandbox_exec", &["sandbox", "exec", "--help"]),
        ("sandbox_shell", &["sandbox", "shell", "--help"]),
        ("sandbox_cp", &["sandbox", "cp", "--help"]),
        ("context", &["context", "--help"]),
        ("context_exec", &["context", "exec", "--help"]),
        ("files", &["files", "--help"]),
        ("runs", &["runs", "--help"]),
        ("snapshot", &["snapshot", "--help"]),
        ("snapshot_restore", &["snapshot", "restore", "--help"]),
    ] {
        let output = run(Who::Root, args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        insta::assert_snapshot!(format!("help_{name}"), stdout(&output));
    }
}

#[test]
fn mistakes_are_told_before_any_server_is_asked() {
    for (args, told) in [
        (&["sandbox", "get", "abc"][..], "`abc` is no id: expected sbx_…"),
        (&["sandbox", "get", "SBX_AAAAAA"], "is no id"),
        (&["sandbox", "cp", "a", "b"], "neither side is in a sandbox"),
        (&["sandbox", "create", "--memory", "lots"], "--memory lots"),
        (&["sandbox", "create", "--network", "allow:http://x"], "--network"),
        (&["sandbox", "create", "--label", "x"], "expected KEY=VALUE"),
        (&["sandbox", "create", "--lifetime", "soon"], "--lifetime soon"),
        (&["sandbox", "create", "--template", "debian"], "expected host, image:REFERENCE"),
        (&["sandbox", "exec", "aaaaaaa"], "required"),
        (&["sandbox", "rm"], "required"),
        (&["snapshot", "rm"], "required"),
        (&["snapshot", "create", "abc"], "`abc` is no id: expected sbx_…"),
        (&["snapshot", "restore", "snap_x", "--memory", "lots"], "--memory lots"),
        (&["context", "exec", "aaaaaaa", "bbbbbbb"], "required"),
        (&["files", "ls", "aaaaaaa", "../x"], "may not go up"),
        (&["sandbox", "list", "--url", "ftp://host"], "must start with http://"),
        (&["sandbox", "list", "--url", "http://user:hunter2@host"], "a key is not part of the address"),
        (&["sandbox", "list", "--api-key-file", "/nonexistent/key"], "no key: cannot read"),
    ] {
        let output = run(Who::Root, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(told), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("hunter2") && output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_client_without_encryption_needs_no_certificates() {
    let (_taken, port) = silent_port();
    for (scheme, told) in [("http", "could not reach"), ("https", "could not set up TLS")] {
        let output = sandstorm(Who::Root)
            .env("SSL_CERT_FILE", "/dev/null")
            .env("SSL_CERT_DIR", "/nonexistent")
            .args(["sandbox", "list", "--url", &format!("{scheme}://127.0.0.1:{port}")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(told), "{scheme}: {}", stderr(&output));
    }
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let (_taken, port) = silent_port();
    let output = sandstorm(Who::Root)
        .env("SANDSTORM_URL", format!("http://127.0.0.1:{port}"))
        .args(["sandbox", "list"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let told = stderr(&output);
    assert!(
        told.starts_with(&format!("error: could not reach http://127.0.0.1:{port}: Connection refused")),
        "{told}"
    );
    assert!(told.contains("sandstorm serve") && told.contains("SANDSTORM_URL"), "{told}");
}

#[test]
fn a_key_is_read_from_its_file_and_shown_nowhere() {
    let place = Place::new();
    let file = place.write("key", "not a key\u{e9}\n");
    let output = run(Who::Root, &["sandbox", "list", "--api-key-file", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "error: the key may hold only visible ASCII characters\n");
}
