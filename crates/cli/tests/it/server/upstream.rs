//! What a server tells the places that it sends programs to, and what it keeps for itself.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::http::Request;
use super::instance::Server;
use super::tenants::{new_key, secret_of};
use crate::mcp::http as mcp;
use crate::support::{Place, Who};

/// Stands before a server and keeps what is sent to it.
struct Listener {
    port: u16,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Listener {
    fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (own, heard) = (listener.local_addr().unwrap().port(), Arc::default());
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for caller in listener.incoming() {
                let (caller, server) = (caller.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
                let (from, to) = (caller.try_clone().unwrap(), server.try_clone().unwrap());
                let kept: Arc<Mutex<Vec<u8>>> = Arc::clone(&kept);
                std::thread::spawn(move || pass(from, to, |bytes| kept.lock().unwrap().extend(bytes)));
                std::thread::spawn(move || pass(server, caller, |_| {}));
            }
        });
        Self { port: own, heard }
    }

    fn heard(&self, text: &str) -> bool {
        self.heard.lock().unwrap().windows(text.len()).any(|window| window == text.as_bytes())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, see: impl Fn(&[u8])) {
    let mut buffer = [0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        see(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn keys_of_callers_are_never_passed_on() {
    let other = Server::start(Who::Root);
    let listener = Listener::before(other.port);
    let place = Place::new();
    let (file, key) = (place.path().join("sandstorm.yaml"), place.path().join("other.key"));
    std::fs::write(&key, &other.key).unwrap();
    let text = format!(
        "providers:\n  local: {{kind: local, enabled: false}}\n  other:\n    kind: sandstorm\n    \
         url: http://127.0.0.1:{}\n    key: file:{}\n",
        listener.port,
        key.display()
    );
    std::fs::write(&file, text).unwrap();
    let server = Server::with(Who::Root, &[], &["--config", &file.display().to_string()]);
    let (_, e2b) = new_key(&server, &["--form", "e2b"]);

    let run = server.post("/v1/runs", &json!({ "language": "bash", "code": "echo marked-7300" })).expect(200);
    assert_eq!(run["route"]["provider"], "other", "{run}");
    let session = mcp::session(&server, &server.key);
    let call = mcp::call("run_code", &json!({ "code": "'marked-7301'" }));
    let ran = mcp::message(&mcp::post(&server, &server.key, Some(&session), &call));
    assert_eq!(ran["result"]["structuredContent"]["results"][0]["text/plain"], "'marked-7301'", "{ran}");
    let made = Request::new("POST", "/v2/sandboxes")
        .header("x-api-key", &e2b)
        .json(&json!({ "templateID": "base", "timeout": 60 }));
    let made = server.send(&made);
    assert_eq!(made.status, 201, "{}", made.text());

    assert!(listener.heard("marked-7300"), "the other server was not asked");
    assert!(listener.heard(secret_of(&other.key)), "the listener hears keys");
    assert!(!listener.heard(secret_of(&server.key)), "a caller's key was passed on");
    assert!(!listener.heard(e2b.trim_start_matches("e2b_")), "a caller's key in E2B's form was passed on");
}
