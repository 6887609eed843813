//! What a tenant has of which it opens streams.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::mcp::http::session;
use crate::server::http::{self, Answer, Request, Stream};
use crate::server::instance::Server;
use crate::support::eventually;

/// Listens on port 8000: ticks to whoever comes, over HTTP, over an upgraded connection, or to one that says nothing of HTTP.
const LISTENER: &str = r#"
import socket, threading, time
def ticks(client, chunked):
    number = 0
    while True:
        line = b"tick %d.\n" % number
        client.sendall(b"%x\r\n%s\r\n" % (len(line), line) if chunked else line)
        number += 1
        time.sleep(0.05)
def serve(client):
    try:
        head = client.recv(65536)
        if head.startswith(b"raw"):
            ticks(client, False)
        while b"\r\n\r\n" not in head:
            more = client.recv(65536)
            if not more:
                return
            head += more
        if b"upgrade: websocket" in head.lower():
            client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
            ticks(client, False)
        client.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        ticks(client, True)
    except OSError:
        pass
    finally:
        client.close()
listener = socket.create_server(("127.0.0.1", 8000))
while True:
    client, _ = listener.accept()
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"#;

/// Ticks for ever; some files come and go beside it.
pub const TICKS: &str = "n=0; while :; do echo tick $n.; n=$((n + 1)); sleep 0.05; done";
const FILES: &str =
    "mkdir -p seen; n=0; while :; do : > \"seen/tick $n.\"; rm -f seen/*; n=$((n + 1)); sleep 0.05; done";

/// A file that takes a while to send.
pub const LARGE: usize = 24 << 20;
pub struct Scene {
    pub port: u16,
    key: String,
    /// Its path and the bare id.
    pub sandbox: String,
    pub bare: String,
    /// A program that ticks and one that reads, in the background.
    pub ticking: String,
    pub reading: String,
    pub context: String,
    pub access: String,
    pub traffic: String,
    pub mcp: String,
    /// Its session of the session API.
    pub session: String,
    /// Programs that run on whoever leaves.
    pub lasting: usize,
}

impl Scene {
    pub fn new(server: &Server, key: &str, number: u32) -> Self {
        let mut scene = Self {
            port: server.port,
            key: key.to_owned(),
            sandbox: String::new(),
            bare: String::new(),
            ticking: String::new(),
            reading: String::new(),
            context: String::new(),
            access: String::new(),
            traffic: String::new(),
            mcp: session(server, key),
            session: format!("00000000-0000-4000-8000-{number:012}"),
            lasting: 0,
        };
        let wishes = json!({ "lifetime": "2h", "limits": { "wall": "2h", "disk": "256M", "processes": 400, "output": "64M" } });
        let made = scene.post("/v1/sandboxes", &wishes).expect(201);
        scene.sandbox = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
        scene.bare = scene.sandbox.rsplit('_').next().unwrap().to_owned();
        let put = scene.request("PUT", format!("{}/files?path=listener.py", scene.sandbox));
        let put = put.bytes(LISTENER).header("content-type", "application/octet-stream");
        assert!(scene.send(&put).status < 300);
        let large = format!("mkdir -p large; head -c {LARGE} /dev/zero > large/file");
        let wrote = scene.post(&format!("{}/exec", scene.sandbox), &json!({ "command": large })).expect(200);
        assert_eq!(wrote["status"], "ok", "{wrote:#}");
        scene.background("python3 listener.py", false);
        scene.background(FILES, false);
        scene.ticking = scene.background(TICKS, false);
        scene.reading = scene.background("cat > /dev/null", true);
        // The older one is what E2B's side takes for its own: an interpreter runs one cell at a time.
        for _ in 0..2 {
            let made = scene.post(&format!("{}/contexts", scene.sandbox), &json!({ "language": "python" }));
            scene.context = made.expect(201)["id"].as_str().unwrap().to_owned();
        }
        let connect = format!("/v2/sandboxes/{}/connect", scene.bare);
        let opened = scene.post(&connect, &json!({ "timeout": 7200 })).expect(200);
        scene.access = opened["envdAccessToken"].as_str().unwrap().to_owned();
        scene.traffic = opened["trafficAccessToken"].as_str().unwrap_or_default().to_owned();
        let session = format!("/workspace/se/session/{}", scene.session);
        assert!(scene.post(&session, &json!({})).status < 300);
        let fill = format!("open('large', 'wb').write(bytes({LARGE}))");
        let code = json!({ "code": fill });
        let filled = scene.post(&format!("/workspace/se/execute_code/{}", scene.session), &code);
        assert!(filled.status < 300, "{}", filled.text());
        eventually("its port answers", || {
            let stream = scene.open(&scene.request("GET", format!("{}/ports/8000/", scene.sandbox)));
            stream.status == 200
        });
        scene.lasting = scene.running();
        scene
    }

    fn background(&self, command: &str, stdin: bool) -> String {
        let body = json!({ "command": command, "background": true, "stdin_stream": stdin });
        let made = self.post(&format!("{}/exec", self.sandbox), &body).expect(202);
        format!("{}/execs/{}", self.sandbox, made["id"].as_str().unwrap())
    }

    pub fn request(&self, method: &'static str, target: impl Into<String>) -> Request {
        Request::new(method, target).header("authorization", &format!("Bearer {}", self.key))
    }

    /// A request to the E2B side of its sandbox.
    pub fn e2b(&self, method: &'static str, port: u16, target: &str) -> Request {
        Request::new(method, target)
            .header("e2b-sandbox-id", &self.bare)
            .header("e2b-sandbox-port", &port.to_string())
            .header("x-access-token", &self.access)
            .header("e2b-traffic-access-token", &self.traffic)
    }

    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.send(&self.request("POST", target).json(body))
    }

    pub fn send(&self, request: &Request) -> Answer {
        self.open(request).finish().unwrap()
    }

    pub fn open(&self, request: &Request) -> Stream {
        http::open(self.port, request).unwrap()
    }

    /// Execs of its sandbox that run.
    pub fn running(&self) -> usize {
        let request = self.request("GET", format!("{}/execs?running=true", self.sandbox));
        self.send(&request).expect(200)["items"].as_array().unwrap().len()
    }

    /// Sends a request whose body is announced to be longer than what is sent of it.
    pub fn send_half(&self, request: &Request, announced: usize) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(2 * crate::support::PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\nhost: 127.0.0.1\r\n", request.method, request.target);
        for (name, value) in &request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {announced}\r\n\r\n"));
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&request.body).unwrap();
        socket
    }
}
