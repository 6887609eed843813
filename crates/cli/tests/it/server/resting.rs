//! Many sandboxes that do nothing, with the default limits and quota of one tenant, beside work that goes on.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::instance::Server;
use crate::support::{Who, eventually};

const MIB: u64 = 1 << 20;
/// Memory that one idle sandbox may take, that an interpreter in it may take, and that the server and its pool may.
const EACH: u64 = 12 * MIB;
const INTERPRETER: u64 = 64 * MIB;
const BESIDE: u64 = 2 << 30;

#[test]
fn forty_idle_sandboxes_live_where_three_can_work() {
    // Their limits are 40 GiB together, for memory and for what they write.
    live_together(40, &[("SANDSTORM_ADMISSION_MEMORY", "3584MiB")]);
}

#[test]
#[ignore = "takes minutes"]
fn five_hundred_idle_sandboxes_live_and_runs_are_served() {
    live_together(500, &[]);
}

/// A request that quotas and admission may turn away for a moment.
fn patiently(server: &Server, path: &str, body: &Value) -> Value {
    let give_up = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = server.post(path, body);
        if !matches!(answer.status, 429 | 503) {
            assert!(matches!(answer.status, 200 | 201), "{path}: {}: {}", answer.status, answer.text());
            return answer.json();
        }
        assert!(Instant::now() < give_up, "{path}: {}: {}", answer.status, answer.text());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A number of `/proc/meminfo` in bytes.
fn machine(name: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Bytes that the server has promised to sandboxes and runs.
fn promised(server: &Server) -> u64 {
    let metrics = server.get("/metrics").text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("sandstorm_admission_promised_bytes "));
    line.expect("the server tells what it promised").trim().parse::<f64>().unwrap() as u64
}

/// All sandboxes by their path, with their phase.
fn phases(server: &Server) -> BTreeMap<String, String> {
    let mut phases = BTreeMap::new();
    let mut next = "/v1/sandboxes?limit=100".to_owned();
    loop {
        let page = server.get(&next).expect(200);
        for item in page["items"].as_array().unwrap() {
            let path = format!("/v1/sandboxes/{}", item["id"].as_str().unwrap());
            phases.insert(path, item["state"].as_str().unwrap().to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("/v1/sandboxes?limit=100&cursor={cursor}"),
            None => return phases,
        }
    }
}

fn in_milliseconds(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    let millis = |time: Duration| time.as_millis() as u64;
    json!({ "median": millis(times[times.len() / 2]), "most": millis(times[times.len() - 1]) })
}

/// A file whose pages are in no cache: whose program reads it first is charged for them.
fn uncached(path: &Path, length: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(&vec![7; length]).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn a_paused_sandbox_gives_back_what_the_kernel_can_take() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let shared = place.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    for path in [place.path(), &shared] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let length = 64 * MIB as usize;
    uncached(&shared.join("large"), length);
    let config = place.path().join("sandstorm.yaml");
    let mounts = format!("template: {{mounts: [{{source: '{}', target: /opt/shared}}]}}\n", shared.display());
    std::fs::write(&config, mounts).unwrap();
    let server = Server::with(
        Who::Root,
        &[("SANDSTORM_POOL_ENABLED", "false")],
        &["--config", config.to_str().unwrap()],
    );
    let sandbox = server.sandbox(&json!({ "lifetime": "2h", "limits": { "memory": "256M" } }));
    // Both the page cache of what it reads and what it holds itself are its own.
    let hold = "(exec python3 -c 'import time; held = bytes(range(256)) * 65536; time.sleep(100000)') & \
                cat /opt/shared/large | wc -c";
    let ran = server.post(&format!("{sandbox}/exec"), &json!({ "command": hold, "background": true }));
    assert_eq!(ran.status, 202, "{}", ran.text());
    let used = || {
        let samples = server.get(&format!("{sandbox}/metrics")).expect(200)["samples"].clone();
        samples.as_array().unwrap().last().map_or(0, |sample| sample["memory_bytes"].as_u64().unwrap_or(0))
    };
    let full = length as u64 + 8 * MIB;
    eventually("it holds what it read", || used() >= full);
    let paused = server.post(&format!("{sandbox}/pause"), &json!({})).expect(200);
    assert_eq!(paused["state"], "paused");
    eventually("the kernel takes it back, and the promise follows", || promised(&server) <= 48 * MIB);
    assert!(promised(&server) > 0);
    // It goes on with all that it had.
    assert_eq!(server.post(&format!("{sandbox}/resume"), &json!({})).expect(200)["state"], "ready");
    let ran = server.exec(&sandbox, "cat /opt/shared/large | wc -c");
    assert_eq!(ran["stdout"], format!("{length}\n"), "{ran}");
}

/// Creates that many, lets them rest, and works beside them and in some of them.
fn live_together(count: usize, settings: &[(&str, &str)]) {
    let server = Server::with(Who::Root, settings, &[]);
    let (available, began) = (machine("MemAvailable"), Instant::now());
    let paths: Vec<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|maker| {
                let server = &server;
                scope.spawn(move || {
                    let made = (maker..count).step_by(4).map(|_| {
                        let made = patiently(server, "/v1/sandboxes", &json!({ "lifetime": "2h" }));
                        format!("/v1/sandboxes/{}", made["id"].as_str().unwrap())
                    });
                    made.collect::<Vec<_>>()
                })
            })
            .collect();
        makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect()
    });
    let created = began.elapsed();
    // Some hold an interpreter with something in it.
    let step = count / 10;
    let languages = ["python", "javascript"];
    let contexts: Vec<(String, String)> = paths
        .iter()
        .step_by(step)
        .zip(languages.into_iter().cycle())
        .map(|(path, language)| {
            let made = patiently(&server, &format!("{path}/contexts"), &json!({ "language": language }));
            let context = format!("{path}/contexts/{}", made["id"].as_str().unwrap());
            patiently(&server, &format!("{context}/execute"), &json!({ "code": "kept = 40" }));
            (path.clone(), context)
        })
        .collect();
    let most = count as u64 * EACH + contexts.len() as u64 * INTERPRETER;
    eventually("all of them rest", || promised(&server) <= most);
    let promised = promised(&server);
    let alive = phases(&server);
    let ready = paths.iter().filter(|path| alive.get(*path).map(String::as_str) == Some("ready")).count();
    assert_eq!(ready, count, "{alive:?}");

    // Runs are served, and the sandboxes work when somebody asks them to.
    let mut runs = Vec::new();
    for number in 0..10 {
        let began = Instant::now();
        let code = format!("print({number} + 1)");
        let ran = patiently(&server, "/v1/runs", &json!({ "language": "python", "code": code }));
        assert_eq!(ran["stdout"], format!("{}\n", number + 1), "{ran}");
        runs.push(began.elapsed());
    }
    let mut execs = Vec::new();
    for path in paths.iter().skip(step / 2).step_by((step / 2).max(1)) {
        let began = Instant::now();
        let ran = patiently(&server, &format!("{path}/exec"), &json!({ "command": "echo $((6 * 7))" }));
        assert_eq!(ran["stdout"], "42\n", "{ran}");
        execs.push(began.elapsed());
    }
    let mut cells = Vec::new();
    for (_, context) in &contexts {
        let began = Instant::now();
        let ran = patiently(&server, &format!("{context}/execute"), &json!({ "code": "kept + 2" }));
        assert_eq!(ran["results"][0]["data"]["text/plain"], "42", "{ran}");
        cells.push(began.elapsed());
    }
    let taken = available.saturating_sub(machine("MemAvailable"));
    let resident = server.memory("VmRSS");
    let figures = json!({
        "sandboxes": count,
        "machine_mib": machine("MemTotal") / MIB,
        "created_seconds": created.as_secs(),
        "promised_mib": promised / MIB,
        "taken_mib": taken / MIB,
        "server_mib": resident / MIB,
        "run_ms": in_milliseconds(&mut runs),
        "exec_ms": in_milliseconds(&mut execs),
        "cell_ms": in_milliseconds(&mut cells),
    });
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("resting-{count}.json"));
    std::fs::write(&kept, format!("{figures:#}\n")).unwrap();
    // Beside a few of them other tests take and give back more of the machine than they do.
    let alone = count >= 500;
    assert!(!alone || taken <= most + BESIDE, "they take too much of the machine: {figures:#}");
    let alive = phases(&server);
    let still = paths.iter().filter(|path| alive.get(*path).map(String::as_str) == Some("ready")).count();
    assert_eq!(still, count, "{alive:?}");
    std::thread::scope(|scope| {
        for part in paths.chunks(count.div_ceil(4)) {
            scope.spawn(|| part.iter().for_each(|path| drop(server.delete(path).expect(204))));
        }
    });
}
