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

/// Contexts in sandboxes of their own, with this limit on the output of a cell; where their cells are sent.
fn contexts(server: &Server, count: usize, output: &str) -> Vec<(String, String)> {
    let limits = json!({ "output": output, "memory": "192M", "wall": "10m" });
    let begin = |_| {
        let sandbox = server.sandbox(&json!({ "limits": limits.clone() }));
        let made = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
        let execute = format!("{sandbox}/contexts/{}/execute", made["id"].as_str().unwrap());
        (sandbox, execute)
    };
    (0..count).map(begin).collect()
}

#[test]
fn what_cells_print_for_clients_that_do_not_read_takes_no_memory() {
    let (count, mib) = (5, 40);
    let server = Server::with(Who::Root, &[("SANDSTORM_ADMISSION_MEMORY", "64G")], &[]);
    let contexts = contexts(&server, count, "100M");
    let before = server.memory("VmRSS");
    let code = format!("import sys\nfor _ in range({mib}): _ = sys.stdout.write('\\u00fc' * {})", MIB / 2);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = |execute: &String| {
            http::open(server.port, &server.request("POST", execute).json(&json!({ "code": code }))).unwrap()
        };
        let asked: Vec<_> = contexts.iter().map(|(_, execute)| scope.spawn(move || ask(execute))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown <= 120 * MIB, "{count} cells that printed {mib} MiB each took {} MiB", grown / MIB);
    for (answer, (sandbox, execute)) in answers.into_iter().zip(&contexts) {
        let result = answer.finish().unwrap().expect(200);
        assert_eq!((&result["status"], &result["truncated"]["stdout"]), (&json!("ok"), &json!(false)));
        let printed = result["stdout"].as_str().unwrap();
        assert!(printed.len() as u64 == mib * MIB && printed.chars().all(|c| c == '\u{fc}'));
        // The record has the beginning of it, and says so.
        let exec = format!("{sandbox}/execs/{}", result["id"].as_str().unwrap());
        let kept = server.get(&exec).expect(200)["result"].clone();
        assert!((1..=256 << 10).contains(&kept["stdout"].as_str().unwrap().len()));
        assert_eq!(kept["truncated"]["stdout"], true);
        // The context goes on.
        let ran = server.post(execute, &json!({ "code": "6 * 7" })).expect(200);
        assert_eq!(ran["results"][0]["data"]["text/plain"], "42");
    }
}

#[test]
fn a_cell_that_is_streamed_waits_for_its_client_and_comes_whole() {
    let server = Server::start(Who::Root);
    let (sandbox, execute) = contexts(&server, 1, "1M").remove(0);
    let before = server.memory("VmRSS");
    // Far more than its limit, and than what would be a flood for a client that does not listen.
    let lines = 40_000;
    let code = format!("for n in range({lines}): print(n, 'x' * 1000)");
    let request = server.request("POST", &execute).json(&json!({ "code": code }));
    let mut events = server.stream(request);
    let exec = events.next_event().expect("it begins").data["exec"].as_str().unwrap().to_owned();
    // Who attaches hears what is kept; the cell is past that by then, and waits for the client.
    let of_exec = format!("{sandbox}/execs/{exec}/events");
    let mut attached = server.stream(server.request("GET", &of_exec));
    let text = |data: &serde_json::Value| data["text"].as_str().map(str::to_owned).unwrap_or_default();
    let mut kept = String::new();
    while kept.len() < 1 << 20 {
        kept.push_str(&text(&attached.next_event().expect("it is kept").data));
    }
    assert_eq!(server.get(&format!("{sandbox}/execs/{exec}")).expect(200)["status"], json!(null));
    let expected: String = (0..lines).map(|n| format!("{n} {}\n", "x".repeat(1000))).collect();
    assert!(expected.starts_with(&kept));
    let (mut heard, mut end) = (String::new(), None);
    for event in &mut events {
        match event.data["type"].as_str() {
            Some("end") => end = Some(event.data),
            _ => heard.push_str(&text(&event.data)),
        }
    }
    let end = end.expect("it ends");
    assert!(heard == expected, "{} of {} bytes", heard.len(), expected.len());
    assert_eq!((&end["status"], &end["truncated"]), (&json!("ok"), &json!(null)));
    let end = attached.find(|event| event.data["type"] == "end").expect("it ends for all").data;
    assert_eq!(end["truncated"]["stdout"], true, "those who attached have the beginning");
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown <= 64 * MIB, "a cell that printed 40 MB took {} MiB", grown / MIB);
    // Without a client there is the limit, and a flood is ended; the context stays.
    let ran = server.post(&execute, &json!({ "code": code })).expect(200);
    assert_eq!((&ran["status"], &ran["truncated"]["stdout"]), (&json!("killed"), &json!(true)));
    assert_eq!(ran["stdout"].as_str().unwrap().len(), 1 << 20);
    assert_eq!(server.post(&execute, &json!({ "code": "n > 0" })).expect(200)["status"], "ok");
}

#[test]
fn what_a_compiler_made_takes_no_memory() {
    let server = Server::start(Who::Root);
    // A program as large as its array, of which only the first byte is written anywhere in its text.
    let run = |mib: u64| {
        let (length, last) = (mib * MIB, mib * MIB - 1);
        let code = format!("char all[{length}] = {{1}};\nint main(void) {{ return all[{last}]; }}\n");
        let ran = server.post("/v1/runs", &json!({ "language": "c", "code": code })).expect(200);
        assert_eq!(ran["status"], "ok", "{ran:#}");
    };
    // What a first compile leaves for good is there before anybody counts.
    run(1);
    let before = server.memory("VmRSS");
    let mib = 128;
    run(mib);
    // And once more from the cache.
    run(mib);
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown <= 80 * MIB, "a program of {mib} MiB took {} MiB", grown / MIB);
}

#[test]
#[ignore = "takes minutes"]
fn much_output_that_nobody_reads_and_thousands_of_ended_programs_take_little_memory() {
    let server = hold_answers(30, 90);
    let paths: Vec<String> =
        (0..8).map(|_| server.sandbox(&json!({ "lifetime": "1h", "limits": { "memory": "64M" } }))).collect();
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
