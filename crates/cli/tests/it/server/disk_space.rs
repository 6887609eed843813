//! Sandboxes whose writable space is on the server's disk: who goes on with them, and what is left when everybody dies.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::instance::Server;
use crate::disk_space::{DEVICE, is_attached, is_possible};
use crate::support::{Who, eventually};

/// More on disk than programs may have of memory.
fn wishes() -> Value {
    json!({ "space": "disk", "limits": { "memory": "64M", "disk": "300M" } })
}

fn device(server: &Server, sandbox: &str) -> String {
    let told = server.exec(sandbox, DEVICE);
    let device = told["stdout"].as_str().unwrap().trim().to_owned();
    assert!(is_attached(&device), "{told:#}");
    device
}

#[test]
fn what_is_on_disk_goes_with_its_sandbox_and_with_its_launcher() {
    if !is_possible() {
        return;
    }
    let mut server = Server::start(Who::Root);
    let version = server.get("/v1/version").expect(200);
    assert_eq!(version["capabilities"]["disk_space"], true, "{version:#}");
    let (first, second) = (server.sandbox(&wishes()), server.sandbox(&wishes()));
    assert_eq!(server.get(&first).expect(200)["space"], "disk");
    let devices = [device(&server, &first), device(&server, &second)];
    assert_ne!(devices[0], devices[1]);
    let piece = vec![b'y'; 80 << 20];
    let upload = |name: &str| server.put(&format!("{first}/files?path={name}"), &piece).status;
    let answers = ["one", "two", "three", "four"].map(upload);
    assert!(answers[..3].iter().all(|status| *status < 300) && answers[3] == 507, "{answers:?}");
    // It outlives its server.
    server.kill();
    server.restart();
    assert_eq!(server.exec(&first, "cat one two three | wc -c")["stdout"], "251658240\n");
    assert_eq!(server.delete(&second).status, 204);
    eventually("a device goes with its sandbox", || !is_attached(&devices[1]));
    // Nobody has a moment to clear away.
    for pid in server.processes().into_iter().filter_map(Pid::from_raw) {
        // One may be gone with another.
        let _ = kill_process(pid, Signal::KILL);
    }
    server.wait();
    eventually("a device goes with everybody who had it", || !is_attached(&devices[0]));
}

#[test]
fn a_copy_of_what_is_on_disk_is_on_disk() {
    if !is_possible() {
        return;
    }
    let server = Server::start(Who::Root);
    let wishes = json!({ "space": "disk", "limits": { "memory": "256M", "disk": "300M" } });
    let sandbox = server.sandbox(&wishes);
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let cell = |sandbox: &str, context: &Value, code: &str| {
        let execute = format!("{sandbox}/contexts/{}/execute", context.as_str().unwrap());
        let told = server.post(&execute, &json!({ "code": code })).expect(200);
        assert_eq!(told["status"], "ok", "{told:#}");
        told["results"][0]["data"]["text/plain"].as_str().unwrap_or_default().to_owned()
    };
    cell(&sandbox, &context["id"], "x = 41\nopen('a', 'w').write('then')");
    let forked = server.post(&format!("{sandbox}/fork"), &json!({})).expect(201);
    let fork = &forked["forks"][0];
    assert_eq!((&fork["problem"], &fork["sandbox"]["space"]), (&Value::Null, &json!("disk")), "{forked:#}");
    let copy = format!("/v1/sandboxes/{}", fork["sandbox"]["id"].as_str().unwrap());
    assert_eq!(cell(&copy, &fork["contexts"][0]["to"], "x + 1, open('a').read()"), "(42, 'then')");
    assert_ne!(device(&server, &sandbox), device(&server, &copy));
}

#[test]
fn a_run_has_it_too() {
    if !is_possible() {
        return;
    }
    let server = Server::start(Who::Root);
    for _ in 0..3 {
        let wanted = json!({
            "language": "bash", "code": format!("{DEVICE}; head -c 200M /dev/zero > big; wc -c < big"),
            "space": "disk", "limits": { "memory": "64M", "disk": "300M" },
        });
        let told = server.post("/v1/runs", &wanted).expect(200);
        assert_eq!(told["status"], "ok", "{told:#}");
        let (device, written) = told["stdout"].as_str().unwrap().split_once('\n').unwrap();
        assert_eq!(written, "209715200\n");
        eventually("the device lets go of its file", || !is_attached(device));
    }
}

#[test]
fn a_server_without_root_refuses_it_in_words() {
    if !is_possible() {
        return;
    }
    let server = Server::start(Who::Single);
    assert_eq!(server.get("/v1/version").expect(200)["capabilities"]["disk_space"], false);
    let refused = server.post("/v1/sandboxes", &json!({ "space": "disk", "enforcement": "best_effort" }));
    assert!(
        (400..500).contains(&refused.status) && refused.text().contains("disk_space"),
        "{}",
        refused.text()
    );
}
