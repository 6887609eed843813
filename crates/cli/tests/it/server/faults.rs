//! The server, its launcher and its agents killed without warning, under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{self, Request};
use super::instance::Server;
use crate::support::{PATIENCE, Who, eventually, processes_with, promised};

#[test]
fn killing_the_server_loses_nothing() {
    kill_the_server(8);
}

#[test]
#[ignore = "takes four minutes"]
fn killing_the_server_two_hundred_times_loses_nothing() {
    kill_the_server(200);
}

/// Nobody is to be held up by quotas here.
pub(super) const UNHURRIED: [(&str, &str); 2] =
    [("SANDSTORM_QUOTAS_RUNS_PER_MINUTE", "1000000"), ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "1000000")];

/// Sandboxes that live through every kill.
const LASTING: usize = 6;

fn kill_the_server(times: u32) {
    let mut server = Server::with(Who::Root, &UNHURRIED, &[]);
    let mut residents: Vec<Resident> = (0..LASTING).map(|_| Resident::move_in(&server)).collect();
    let load = Load::start(&server);
    let mut random = Random(u64::from(times) ^ 0x9e37_79b9_7f4a_7c15);
    let mut slowest = Duration::ZERO;
    for round in 0..times {
        std::thread::sleep(Duration::from_millis(random.below(400)));
        server.kill();
        let down = random.below(300);
        std::thread::sleep(Duration::from_millis(down));
        let began = Instant::now();
        server.restart();
        load.port.store(server.port, Ordering::SeqCst);
        slowest = slowest.max(began.elapsed());
        for resident in &mut residents {
            resident.is_as_it_was(&server, round);
        }
    }
    let acknowledged = load.stop();
    acknowledged.is_all_there(&server);
    for resident in &mut residents {
        resident.wrote_everything_once(&server);
    }
    let said = format!(
        "killed {times} times: {} runs, {} sandboxes and {} cells acknowledged, none missing; slowest restart {slowest:?}\n",
        acknowledged.runs.len(),
        acknowledged.sandboxes.len(),
        residents.iter().map(|r| r.cells).sum::<u64>(),
    );
    // The figures of the long run are wanted, and a test that passes shows nothing.
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/kill-report.txt"), said).unwrap();
}

/// A sandbox that lives through it all: a program that counts, and an interpreter that remembers.
pub(super) struct Resident {
    pub(super) path: String,
    pub(super) context: String,
    pub(super) exec: String,
    /// Cells whose end we were told.
    cells: u64,
    /// The exec of a cell that may be cut by a kill.
    under_way: Option<String>,
}

impl Resident {
    pub(super) fn move_in(server: &Server) -> Self {
        let path = server.sandbox(&json!({ "lifetime": "2h", "limits": { "output": "64M", "wall": "2h" } }));
        let made = server.post(&format!("{path}/contexts"), &json!({ "language": "python" })).expect(201);
        let context = format!("{path}/contexts/{}", made["id"].as_str().unwrap());
        let set = server.post(&format!("{context}/execute"), &json!({ "code": "x = 0" })).expect(200);
        assert_eq!(set["status"], "ok");
        let count = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.01; done";
        let started = server
            .post(&format!("{path}/exec"), &json!({ "command": count, "background": true }))
            .expect(202);
        let exec = format!("{path}/execs/{}", started["id"].as_str().unwrap());
        Self { path, context, exec, cells: 0, under_way: None }
    }

    pub(super) fn is_as_it_was(&mut self, server: &Server, round: u32) {
        let view = server.get(&self.path).expect(200);
        assert_eq!(view["state"], "running", "round {round}: {view:#}");
        let cell =
            server.post(&format!("{}/execute", self.context), &json!({ "code": "x += 1\nx" })).expect(200);
        self.cells += 1;
        let x: u64 = cell["results"][0]["data"]["text/plain"].as_str().unwrap().parse().unwrap();
        assert_eq!(x, self.cells, "round {round}: {cell:#}");
        // The cell that was under way when the server died came to its end all the same.
        if let Some(exec) = self.under_way.take() {
            let view = server.get(&exec).expect(200);
            assert_eq!(view["status"], "ok", "round {round}: {view:#}");
            assert_eq!(view["result"]["stdout"], "before\nafter\n", "round {round}: {view:#}");
        }
        // Another one for the next kill. What it does to `x` it undoes.
        let code = "x += 100\nprint('before')\nimport time; time.sleep(0.2)\nprint('after')\nx -= 100";
        let id = self.context.rsplit('/').next().unwrap();
        let body = json!({ "context": id, "code": code, "background": true });
        let started = server.post(&format!("{}/exec", self.path), &body).expect(202);
        let exec = format!("{}/execs/{}", self.path, started["id"].as_str().unwrap());
        // One that its interpreter never got is lost with the server, and is said to be: under way is what has begun.
        let mut events = server.stream(server.request("GET", format!("{exec}/events")));
        assert!(events.any(|event| event.data["type"] == "stdout"), "{exec} never began");
        self.under_way = Some(exec);
    }

    /// Every number once, in order, from the first.
    pub(super) fn wrote_everything_once(&mut self, server: &Server) {
        let events = server.stream(server.request("GET", format!("{}/events", self.exec)));
        let (mut text, began) = (String::new(), Instant::now());
        // It counts on; some seconds of listening bring us to what it writes now.
        for event in events {
            assert_ne!(event.data["type"], "end", "{event:?}");
            text.push_str(event.data["text"].as_str().unwrap_or_default());
            if began.elapsed() > Duration::from_secs(3) && text.lines().count() > 100 {
                break;
            }
        }
        assert!(text.lines().count() > 100, "{text}");
        for (index, line) in text.lines().enumerate() {
            if text.ends_with('\n') || index + 1 < text.lines().count() {
                assert_eq!(line.parse(), Ok(index as u64 + 1), "line {index} of {}", self.exec);
            }
        }
    }
}

/// What the server said was done.
#[derive(Default)]
struct Acknowledged {
    runs: Vec<(String, String)>,
    sandboxes: BTreeMap<String, bool>,
}

impl Acknowledged {
    fn is_all_there(&self, server: &Server) {
        for (run, printed) in &self.runs {
            let view = server.get(&format!("/v1/runs/{run}")).expect(200);
            assert_eq!(view["result"]["stdout"].as_str(), Some(printed.as_str()), "{view:#}");
        }
        for (sandbox, deleted) in &self.sandboxes {
            let view = server.get(sandbox).expect(200);
            let wanted: &[&str] = if *deleted { &["terminated"] } else { &["ready"] };
            assert!(wanted.contains(&view["state"].as_str().unwrap()), "{deleted}: {view:#}");
        }
    }
}

/// Clients that go on asking, whatever happens to the server.
struct Load {
    port: Arc<AtomicU16>,
    over: Arc<AtomicBool>,
    done: Arc<Mutex<Acknowledged>>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let mut load = Self {
            port: Arc::new(AtomicU16::new(server.port)),
            over: Arc::default(),
            done: Arc::default(),
            clients: Vec::new(),
        };
        let authorization = format!("Bearer {}", server.key);
        for client in 0..3u32 {
            let (port, over, done) = (Arc::clone(&load.port), Arc::clone(&load.over), Arc::clone(&load.done));
            let authorization = authorization.clone();
            load.clients.push(std::thread::spawn(move || {
                let ask = |method, target: &str, body: &Value| {
                    let request =
                        Request::new(method, target).header("authorization", &authorization).json(body);
                    http::open(port.load(Ordering::SeqCst), &request).and_then(|stream| stream.finish()).ok()
                };
                let mut turn = 0u32;
                while !over.load(Ordering::SeqCst) {
                    turn += 1;
                    match client {
                        0 => sandboxes(&ask, &done, turn),
                        _ => runs(&ask, &done, &format!("{client}-{turn}")),
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }));
        }
        load
    }

    fn stop(self) -> Acknowledged {
        self.over.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().unwrap();
        }
        Arc::into_inner(self.done).unwrap().into_inner().unwrap()
    }
}

fn runs(
    ask: &dyn Fn(&'static str, &str, &Value) -> Option<http::Answer>,
    done: &Mutex<Acknowledged>,
    word: &str,
) {
    let body = json!({ "language": "bash", "code": format!("echo {word}") });
    if let Some(answer) = ask("POST", "/v1/runs", &body)
        && answer.status == 200
    {
        let result = answer.json();
        // A run that the end of its server cut short says so; it is a record as well.
        let text = |key: &str| result[key].as_str().unwrap().to_owned();
        done.lock().unwrap().runs.push((text("id"), text("stdout")));
    }
}

fn sandboxes(
    ask: &dyn Fn(&'static str, &str, &Value) -> Option<http::Answer>,
    done: &Mutex<Acknowledged>,
    turn: u32,
) {
    let Some(answer) = ask("POST", "/v1/sandboxes", &json!({ "lifetime": "2h" })).filter(|a| a.status == 201)
    else {
        return;
    };
    let path = format!("/v1/sandboxes/{}", answer.json()["id"].as_str().unwrap());
    done.lock().unwrap().sandboxes.insert(path.clone(), false);
    // A few stay; the rest go at once.
    if turn.is_multiple_of(50) {
        return;
    }
    // Deleting works however often it is asked for, so it is asked for until it is acknowledged.
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if ask("DELETE", &path, &Value::Null).is_some_and(|answer| answer.status == 204) {
            done.lock().unwrap().sandboxes.insert(path, true);
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{path} cannot be deleted");
}

#[test]
fn killing_an_agent_fails_its_sandbox_alone() {
    let server = Server::start(Who::Root);
    let other = server.sandbox(&json!({}));
    promised("its sandbox is failed and gone", Duration::from_secs(2), || {
        let victim = server.sandbox(&json!({}));
        server.exec(&victim, "true");
        let program = marked(&server, &victim, "sleep 98765");
        let killed = Instant::now();
        kill(parent_of(program));
        eventually("it is failed", || server.get(&victim).expect(200)["state"] == "failed");
        eventually("its programs are gone", || processes_with("sleep 98765").is_empty());
        let took = killed.elapsed();
        let view = server.get(&victim).expect(200);
        assert!(view["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{view:#}");
        assert_eq!(server.delete(&victim).status, 204);
        took
    });
    assert_eq!(server.exec(&other, "echo here")["stdout"], "here\n");
}

#[test]
fn killing_the_launcher_fails_its_sandboxes_and_the_server_recovers() {
    let server = Server::start(Who::Root);
    promised("its sandboxes are failed and gone", Duration::from_secs(2), || {
        let sandboxes: Vec<String> = (0..3).map(|_| server.sandbox(&json!({}))).collect();
        let agent = parent_of(marked(&server, &sandboxes[0], "sleep 98764"));
        let killed = Instant::now();
        kill(parent_of(agent));
        let failed = |path: &String| server.get(path).expect(200)["state"] == "failed";
        eventually("all are failed", || sandboxes.iter().all(failed));
        eventually("its programs are gone", || processes_with("sleep 98764").is_empty());
        let took = killed.elapsed();
        // Another launcher takes over, and with it sandboxes can be made again.
        eventually("sandboxes can be made again", || server.post("/v1/sandboxes", &json!({})).status == 201);
        took
    });
}

/// Starts a program in a sandbox that only this test has, and gives its process.
pub(super) fn marked(server: &Server, sandbox: &str, program: &str) -> i32 {
    let body = json!({ "command": format!("exec {program}"), "background": true });
    server.post(&format!("{sandbox}/exec"), &body).expect(202);
    eventually("its program runs", || !processes_with(program).is_empty());
    processes_with(program)[0]
}

#[test]
fn a_client_that_goes_takes_its_program_along() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    for accept in ["text/event-stream", "application/json"] {
        promised("its program is gone", Duration::from_secs(1), || {
            let request = server
                .request("POST", format!("{sandbox}/exec"))
                .json(&json!({ "command": "exec sleep 98763" }))
                .header("accept", accept);
            // An answer in JSON begins only at the end of the program, so the client is a thread that is cut off.
            let socket = cut_off(server.port, &request);
            eventually("the program runs", || !processes_with("sleep 98763").is_empty());
            drop(socket);
            eventually("it is gone", || processes_with("sleep 98763").is_empty())
        });
    }
}

/// Sends a request and reads nothing.
pub(super) fn cut_off(port: u16, request: &Request) -> std::net::TcpStream {
    use std::io::Write;
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut head = format!("{} {} HTTP/1.1\r\nhost: x\r\n", request.method, request.target);
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", request.body.len()));
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&request.body).unwrap();
    socket
}

#[test]
fn a_polite_end_keeps_the_sandboxes_for_the_next_server() {
    let mut server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    server.exec(&sandbox, "echo kept > file");
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    server.restart();
    assert_eq!(server.exec(&sandbox, "cat file")["stdout"], "kept\n");
}

pub(super) fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(super) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Numbers that are the same in every run of a test.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
