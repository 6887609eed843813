//! A hosted provider against this server: what it promises holds with real programs, behind real walls.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::instance::Server;
use crate::support::{Place, Who, eventually, example, stderr, stdout};

/// What the `e2b` provider does not claim: E2B's API does not carry it, or does not limit it as asked for.
const UNCLAIMED: [&str; 24] = [
    "lifecycle/refuses_what_it_does_not_admit",
    "exec_channel/it_carries_bytes_apart_from_output",
    "exec_channel/it_keeps_its_order_with_output",
    "exec_channel/later_listeners_hear_the_same_events",
    "exec_channel/what_is_forgotten_is_gone",
    "exec_channel/there_is_none_unless_asked_for",
    "signals/each_signal_is_told_by_its_number",
    "archives/packed_is_unpacked_the_same",
    "archives/an_archive_of_others_is_read",
    "archives/hostile_entries_are_refused",
    "archives/broken_archives_are_refused",
    "limits/a_full_disk_refuses_files",
    "limits/a_full_disk_fails_programs",
    "limits/too_many_files_are_refused",
    "limits/cpu_time_ends_a_program",
    "limits/memory_ends_a_program",
    "limits/processes_are_counted",
    "network/a_closed_port_is_refused",
    "network/an_open_port_is_reached",
    "snapshots/too_large_ones_are_refused",
    "snapshots/limits_are_those_of_the_new_one",
    "live_fork/files_are_there_and_each_one_its_own",
    "live_fork/what_cannot_be_carried_is_refused_or_named",
    "live_fork/the_source_has_to_be_there_and_ready",
];

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
    assert_eq!(cases("skip"), UNCLAIMED.map(str::to_owned).into(), "{report}");
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
