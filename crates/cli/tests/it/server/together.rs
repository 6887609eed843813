//! Two servers on one PostgreSQL: neither touches what is the other's, and what one leaves for good the other ends.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::faults::{Random, Resident};
use super::http::{self, Answer, Request};
use super::instance::Server;
use super::postgres::{self, Database};
use crate::support::{Place, Who, eventually, processes_with, sandstorm, stderr};

/// Long enough for a busy machine to renew it in time, short enough to wait for.
const LEASE: &str = "12s";
const GONE: &str = "the server that held it is gone";

/// A server on a database that others use too. Nobody is to be held up by quotas but by that of sandboxes.
fn server(database: &Database, lease: &str, sandboxes: &str) -> Server {
    let settings = [
        ("SANDSTORM_DATABASE_URL", &*database.reference()),
        ("SANDSTORM_DATABASE_LEASE", lease),
        ("SANDSTORM_QUOTAS_SANDBOXES", sandboxes),
        ("SANDSTORM_QUOTAS_RUNS_PER_MINUTE", "1000000"),
        ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "1000000"),
    ];
    let mut server = Server::with(Who::Root, &settings, &[]);
    if server.key.is_empty() {
        // The first key is the other's. Each server knows those that were made with its own secrets.
        let made = sandstorm(Who::Root)
            .env("SANDSTORM_DATABASE_URL", database.reference())
            .env("SANDSTORM_STATE_DIR", server.state())
            .args(["keys", "create", "--scopes", "run,sandbox,files,admin"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stdout).into_owned();
        let key = said.split_whitespace().find(|word| word.starts_with("ss_"));
        server.key = key.unwrap_or_else(|| panic!("{said}{}", stderr(&made))).to_owned();
    }
    server
}

/// A run that lasts, asked for beside the test. `None`: its server went before it answered.
struct Errand(std::thread::JoinHandle<Option<Answer>>);

impl Errand {
    fn send(server: &Server, script: &str) -> Self {
        let body = json!({ "language": "bash", "code": script });
        let request =
            Request::new("POST", "/v1/runs").header("authorization", &format!("Bearer {}", server.key));
        let (port, request) = (server.port, request.json(&body));
        Self(std::thread::spawn(move || http::open(port, &request).and_then(|stream| stream.finish()).ok()))
    }

    #[track_caller]
    fn ends_well(self, said: &str) {
        let run = self.0.join().unwrap().expect("an answer").expect(200);
        assert_eq!((run["status"].as_str(), run["stdout"].as_str()), (Some("ok"), Some(said)), "{run:#}");
    }
}

/// What there is on record of a resident, without what its own server changes all the time.
fn record(server: &Server, resident: &Resident) -> (Value, Value) {
    let sandbox = server.get(&resident.path).expect(200);
    let exec = server.get(&resident.exec).expect(200);
    (
        json!([sandbox["spec"], sandbox["created_at"], sandbox["expires_at"], sandbox["reason"]]),
        json!([exec["status"], exec["started_at"], exec["ended_at"]]),
    )
}

/// Everything that would change what the other server has is refused, and changes nothing.
fn is_kept_off(server: &Server, resident: &Resident) {
    let before = record(server, resident);
    let Resident { path, context, exec, .. } = resident;
    let refusals = [
        server.delete(path),
        server.post(&format!("{path}/exec"), &json!({ "command": "true" })),
        server.post(&format!("{path}/pause"), &json!({})),
        server.post(&format!("{path}/extend"), &json!({ "lifetime": "1h" })),
        server.post(&format!("{path}/contexts"), &json!({ "language": "python" })),
        server.post(&format!("{context}/execute"), &json!({ "code": "x = 1000" })),
        server.post(&format!("{context}/interrupt"), &json!({})),
        server.delete(context),
        server.delete(exec),
        server.get(&format!("{exec}/events")),
        server.put(&format!("{path}/files?path=/workspace/x"), b"x"),
    ];
    for (which, refusal) in refusals.into_iter().enumerate() {
        let text = refusal.text();
        assert_eq!(refusal.status, 409, "{which}: {text}");
        assert!(text.contains("another server holds this"), "{which}: {text}");
    }
    assert_eq!(record(server, resident), before);
    assert_eq!(before.0[3], Value::Null);
    assert_eq!(before.1[2], Value::Null);
}

#[derive(Debug, Clone, Copy)]
enum End {
    Kill,
    Terminate,
}

fn start_again(server: &mut Server, end: End) {
    match end {
        End::Kill => server.kill(),
        End::Terminate => {
            server.signal(Signal::TERM);
            server.wait();
        }
    }
    server.restart();
}

#[test]
fn a_second_server_leaves_the_first_ones_work_alone() {
    let Some(database) = postgres::database() else { return };
    // Nothing runs out here, however slow the machine is.
    let mut first = server(&database, "10m", "100");
    let mut one = Resident::move_in(&first);
    let errand = Errand::send(&first, "sleep 8; echo over");
    let mut second = server(&database, "10m", "100");
    one.is_as_it_was(&first, 0);
    is_kept_off(&second, &one);
    let mut two = Resident::move_in(&second);
    is_kept_off(&first, &two);
    errand.ends_well("over\n");
    for (round, end) in [End::Kill, End::Terminate].into_iter().enumerate() {
        let round = 1 + round as u32;
        let errand = Errand::send(&first, "sleep 3; echo first");
        start_again(&mut second, end);
        one.is_as_it_was(&first, round);
        two.is_as_it_was(&second, round);
        errand.ends_well("first\n");
        let errand = Errand::send(&second, "sleep 3; echo second");
        start_again(&mut first, end);
        one.is_as_it_was(&first, round);
        two.is_as_it_was(&second, round);
        errand.ends_well("second\n");
    }
    one.wrote_everything_once(&first);
    two.wrote_everything_once(&second);
    // Both are asked for the end of it at once: its own server ends it, the other one says whose it is.
    let (path, other) = (one.path.clone(), &second);
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| (0..5).map(|_| other.delete(&path).status).collect::<Vec<_>>());
        assert!(first.delete(&path).status < 300);
        // When it has ended, to end it is success for everybody.
        for status in refused.join().unwrap() {
            assert!(matches!(status, 409 | 200..300), "{status}");
        }
    });
    for server in [&first, &second] {
        assert_eq!(server.get(&path).expect(200)["state"], "terminated");
    }
    two.is_as_it_was(&second, 9);
}

#[test]
fn what_a_server_leaves_for_good_the_other_ends() {
    let Some(database) = postgres::database() else { return };
    let mut first = server(&database, LEASE, "2");
    let second = server(&database, LEASE, "2");
    let one = Resident::move_in(&first);
    let mut two = Resident::move_in(&second);
    let name = format!("leases-{}", std::process::id());
    let (lasting, mark) = (format!("bash -c 'exec -a {name} sleep 1000'"), format!("{name} 1000"));
    first.post(&format!("{}/exec", one.path), &json!({ "command": lasting, "background": true })).expect(202);
    eventually("it runs", || !processes_with(&mark).is_empty());
    assert_eq!(second.post("/v1/sandboxes", &json!({})).status, 429, "the quota is one for both");
    let errand = Errand::send(&first, "sleep 1000");
    eventually("its run is on record", || {
        !second.get("/v1/runs").expect(200)["items"].as_array().unwrap().is_empty()
    });
    let run = second.get("/v1/runs").expect(200)["items"][0]["id"].as_str().unwrap().to_owned();

    // A copy of its state directory is not it.
    copy_is_refused(&database, &first);

    first.kill();
    assert!(errand.0.join().unwrap().is_none());
    eventually("what it left has ended", || second.get(&one.path).expect(200)["state"] == "failed");
    let view = second.get(&one.path).expect(200);
    assert_eq!(view["reason"], GONE, "{view:#}");
    let exec = second.get(&one.exec).expect(200);
    assert!(exec["status"] == "killed" && !exec["ended_at"].is_null(), "{exec:#}");
    assert_eq!(second.get(&one.context).status, 404);
    eventually("its run has ended", || {
        !second.get(&format!("/v1/runs/{run}")).expect(200)["ended_at"].is_null()
    });
    let freed = second.sandbox(&json!({}));
    assert!(second.delete(&freed).status < 300);
    two.is_as_it_was(&second, 1);

    // It comes back, and finds that it was given up.
    first.restart();
    for server in [&first, &second] {
        let view = server.get(&one.path).expect(200);
        assert_eq!((&view["state"], &view["reason"]), (&json!("failed"), &json!(GONE)), "{view:#}");
    }
    assert_eq!(first.post(&format!("{}/exec", one.path), &json!({ "command": "true" })).status, 409);
    eventually("nothing of it is left", || processes_with(&mark).is_empty());
    let again = Resident::move_in(&first);
    is_kept_off(&second, &again);
    two.is_as_it_was(&second, 2);
    two.wrote_everything_once(&second);
}

fn copy_is_refused(database: &Database, of: &Server) {
    let place = Place::new();
    let state = place.path().join("state");
    std::fs::create_dir_all(&state).unwrap();
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a");
    for kept in ["secrets", "audit.anchor"] {
        copy.arg(of.state().join(kept));
    }
    let copied = copy.arg(&state).status().unwrap();
    assert!(copied.success());
    let refused = sandstorm(Who::Root)
        .env("SANDSTORM_DATABASE_URL", database.reference())
        .env("SANDSTORM_DATABASE_LEASE", LEASE)
        .args(["serve", "--listen", "127.0.0.1:0", "--state-dir"])
        .arg(&state)
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("its state directory was copied"), "{}", stderr(&refused));
    assert_eq!(of.get("/readyz").status, 200);
}

/// Servers that are killed and stopped at random, some of them for longer than their lease.
#[test]
#[ignore = "takes minutes"]
fn two_servers_survive_each_others_ends() {
    let Some(database) = postgres::database() else { return };
    let mut servers = [server(&database, LEASE, "100"), server(&database, LEASE, "100")];
    let mut residents = [Resident::move_in(&servers[0]), Resident::move_in(&servers[1])];
    let mut random = Random(0x5eed_1ea5_e5ee_d1ea);
    let mut given_up = 0;
    for round in 0..40_u32 {
        let (which, other) = if random.below(2) == 0 { (0, 1) } else { (1, 0) };
        std::thread::sleep(Duration::from_millis(random.below(1500)));
        let errand = Errand::send(&servers[other], "sleep 2; echo over");
        if round % 8 == 7 {
            servers[which].kill();
            let path = residents[which].path.clone();
            eventually("it is given up", || servers[other].get(&path).expect(200)["state"] == "failed");
            assert_eq!(servers[other].get(&path).expect(200)["reason"], GONE);
            servers[which].restart();
            assert_eq!(servers[which].get(&path).expect(200)["state"], "failed");
            residents[which] = Resident::move_in(&servers[which]);
            given_up += 1;
        } else {
            let end = if random.below(2) == 0 { End::Kill } else { End::Terminate };
            start_again(&mut servers[which], end);
        }
        for (server, resident) in servers.iter().zip(&mut residents) {
            resident.is_as_it_was(server, round);
        }
        errand.ends_well("over\n");
        is_kept_off(&servers[other], &residents[which]);
    }
    assert_eq!(given_up, 5);
    for (server, resident) in servers.iter().zip(&mut residents) {
        resident.wrote_everything_once(server);
    }
}
