//! One server that routes to another: real programs, real sandboxes, on both.

use serde_json::{Value, json};

use super::instance::Server;
use crate::support::{Place, Who, eventually};

/// A server with a second one as its provider `other`, and that one.
fn pair() -> (Server, Server) {
    let other = Server::start(Who::Root);
    let place = Place::new();
    let file = place.path().join("sandstorm.yaml");
    let key = place.path().join("other.key");
    std::fs::write(&key, &other.key).unwrap();
    let text = format!(
        "providers:\n  other:\n    kind: sandstorm\n    url: http://127.0.0.1:{}\n    key: file:{}\n    region: there\n\
         routing: {{probes_per_hour: 0, probes_per_request: 0}}\n",
        other.port,
        key.display()
    );
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let server = Server::with(Who::Root, &[], &["--config", &file]);
    // The file is read when the server starts, and again when it is started again.
    std::mem::forget(place);
    (server, other)
}

fn run(server: &Server, language: &str, code: &str, order: &str) -> Value {
    let routing = json!({ "order": [order] });
    server.post("/v1/runs", &json!({ "language": language, "code": code, "routing": routing })).expect(200)
}

#[test]
fn programs_run_here_and_elsewhere_alike() {
    let (server, _other) = pair();
    for (language, code) in [
        ("python", "import sys\nprint(6 * 7, sys.argv[1:])"),
        ("javascript", "console.log(42, '[]')"),
        ("bash", "echo 42 []"),
    ] {
        for place in ["local", "other"] {
            let result = run(&server, language, code, place);
            assert_eq!(result["stdout"], "42 []\n", "{language} at {place}: {result}");
            assert_eq!(result["route"]["provider"], place, "{result}");
            assert_eq!(result["route"]["attempts"][0]["outcome"], "ok", "{result}");
        }
    }
    let files = json!({ "language": "python", "code": "print(open('a.txt').read(), input())", "stdin": "in",
        "files": { "a.txt": "text" }, "env": { "A": "b" }, "routing": { "order": ["other"] } });
    assert_eq!(server.post("/v1/runs", &files).expect(200)["stdout"], "text in\n");
    let failed = run(&server, "python", "raise SystemExit(3)", "other");
    assert_eq!((&failed["exit_code"], &failed["status"]), (&json!(3), &json!("error")));
}

#[test]
fn sandboxes_elsewhere_survive_a_restart() {
    let (mut server, other) = pair();
    let sandbox = server.sandbox(&json!({ "routing": { "order": ["other"] } }));
    let seen = server.get(&sandbox).expect(200);
    assert_eq!((&seen["provider"], &seen["isolator"]), (&json!("other"), &json!("sandstorm")));
    server.put(&format!("{sandbox}/files?path=kept.txt"), b"kept").expect(200);
    let code = json!({ "language": "python", "code": "print(open('kept.txt').read())" });
    assert_eq!(server.post(&format!("{sandbox}/exec"), &code).expect(200)["stdout"], "kept\n");
    server.kill();
    server.restart();
    let again = server.post(&format!("{sandbox}/exec"), &code).expect(200);
    assert_eq!((&again["stdout"], &again["route"]["provider"]), (&json!("kept\n"), &json!("other")));
    assert_eq!(server.delete(&sandbox).status, 204);
    eventually("nothing is left there", || {
        other.get("/v1/sandboxes").expect(200)["items"].as_array().unwrap().is_empty()
    });
}

#[test]
fn decisions_are_explained() {
    let (server, mut other) = pair();
    let wanted = json!({ "routing": { "objective": "fastest", "exclude_providers": ["local"] } });
    let told = server.post("/v1/route/explain", &wanted).expect(200);
    assert_eq!((&told["provider"], &told["excluded"][0]["provider"]), (&json!("other"), &json!("local")));
    let unknown = server.post("/v1/route/explain", &json!({ "routing": { "order": ["nobody"] } }));
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    assert!(unknown.text().contains("nobody"), "{}", unknown.text());
    let all = server.get("/v1/providers").expect(200);
    let names: Vec<_> = all["providers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["local", "other"]);
    assert!(all["providers"].as_array().unwrap().iter().all(|one| one["up"] == true), "{all}");
    // With the other one gone everything goes on here.
    other.kill();
    let result = run(&server, "bash", "echo still", "other");
    assert_eq!((&result["stdout"], &result["route"]["provider"]), (&json!("still\n"), &json!("local")));
    assert!(result["route"]["attempts"].as_array().unwrap().len() > 1, "{result}");
    let all = server.get("/v1/providers").expect(200);
    assert_eq!(all["providers"][1]["up"], false, "{all}");
    let down = json!({ "language": "bash", "code": "true", "routing": { "exclude_providers": ["local"] } });
    let refused = server.post("/v1/runs", &down);
    assert!(matches!(refused.status, 502 | 503), "{}", refused.text());
    assert!(refused.text().contains("other"), "{}", refused.text());
}

#[test]
fn one_machine_alone_is_explained_too() {
    let server = Server::start(Who::Root);
    let told = server.post("/v1/route/explain", &json!({})).expect(200);
    assert_eq!(told["provider"], "local");
    let refused = json!({ "language": "bash", "code": "true", "routing": { "require": { "gpu": "any" } } });
    assert_eq!(server.post("/v1/runs", &refused).status, 400);
}
