//! Foreign APIs that the server speaks, each walked through by a script that knows nothing of us but its address.

use super::instance::Server;
use super::tenants::{new_key, on_state};
use crate::support::{Who, stderr, stdout};

/// Every route of the session API, with keys of two tenants.
#[test]
fn the_session_api_answers_as_its_clients_expect() {
    let server = Server::start(Who::Root);
    on_state(&server, &["tenants", "create", "other"]);
    let (_, other) = new_key(&server, &["--tenant", "other"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/dialects/session.py");
    let walked = std::process::Command::new("/usr/bin/python3")
        .args(["-B", script, &format!("http://127.0.0.1:{}", server.port), &server.key, &other])
        .output()
        .unwrap();
    assert!(walked.status.success(), "{}{}", stdout(&walked), stderr(&walked));
    assert!(stdout(&walked).ends_with("all checks passed\n"), "{}", stdout(&walked));
}
