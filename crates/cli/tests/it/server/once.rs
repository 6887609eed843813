//! Requests with an idempotency key, sent again after their client left or their server was killed: nothing is done twice.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::faults::{Random, UNHURRIED, cut_off};
use super::http::{self, Answer, Request};
use super::instance::Server;
use super::postgres;
use crate::support::{PATIENCE, Who, eventually};

#[test]
fn killing_the_server_does_nothing_twice() {
    kill_the_server(6, &[]);
}

#[test]
#[ignore = "takes minutes"]
fn killing_the_server_two_hundred_times_does_nothing_twice() {
    kill_the_server(200, &[]);
}

#[test]
fn killing_a_server_on_postgresql_does_nothing_twice() {
    let Some(database) = postgres::database() else { return };
    kill_the_server(4, &[("SANDSTORM_DATABASE_URL", &database.reference())]);
}

#[test]
#[ignore = "takes minutes"]
fn killing_a_server_on_postgresql_two_hundred_times_does_nothing_twice() {
    let Some(database) = postgres::database() else { return };
    kill_the_server(200, &[("SANDSTORM_DATABASE_URL", &database.reference())]);
}

/// What is asked for in each round, as the last part of its key.
const RUN: &str = "run";
const EXEC: &str = "exec";
const BACKGROUND: &str = "background";
const CELL: &str = "cell";
const EXECUTE: &str = "execute";
const FORK: &str = "fork";
const SANDBOX: &str = "sandbox";
const CONTEXT: &str = "context";

/// One request of a round.
struct Ask {
    what: &'static str,
    key: String,
    path: String,
    body: Value,
}

impl Ask {
    fn request(&self, server: &Server) -> Request {
        server.request("POST", &self.path).json(&self.body).header("idempotency-key", &self.key)
    }

    /// Sends it until it is answered: by what was asked for, or by what became of it. A refusal that began nothing, and a
    /// server that is not there, are none.
    fn until_answered(&self, server: &Server) -> Answer {
        let began = Instant::now();
        loop {
            let request = self.request(server);
            if let Ok(answer) = http::open(server.port, &request).and_then(http::Stream::finish) {
                let replayed = answer.header("idempotency-replayed").is_some();
                if replayed || answer.status < 400 {
                    return answer;
                }
                assert!(matches!(answer.status, 409 | 429 | 503), "{}: {}", self.key, answer.text());
            }
            assert!(began.elapsed() < PATIENCE, "{} is never answered", self.key);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// How often each thing came to its end, and how often it was lost with its server.
#[derive(Default)]
struct Figures {
    asked: usize,
    acknowledged: usize,
    from_records: usize,
    lost: usize,
    slowest: Duration,
}

/// Sandboxes that live through every kill: programs leave their marks in one, the other is forked.
struct Home {
    sandbox: String,
    source: String,
    context: String,
    /// Runs that were asked for.
    runs: usize,
}

impl Home {
    fn new(server: &Server) -> Self {
        let lasting = json!({ "lifetime": "4h", "limits": { "wall": "1h" } });
        let sandbox = server.sandbox(&lasting);
        let source = server.sandbox(&lasting);
        let made = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
        server.post(&format!("{source}/contexts"), &json!({ "language": "python" })).expect(201);
        Self { sandbox, source, context: made["id"].as_str().unwrap().to_owned(), runs: 0 }
    }

    fn asks(&self, round: u32, random: &mut Random) -> Vec<Ask> {
        let exec = format!("{}/exec", self.sandbox);
        let nap = random.below(120) as f64 / 1000.0;
        let mark = |what: &str| format!("echo {round}-{what} >> /workspace/marks; sleep {nap}");
        let cell = |what: &str| {
            format!(
                "import time\nwith open('/workspace/marks', 'a') as f: f.write('{round}-{what}\\n')\ntime.sleep({nap})"
            )
        };
        let execute = format!("{}/contexts/{}/execute", self.sandbox, self.context);
        let ask = |what: &'static str, path: &str, body: Value| {
            let key = format!("{round}-{what}");
            Ask { what, key, path: path.to_owned(), body }
        };
        let label = |what: &str| json!({ "asked": format!("{round}-{what}") });
        vec![
            ask(RUN, "/v1/runs", json!({ "language": "bash", "code": format!("sleep {nap}; echo {round}") })),
            ask(EXEC, &exec, json!({ "command": mark(EXEC), "on_disconnect": "keep" })),
            ask(BACKGROUND, &exec, json!({ "command": mark(BACKGROUND), "background": true })),
            ask(CELL, &exec, json!({ "context": self.context, "code": cell(CELL), "background": true })),
            ask(EXECUTE, &execute, json!({ "code": cell(EXECUTE) })),
            ask(FORK, &format!("{}/fork", self.source), json!({ "count": 2, "labels": label(FORK) })),
            ask(SANDBOX, "/v1/sandboxes", json!({ "labels": label(SANDBOX) })),
            ask(CONTEXT, &format!("{}/contexts", self.sandbox), json!({ "language": "python" })),
        ]
    }

    /// What there is of a request is what it was answered with, and no more.
    fn holds(&self, server: &Server, ask: &Ask, answer: &Answer) {
        let json = answer.json();
        match ask.what {
            FORK | SANDBOX => {
                assert_eq!(answer.status, 201, "{}: {json:#}", ask.key);
                let answered: BTreeSet<String> = match ask.what {
                    SANDBOX => [id_of(&json)].into(),
                    _ => json["forks"].as_array().unwrap().iter().map(|f| id_of(&f["sandbox"])).collect(),
                };
                assert_eq!(answered.len(), if ask.what == FORK { 2 } else { 1 }, "{}: {json:#}", ask.key);
                let listed = server.get(&format!("/v1/sandboxes?label=asked={}", ask.key)).expect(200);
                let there: BTreeSet<String> = listed["items"].as_array().unwrap().iter().map(id_of).collect();
                assert_eq!(answered, there, "{}: {listed:#}", ask.key);
                for id in answered {
                    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).status, 204);
                }
            }
            CONTEXT => {
                assert_eq!(answer.status, 201, "{}: {json:#}", ask.key);
                let listed = server.get(&format!("{}/contexts", self.sandbox)).expect(200);
                let there: Vec<String> = listed["items"].as_array().unwrap().iter().map(id_of).collect();
                let made: Vec<&String> = there.iter().filter(|id| **id != self.context).collect();
                assert_eq!(made, [&id_of(&json)], "{}: {listed:#}", ask.key);
                let context = format!("{}/contexts/{}", self.sandbox, made[0]);
                assert_eq!(server.delete(&context).status, 204);
            }
            _ => {}
        }
    }
}

fn id_of(object: &Value) -> String {
    object["id"].as_str().unwrap_or_else(|| panic!("{object:#}")).to_owned()
}

fn kill_the_server(times: u32, settings: &[(&str, &str)]) {
    let mut server = Server::with(Who::Root, &[&UNHURRIED, settings].concat(), &[]);
    let mut home = Home::new(&server);
    let mut random = Random(u64::from(times) ^ 0x51ed_270b_8a6f_0c35);
    let mut figures = Figures::default();
    for round in 0..times {
        let asks = home.asks(round, &mut random);
        home.runs += 1;
        figures.asked += asks.len();
        let wait = Duration::from_millis(random.below(350));
        let first = std::thread::scope(|scope| {
            let asked: Vec<_> = asks
                .iter()
                .map(|ask| {
                    let (port, request) = (server.port, ask.request(&server));
                    scope.spawn(move || http::open(port, &request).and_then(http::Stream::finish).ok())
                })
                .collect();
            std::thread::sleep(wait);
            server.kill();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
        });
        let began = Instant::now();
        server.restart();
        figures.slowest = figures.slowest.max(began.elapsed());
        for (ask, first) in asks.iter().zip(first) {
            let again = ask.until_answered(&server);
            let once_more = ask.until_answered(&server);
            assert!(once_more.header("idempotency-replayed").is_some(), "{}", ask.key);
            assert_eq!((once_more.status, told(&once_more)), (again.status, told(&again)), "{}", ask.key);
            if let Some(first) = first.filter(|first| first.status < 300) {
                figures.acknowledged += 1;
                assert_eq!((first.status, &first.body), (again.status, &again.body), "{}", ask.key);
            } else if again.header("idempotency-replayed").is_some() {
                figures.from_records += 1;
            }
            figures.lost += usize::from(again.status >= 400);
            home.holds(&server, ask, &again);
            wait_for_its_end(&server, &home, ask, &again);
        }
        let marks = server.exec(&home.sandbox, "cat /workspace/marks 2>/dev/null || true");
        let marks: Vec<&str> = marks["stdout"].as_str().unwrap().lines().collect();
        let each: BTreeSet<&str> = marks.iter().copied().collect();
        assert_eq!(marks.len(), each.len(), "round {round}: something was done twice: {marks:?}");
        server.exec(&home.sandbox, "rm -f /workspace/marks");
    }
    let runs = all_runs(&server);
    assert_eq!(runs, home.runs, "each run has one record, and there are no others");
    let Figures { asked, acknowledged, from_records, lost, slowest } = figures;
    // Of a few kills all may come before or after what they are to come into.
    assert!(from_records > 0 || times < 8, "no kill came between the beginning of something and its answer");
    let said = format!(
        "killed {times} times: {asked} requests, {acknowledged} answered before the kill, {from_records} answered from \
         records after it, {lost} of them lost with their server, none done twice; slowest restart {slowest:?}\n"
    );
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/keys-report.txt"), said).unwrap();
}

/// The body without what tells of one request alone.
fn told(answer: &Answer) -> Value {
    let mut told = answer.json();
    if let Some(fields) = told.as_object_mut() {
        fields.remove("request_id");
    }
    told
}

/// A program that was answered well left its mark.
fn wait_for_its_end(server: &Server, home: &Home, ask: &Ask, answer: &Answer) {
    if !matches!(ask.what, EXEC | BACKGROUND | CELL | EXECUTE) || answer.status >= 400 {
        return;
    }
    let exec = format!("{}/execs/{}", home.sandbox, id_of(&answer.json()));
    let mut view = Value::Null;
    eventually("it ends", || {
        view = server.get(&exec).expect(200);
        !view["status"].is_null()
    });
    if view["status"] == "ok" {
        let mark = format!("grep -c -x {} /workspace/marks", ask.key);
        assert_eq!(server.exec(&home.sandbox, &mark)["stdout"], "1\n", "{}: {view:#}", ask.key);
    }
}

fn all_runs(server: &Server) -> usize {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let page = server.get(&format!("/v1/runs?limit=1000{cursor}")).expect(200);
        count += page["items"].as_array().unwrap().len();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return count,
        }
    }
}

#[test]
fn a_client_that_left_hears_what_became_of_it() {
    let server = Server::start(Who::Root);
    let home = server.sandbox(&json!({}));
    let leave = |path: &str, key: &str, body: &Value| -> (Request, TcpStream) {
        let request = server.request("POST", path).json(body).header("idempotency-key", key);
        let socket = cut_off(server.port, &request);
        (request, socket)
    };
    // A program in the foreground ends with its client, and is not started again.
    let sleeps = json!({ "command": "echo mark >> /workspace/marks; exec sleep 98651" });
    let (request, socket) = leave(&format!("{home}/exec"), "exec", &sleeps);
    eventually("the program runs", || {
        server.exec(&home, "cat /workspace/marks || true")["stdout"] == "mark\n"
    });
    drop(socket);
    let again = server.send(&request);
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{}", again.text());
    assert_eq!(again.expect(200)["status"], "killed");
    assert_eq!(server.send(&request).expect(200)["status"], "killed");
    assert_eq!(server.exec(&home, "cat /workspace/marks")["stdout"], "mark\n");
    // What is made to stay is made to its end, for whoever asks again.
    for key in ["a", "b", "c", "d"] {
        let (request, socket) = leave("/v1/sandboxes", key, &json!({ "labels": { "asked": key } }));
        drop(socket);
        let made = server.send(&request).expect(201);
        let listed = server.get(&format!("/v1/sandboxes?label=asked={key}&include_ended=true")).expect(200);
        let there: Vec<String> = listed["items"].as_array().unwrap().iter().map(id_of).collect();
        assert_eq!(there, [id_of(&made)], "{listed:#}");
    }
}
