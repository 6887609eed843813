//! The captured network against the real kernel: each case of `probe` runs in a network namespace of its own, once
//! as root and once as an ordinary user in a user namespace.
//!
//! A process with threads cannot change its namespaces safely, so the tests start this binary again under `unshare`,
//! asking it for the one test `inside` and naming the case in the environment.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "the tests start themselves again in fresh namespaces")]

#[path = "network/probe.rs"]
mod probe;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

const CASE: &str = "NETWORK_TEST_CASE";
const ORDINARY_USER: &str = "65534";

/// The probe's way in: nothing to do unless a parent named a case.
#[test]
fn inside() {
    if let Ok(case) = std::env::var(CASE) {
        probe::run(&case);
    }
}

fn holds(case: &str) {
    if rustix::process::getuid().is_root() {
        passes("as root", &["unshare", "--net"], &std::env::current_exe().unwrap(), case);
    }
    as_ordinary_user(&["unshare", "--user", "--map-root-user", "--net"], case);
}

/// Runs the case from a copy of this binary that an ordinary user can reach.
fn as_ordinary_user(wrapper: &[&str], case: &str) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let binary = directory.path().join("probe");
    // By another process: a descriptor of ours that a fork of another thread inherits would keep the file busy.
    assert!(
        Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status().unwrap().success()
    );
    let become_user = ["setpriv", "--reuid", ORDINARY_USER, "--regid", ORDINARY_USER, "--clear-groups", "--"];
    let become_user = if rustix::process::getuid().is_root() { &become_user[..] } else { &["env"] };
    passes("as an ordinary user", &[become_user, wrapper].concat(), &binary, case);
}

fn passes(who: &str, wrapper: &[&str], binary: &Path, case: &str) {
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(binary)
        .args(["--exact", "inside", "--nocapture"])
        .env(CASE, case)
        .current_dir("/")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let held = output.status.success() && stdout.contains("1 passed");
    assert!(held, "{who}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn tcp_arrives_with_its_original_destination() {
    holds("tcp4");
    holds("tcp6");
}

#[test]
fn loopback_between_programs_is_untouched() {
    holds("peers");
}

#[test]
fn our_sockets_are_reached_by_redirection_alone() {
    holds("direct");
}

#[test]
fn dns_reaches_the_resolver_whatever_server_is_asked() {
    holds("dns_udp");
    holds("dns_tcp");
}

#[test]
fn other_udp_goes_nowhere() {
    holds("udp");
}

#[test]
fn icmp_goes_nowhere() {
    holds("icmp");
}

#[test]
fn a_flood_of_connections_is_bounded() {
    holds("flood");
}

#[test]
fn rules_are_installed_once() {
    holds("twice");
}

#[test]
fn without_network_only_loopback_answers() {
    holds("loopback_only");
}

#[test]
fn without_privilege_nothing_is_changed() {
    as_ordinary_user(&[], "unprivileged");
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let name = format!("sandstorm-network-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    holds(&format!("abstract:{name}"));
}
