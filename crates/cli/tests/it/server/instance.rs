//! A server of the test's own: started, asked, killed, started again.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::http::{self, Answer, Events, Request, Stream};
use crate::support::{Place, Who, eventually, sandstorm};

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
    /// Of the local tenant, with every scope.
    pub key: String,
    pub place: Place,
    who: Who,
    settings: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl Server {
    pub fn start(who: Who) -> Self {
        Self::with(who, &[], &[])
    }

    /// With settings as `(variable, value)` and further arguments.
    pub fn with(who: Who, settings: &[(&str, &str)], arguments: &[&str]) -> Self {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let place = Place::new();
        let (child, port, key) = launch(who, &place, &settings, &arguments);
        let key = key.unwrap_or_default();
        Self { child, port, key, place, who, settings, arguments }
    }

    /// A server whose state lies in a place that was made ready for it.
    pub fn within(who: Who, place: Place, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let (child, port, key) = launch(who, &place, &settings, &[]);
        Self { child, port, key: key.unwrap_or_default(), place, who, settings, arguments: Vec::new() }
    }

    /// A server on a state that was put together by hand, with a key that is good there.
    pub fn on(who: Who, place: Place, key: &str) -> Self {
        let (child, port, _) = launch(who, &place, &Vec::new(), &[]);
        Self { child, port, key: key.to_owned(), place, who, settings: Vec::new(), arguments: Vec::new() }
    }

    pub fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory of the server's process, by its name in `/proc`.
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kilobytes.expect("the kernel tells it") << 10
    }

    /// Ends the server as no program can notice.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn try_wait(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        let mut ended = None;
        eventually("the server ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Starts the server again on the same state.
    pub fn restart(&mut self) {
        let (child, port, _) = launch(self.who, &self.place, &self.settings, &self.arguments);
        (self.child, self.port) = (child, port);
    }

    pub fn request(&self, method: &'static str, target: impl Into<String>) -> Request {
        Request::new(method, target).header("authorization", &format!("Bearer {}", self.key))
    }

    pub fn send(&self, request: &Request) -> Answer {
        http::open(self.port, request).unwrap().finish().unwrap()
    }

    pub fn open(&self, request: &Request) -> Stream {
        http::open(self.port, request).unwrap()
    }

    pub fn get(&self, target: &str) -> Answer {
        self.send(&self.request("GET", target))
    }

    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.send(&self.request("POST", target).json(body))
    }

    pub fn put(&self, target: &str, body: &[u8]) -> Answer {
        self.send(&self.request("PUT", target).bytes(body).header("content-type", "application/octet-stream"))
    }

    pub fn delete(&self, target: &str) -> Answer {
        self.send(&self.request("DELETE", target))
    }

    /// A streaming request's events.
    #[track_caller]
    pub fn stream(&self, request: Request) -> Events {
        let stream = self.open(&request.header("accept", "text/event-stream"));
        if stream.status != 200 {
            panic!("{}", stream.finish().unwrap().text());
        }
        stream.events()
    }

    /// A sandbox with these wishes; its path.
    #[track_caller]
    pub fn sandbox(&self, wishes: &Value) -> String {
        let made = self.post("/v1/sandboxes", wishes).expect(201);
        format!("/v1/sandboxes/{}", made["id"].as_str().unwrap())
    }

    /// Runs a command in a sandbox to its end.
    #[track_caller]
    pub fn exec(&self, sandbox: &str, command: &str) -> Value {
        self.post(&format!("{sandbox}/exec"), &serde_json::json!({ "command": command })).expect(200)
    }

    /// Processes that belong to this server: its own, its launcher's, its sandboxes'.
    pub fn processes(&self) -> Vec<i32> {
        let state = self.state().display().to_string();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&state)
            })
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            // A killed server leaves its launcher; the next one takes it over and ends it.
            let (child, ..) = launch(self.who, &self.place, &self.settings, &self.arguments);
            self.child = child;
        }
        self.signal(rustix::process::Signal::INT);
        self.wait();
        if !std::thread::panicking() {
            eventually("the launcher ends with its server", || self.processes().is_empty());
        }
    }
}

type Settings = Vec<(String, String)>;

#[expect(clippy::zombie_processes, reason = "a server that started is waited for by its holder")]
fn launch(
    who: Who,
    place: &Place,
    settings: &Settings,
    arguments: &[String],
) -> (Child, u16, Option<String>) {
    let mut command = sandstorm(who);
    command.env_remove("SANDSTORM_STATE_DIR");
    for (name, value) in settings {
        command.env(name, value);
    }
    let log = std::fs::OpenOptions::new().create(true).append(true).open(place.path().join("log")).unwrap();
    let mut child = command
        .args(["serve", "--listen", "127.0.0.1:0", "--state-dir"])
        .arg(place.path().join("state"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut key = None;
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 {
            let ended = child.wait().unwrap();
            let log = std::fs::read_to_string(place.path().join("log")).unwrap_or_default();
            panic!("the server did not start ({ended}): {log}");
        }
        if let Some(word) = line.split_whitespace().find(|word| word.starts_with("ss_")) {
            key = Some(word.to_owned());
        }
        // The address comes last: what stands before it has been said.
        if let Some((_, port)) = line.trim_end().rsplit_once("http://127.0.0.1:") {
            // Nobody reads on; a server must not mind.
            return (child, port.parse().unwrap(), key);
        }
    }
}
