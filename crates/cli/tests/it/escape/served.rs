//! The same attacks from sandboxes of a server: from an interpreter that a zygote forked into a jail of the warm pool, from
//! one that joined a jail on demand, and with pool and zygotes off.

use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::{Value, json};

use super::canaries::Canaries;
use super::{attack_code, unique};
use crate::server::instance::Server;
use crate::support::{Place, Who, eventually};

/// Attacks that need nothing set up outside.
const ATTACKS: [&str; 14] = [
    "cgroups",
    "descriptors",
    "devices",
    "host_files",
    "init_program",
    "kernel",
    "keys",
    "mounts",
    "namespaces",
    "prey",
    "privileges",
    "proc",
    "signals",
    "tracing",
];

/// A name, the settings of a server, and what it counts its programs as then.
type Way = (&'static str, &'static [(&'static str, &'static str)], &'static str);

/// How a server comes by its sandboxes.
const WAYS: [Way; 3] = [
    ("pool and zygotes", &[("SANDSTORM_POOL_PREFILL", "2")], "pooled"),
    ("a pool alone", &[("SANDSTORM_POOL_PREFILL", "2"), ("SANDSTORM_POOL_ZYGOTES", "false")], "cold"),
    ("neither", &[("SANDSTORM_POOL_ENABLED", "false"), ("SANDSTORM_POOL_ZYGOTES", "false")], "cold"),
];

fn server(settings: &[(&str, &str)]) -> Server {
    let server = Server::with(Who::Root, settings, &[]);
    // A key that was asked for is kept ready from then on.
    server.post("/v1/runs", &json!({ "language": "python", "code": "print(1)" })).expect(200);
    server
}

/// Waits, where a server keeps sandboxes with an interpreter ready, until there is one.
fn attackable(server: &Server, way: &str) {
    let ready =
        |line: &str| line.strip_prefix("sandstorm_pool_ready{kind=\"python\"} ").is_some_and(|n| n != "0");
    if way == "pooled" {
        eventually("one is ready", || server.get("/metrics").text().lines().any(ready));
    }
}

/// How many programs began this way, by the server's own count.
fn counted(server: &Server, way: &str) -> f64 {
    let text = server.get("/metrics").text();
    let wanted = format!("way=\"{way}\"");
    let lines = text.lines().filter(|l| l.starts_with("sandstorm_guests_total") && l.contains(&wanted));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

fn held(what: &str, result: &Value, canaries: &Canaries) {
    let printed = result["stdout"].as_str().unwrap_or_default();
    let verdict = printed.lines().last().unwrap_or_default();
    assert_eq!(result["status"], "ok", "{what}: {result:#}");
    assert!(verdict.ends_with(" attempts, 0 broken") && !verdict.starts_with("0 "), "{what}: {result:#}");
    canaries.absent_from_text(&result.to_string(), what);
}

#[test]
fn every_attack_fails_however_a_server_makes_its_sandboxes() {
    let canaries = Canaries::plant(Who::Root);
    for (name, settings, way) in WAYS {
        let server = server(settings);
        let before = counted(&server, way);
        for attack in ATTACKS {
            let args = if attack == "host_files" { canaries.paths() } else { Vec::new() };
            let run = json!({ "language": "python", "code": attack_code(attack), "args": args });
            attackable(&server, way);
            let result = server.post("/v1/runs", &run).expect(200);
            held(&format!("{attack} with {name}"), &result, &canaries);
        }
        // What was attacked is what it says on the tin.
        let began = counted(&server, way) - before;
        assert!(began >= ATTACKS.len() as f64 / 2.0, "{name}: {began} began as {way}");
    }
}

#[test]
fn sockets_of_the_host_are_out_of_reach_of_a_forked_interpreter() {
    let canaries = Canaries::plant(Who::Root);
    let (place, name) = (Place::new(), unique());
    let path = place.path().join("socket");
    let by_path = UnixListener::bind(&path).unwrap();
    let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let by_port = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = by_port.local_addr().unwrap().port();
    for listener in [by_path, by_name] {
        let mark = canaries.mark().to_owned();
        std::thread::spawn(move || {
            listener.incoming().flatten().try_for_each(|mut c| c.write_all(mark.as_bytes()))
        });
    }
    let mark = canaries.mark().to_owned();
    std::thread::spawn(move || {
        by_port.incoming().flatten().try_for_each(|mut c| c.write_all(mark.as_bytes()))
    });
    let server = server(WAYS[0].1);
    let args = [name, path.display().to_string(), port.to_string()];
    let run = json!({ "language": "python", "code": attack_code("sockets"), "args": args });
    attackable(&server, WAYS[0].2);
    held("sockets", &server.post("/v1/runs", &run).expect(200), &canaries);
}

/// A context is an interpreter that joined a sandbox in which other people's code may have run before.
#[test]
fn every_attack_fails_from_a_context() {
    let canaries = Canaries::plant(Who::Root);
    let server = server(WAYS[0].1);
    let sandbox = server.sandbox(&json!({}));
    server.exec(&sandbox, "echo somebody was here > /workspace/note; mkfifo /tmp/pipe");
    // Those that look at the place where a script begins are not about contexts.
    for attack in ATTACKS.iter().filter(|attack| !["descriptors", "prey"].contains(attack)) {
        let made = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
        let context = format!("{sandbox}/contexts/{}", made["id"].as_str().unwrap());
        let args: Vec<String> = if *attack == "host_files" { canaries.paths() } else { Vec::new() };
        let code = format!(
            "import sys\nsys.argv = ['']+{args:?}\nsys.exit = lambda code: None\n{}",
            attack_code(attack)
        );
        let result = server.post(&format!("{context}/execute"), &json!({ "code": code })).expect(200);
        held(&format!("{attack} from a context"), &result, &canaries);
        assert_eq!(server.delete(&context).status, 204);
    }
    assert!(counted(&server, "joined") >= 1.0, "{}", server.get("/metrics").text());
}
