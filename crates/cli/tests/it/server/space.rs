//! Writable space and memory of a sandbox: what fills the one does not end the other.

use serde_json::{Value, json};

use super::instance::Server;
use crate::support::Who;

/// More may be written than programs may have of memory.
fn wishes() -> Value {
    json!({ "limits": { "memory": "160M", "disk": "240M" } })
}

#[test]
fn an_upload_that_does_not_fit_is_refused_and_ends_nothing() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&wishes());
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let context = format!("{sandbox}/contexts/{}/execute", context["id"].as_str().unwrap());
    let cell = |code: &str| {
        let told = server.post(&context, &json!({ "code": code })).expect(200);
        assert_eq!(told["status"], "ok", "{code}: {told:#}");
        told["results"][0]["data"]["text/plain"].as_str().unwrap_or_default().to_owned()
    };
    // Little beside what is eaten later: of all programs the kernel ends the largest.
    cell("kept = bytearray(b'x' * (2 << 20))");
    let piece = vec![b'y'; 90 << 20];
    let upload = |name: &str| server.put(&format!("{sandbox}/files?path={name}"), &piece).status;
    // Two of them are more than programs may have of memory, and three more than there is of space.
    let answers: Vec<u16> = ["one", "two", "three", "four"].map(upload).to_vec();
    assert!(answers[..2].iter().all(|status| *status < 300), "{answers:?}");
    assert_eq!(answers[2..], [507, 507]);
    assert_eq!(cell("len(kept), kept[-1:].decode()"), "(2097152, 'x')");
    // What a program writes is refused as well, and ends neither it nor the context.
    let full = server.exec(&sandbox, "head -c 300M /dev/zero > rest; echo $?");
    assert_eq!((&full["stdout"], &full["limits_hit"]), (&json!("1\n"), &json!(["disk"])), "{full:#}");
    // Nor is memory to be had for files' sake.
    let eaten = server.exec(&sandbox, "x=0123456789abcdef; while :; do x=$x$x; done");
    assert_eq!(eaten["status"], "memory", "{eaten:#}");
    assert_eq!(cell("len(kept)"), "2097152");
    let state = server.get(&sandbox).expect(200)["state"].clone();
    assert!(["ready", "running"].map(Value::from).contains(&state), "{state}");
    server.delete(&format!("{sandbox}/files?path=one"));
    assert!(upload("three") < 300, "there is space again");
}

#[test]
fn a_run_that_fills_the_space_lives_whether_it_was_made_ahead_or_not() {
    for pool in ["true", "false"] {
        let server = Server::with(
            Who::Root,
            &[("SANDSTORM_POOL_ENABLED", pool), ("SANDSTORM_POOL_PREFILL", "1")],
            &[],
        );
        let run = |code: &str| {
            let wanted = json!({ "language": "bash", "code": code, "limits": wishes()["limits"] });
            server.post("/v1/runs", &wanted).expect(200)
        };
        // After the first of a kind others are made ahead, with groups that were used before.
        for _ in 0..3 {
            let told = run("head -c 300M /dev/zero > big; echo $?; wc -c < big");
            assert_eq!(told["status"], "ok", "{told:#}");
            assert_eq!(told["limits_hit"], json!(["disk"]));
            assert!(told["stdout"].as_str().unwrap().starts_with("1\n25"), "{told:#}");
            let told = run("x=0123456789abcdef; while :; do x=$x$x; done");
            assert_eq!(told["status"], "memory", "{told:#}");
        }
    }
}
