//! The server's memory while programs write more than anybody reads. The whole of it is measured by `bench/memory.py`.

use serde_json::json;

use super::http;
use super::instance::Server;
use crate::support::Who;

const MIB: u64 = 1 << 20;

#[test]
fn output_that_nobody_reads_takes_no_memory() {
    hold_answers(6, 40);
}

#[test]
#[ignore = "takes minutes"]
fn much_output_that_nobody_reads_and_thousands_of_ended_programs_take_little_memory() {
    let server = hold_answers(30, 90);
    let paths: Vec<String> =
        (0..8).map(|_| server.sandbox(&json!({ "limits": { "memory": "64M" } }))).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(|| {
                for _ in 0..7000 / paths.len() {
                    let ran = server.exec(path, "head -c 300000 /dev/zero | tr '\\0' x");
                    assert_eq!(ran["stdout"].as_str().unwrap().len(), 300_000);
                }
            });
        }
    });
    assert!(server.memory("VmHWM") <= 400 * MIB, "{} MiB", server.memory("VmHWM") / MIB);
}

/// So many runs print so many MiB each, for clients that take the head of the answer and then nothing; later they take it all.
fn hold_answers(runs: usize, mib: u64) -> Server {
    let unhurried = [("SANDSTORM_QUOTAS_RUNS_PER_MINUTE", "1000000"), ("SANDSTORM_ADMISSION_MEMORY", "64G")];
    let server = Server::with(Who::Root, &unhurried, &[]);
    let before = server.memory("VmRSS");
    let code = format!("import sys\nfor _ in range({mib}): sys.stdout.write('\\u00fc' * {})", MIB / 2);
    let body = json!({ "language": "python", "code": code,
                       "limits": { "output": "100M", "memory": "64M", "wall": "10m" } });
    let run = server.request("POST", "/v1/runs").json(&body);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..runs).map(|_| scope.spawn(|| http::open(server.port, &run).unwrap())).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown <= 160 * MIB, "{runs} answers of {mib} MiB took {} MiB", grown / MIB);
    // A client that takes nothing for two minutes is cut off, so of many large ones the first would be.
    for answer in answers.into_iter().filter(|_| mib < 90) {
        let result = answer.finish().unwrap().expect(200);
        assert_eq!((&result["status"], &result["truncated"]["stdout"]), (&json!("ok"), &json!(false)));
        assert_eq!(result["stdout"].as_str().unwrap().len() as u64, mib * MIB);
        // The record has the beginning of it, and says so.
        let view = server.get(&format!("/v1/runs/{}", result["id"].as_str().unwrap())).expect(200);
        assert!((1..=256 << 10).contains(&view["result"]["stdout"].as_str().unwrap().len()));
        assert_eq!(view["result"]["truncated"]["stdout"], true);
    }
    server
}
