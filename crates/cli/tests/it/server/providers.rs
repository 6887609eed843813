//! A hosted provider against this server: what it promises holds with real programs, behind real walls.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::instance::Server;
use crate::support::{Place, Who, eventually, example, stderr, stdout};

/// What the `e2b` provider does not claim: E2B's API does not carry it, or does not limit it as asked for.
const UNCLAIMED: &str = include_str!("../../../../providers/tests/it/e2b/unclaimed.txt");

#[test]
fn the_e2b_provider_keeps_what_it_claims_over_our_own_e2b_api() {
    let judge = example("sandstorm-providers", "conformance");
    let server = Server::start(Who::Root);
    let address = format!("http://127.0.0.1:{}", server.port);
    let mut judge = Command::new(&judge);
    judge.args(["e2b", &address]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut judging = judge.spawn().unwrap();
    judging.stdin.take().unwrap().write_all(server.key.as_bytes()).unwrap();
    let output = judging.wait_with_output().unwrap();
    let report = stdout(&output);
    let cases = |word: &str| -> BTreeSet<String> {
        let of = report.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        of.map(|rest| rest.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(cases("FAIL"), BTreeSet::new(), "{report}{}", stderr(&output));
    assert!(cases("pass").len() > 30, "{report}{}", stderr(&output));
    assert_eq!(cases("skip"), UNCLAIMED.lines().map(str::to_owned).collect(), "{report}");
    assert_eq!(server.get("/v1/sandboxes").expect(200)["items"], json!([]), "something is left");
}

#[test]
fn programs_run_over_e2bs_api_and_sandboxes_survive_a_restart() {
    let other = Server::start(Who::Root);
    let place = Place::new();
    let (file, key) = (place.path().join("sandstorm.yaml"), place.path().join("other.key"));
    std::fs::write(&key, &other.key).unwrap();
    let text = format!(
        "enforcement: best_effort\nproviders:\n  cloud:\n    kind: e2b\n    url: http://127.0.0.1:{}\n    key: file:{}\n\
         routing: {{probes_per_hour: 0, probes_per_request: 0}}\n",
        other.port,
        key.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut server = Server::with(Who::Root, &[], &["--config", &file.display().to_string()]);
    let there = json!({ "order": ["cloud"] });
    for (language, code) in [("python", "print(6 * 7)"), ("bash", "echo 42")] {
        let run = json!({ "language": language, "code": code, "routing": there });
        let result = server.post("/v1/runs", &run).expect(200);
        assert_eq!(
            (&result["stdout"], &result["route"]["provider"]),
            (&json!("42\n"), &json!("cloud")),
            "{result}"
        );
    }
    let failed = json!({ "language": "python", "code": "raise SystemExit(3)", "routing": there });
    assert_eq!(server.post("/v1/runs", &failed).expect(200)["exit_code"], 3);
    let sandbox = server.sandbox(&json!({ "routing": there }));
    server.put(&format!("{sandbox}/files?path=kept.txt"), b"kept").expect(200);
    server.kill();
    server.restart();
    assert_eq!(server.exec(&sandbox, "cat kept.txt")["stdout"], "kept");
    assert_eq!(server.delete(&sandbox).status, 204);
    eventually("nothing is left there", || other.get("/v1/sandboxes").expect(200)["items"] == json!([]));
}
