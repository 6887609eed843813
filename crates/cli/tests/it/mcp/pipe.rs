//! A client over standard input and output, as little of one as a test needs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::{Place, Who, eventually, sandstorm};

#[derive(Debug)]
pub struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    pub place: Place,
}

impl Pipe {
    pub fn open(who: Who, arguments: &[&str]) -> Self {
        Self::open_in(Place::new(), who, arguments)
    }

    /// On a state that is there already.
    pub fn open_in(place: Place, who: Who, arguments: &[&str]) -> Self {
        let mut command = sandstorm(who);
        command.env("SANDSTORM_STATE_DIR", place.path().join("state"));
        command
            .arg("mcp")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut pipe = Self { child, input, output, next: 0, place };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
        let answer = pipe.ask("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "sandstorm", "{answer}");
        pipe.tell("notifications/initialized", json!({}));
        pipe
    }

    pub fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    pub fn tell(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request and gives its number.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    /// The next message, whatever it is.
    pub fn read(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the server ended");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not of the protocol: {line}"))
    }

    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
        }
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// The data of a call that must go well.
    #[track_caller]
    pub fn good(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result:#}");
        result["structuredContent"].clone()
    }

    /// Closes this end and waits for the other.
    pub fn close(mut self) -> Place {
        drop(self.input.take());
        let mut ended = None;
        eventually("the server of a client that left ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success());
        std::mem::replace(&mut self.place, Place::new())
    }

    /// Ends the server as no program can notice.
    pub fn kill(mut self) -> Place {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.place, Place::new())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
