//! The protocol over a WebSocket.

use serde_json::{Value, json};

use crate::server::instance::Server;
use crate::server::socket::{Message, WebSocket};
use crate::support::{Who, eventually};

fn ask(socket: &mut WebSocket, id: u64, method: &str, params: &Value) -> Value {
    socket.send_text(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
    loop {
        match socket.read() {
            Message::Text(text) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["id"] == id {
                    return message;
                }
            }
            Message::Bytes(_) => {}
            Message::Closed(code) => panic!("closed with {code}"),
        }
    }
}

#[test]
fn a_socket_is_a_client_and_its_end_the_end_of_its_sandbox() {
    let server = Server::start(Who::Root);
    let mut socket = WebSocket::open(&server, "/mcp/ws");
    let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let answer = ask(&mut socket, 1, "initialize", &hello);
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
    socket.send_text(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    let run = |code: &str| json!({ "name": "run_code", "arguments": { "code": code } });
    let first = ask(&mut socket, 2, "tools/call", &run("z = 3"));
    let sandbox = first["result"]["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned();
    // What is no message is passed over, as a line that is none is.
    socket.send_text("not a message");
    let second = ask(&mut socket, 3, "tools/call", &run("z + 4"));
    assert_eq!(second["result"]["structuredContent"]["results"][0]["text/plain"], "7", "{second}");
    drop(socket);
    let path = format!("/v1/sandboxes/{sandbox}");
    eventually("the sandbox of the socket is gone", || {
        server.get(&path).expect(200)["state"] == "terminated"
    });
}
