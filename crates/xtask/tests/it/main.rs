//! `deny.toml` refuses what it is there to refuse: each test seeds one bad
//! dependency into a small workspace and expects cargo-deny to name it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests: a panic is the report, a skip says why"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const RULES: &str = include_str!("../../../../deny.toml");

#[expect(clippy::disallowed_methods, reason = "a test of a tool has to start that tool")]
fn program(name: &str) -> Command {
    Command::new(name)
}

/// cargo-deny may be absent on a developer's machine, never in CI.
fn deny_is_missing() -> bool {
    let present =
        program("cargo").args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !present {
        assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "cargo-deny is not installed");
        eprintln!("skipped: cargo-deny is not installed");
    }
    !present
}

/// A package that depends on `name`, found by `source`.
fn seed(root: &Path, name: &str, source: &str) {
    let manifest = format!(
        "[package]\nname = \"seeded\"\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense = \"MIT\"\npublish = false\n\
         [dependencies]\n{name} = {{ {source} }}\n"
    );
    fs::write(root.join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(root.join("src")).unwrap();
    fs::write(root.join("src/lib.rs"), "").unwrap();
    fs::write(root.join("deny.toml"), RULES).unwrap();
}

fn dependency(folder: &Path, name: &str, licence: &str) {
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense = \"{licence}\"\n\
         [lib]\npath = \"src/lib.rs\"\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
}

fn deny(root: &Path) -> Output {
    let checks = ["deny", "check", "licenses", "bans", "sources"];
    program("cargo").args(checks).current_dir(root).output().unwrap()
}

fn refused_for(output: &Output, code: &str) -> bool {
    !output.status.success() && String::from_utf8_lossy(&output.stderr).contains(code)
}

fn seed_by_path(root: &Path, name: &str, licence: &str) {
    seed(root, name, "path = \"dependency\"");
    dependency(&root.join("dependency"), name, licence);
}

#[test]
fn a_permissive_dependency_is_accepted() {
    if deny_is_missing() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    seed_by_path(root.path(), "harmless", "MIT OR GPL-3.0-only");
    let output = deny(root.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_copyleft_licence_is_refused() {
    if deny_is_missing() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    seed_by_path(root.path(), "harmless", "GPL-3.0-only");
    let output = deny(root.path());
    assert!(refused_for(&output, "error[rejected]"), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_banned_crate_is_refused() {
    if deny_is_missing() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    seed_by_path(root.path(), "openssl-sys", "MIT");
    let output = deny(root.path());
    assert!(refused_for(&output, "error[banned]"), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_git_source_is_refused() {
    if deny_is_missing() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let upstream = root.path().join("upstream");
    dependency(&upstream, "harmless", "MIT");
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "--all"],
        &["-c", "user.name=Test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message=seed"],
    ] {
        assert!(program("git").args(arguments).current_dir(&upstream).status().unwrap().success());
    }
    let package = root.path().join("package");
    fs::create_dir(&package).unwrap();
    seed(&package, "harmless", &format!("git = \"file://{}\"", upstream.display()));
    let output = deny(&package);
    assert!(refused_for(&output, "error[source-not-allowed]"), "{}", String::from_utf8_lossy(&output.stderr));
}
