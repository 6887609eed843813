//! A tenant that keeps a stream of each kind open and misses nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::json;

use super::scene::{LARGE, Scene, TICKS};
use super::ways::{connect, frame, mcp_socket, pid};
use crate::mcp::http::{BOTH, call};
use crate::server::http::{Request, Stream};
use crate::server::socket::{Message, WebSocket};
use crate::support::eventually;

/// What came on a stream, and whether it is still open.
#[derive(Default)]
struct Came {
    bytes: Mutex<Vec<u8>>,
    closed: AtomicBool,
}

/// A stream that ticks.
struct Stay {
    name: &'static str,
    came: Arc<Came>,
    /// The text in what came.
    read: fn(&[u8]) -> Vec<u8>,
    /// Its latest tick when it was last looked at.
    latest: Option<u64>,
    socket: Option<TcpStream>,
}

pub struct Stays {
    scene: Scene,
    ticking: Vec<Stay>,
    /// Streams of events, and how much had come on each.
    events: Vec<(&'static str, Arc<Came>, TcpStream, usize)>,
    mcp: (Arc<Came>, TcpStream, usize),
    /// MCP's stream of a session, on which nothing has to come.
    session: (Arc<Came>, TcpStream),
    downloads: Vec<(&'static str, JoinHandle<usize>)>,
    uploads: Vec<(&'static str, TcpStream)>,
    over: Arc<AtomicBool>,
}

/// A slow transfer moves so much, so often.
const STEP: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(100);

fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

/// The output in messages of E2B's.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let (mark, mut text, mut rest) = (b"\"stdout\":\"", Vec::new(), bytes);
    while let Some(at) = rest.windows(mark.len()).position(|window| window == mark) {
        rest = &rest[at + mark.len()..];
        let Some(end) = rest.iter().position(|byte| *byte == b'"') else { break };
        text.extend(BASE64.decode(&rest[..end]).expect("output is base64"));
        rest = &rest[end..];
    }
    text
}

/// The numbers of all whole ticks, without those that are said twice in a row: a watch tells more than one change of a file.
fn ticks(text: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(text);
    let numbers = text.split("tick ").skip(1).filter_map(|rest| rest.split_once('.')?.0.parse().ok());
    let mut all: Vec<u64> = numbers.collect();
    all.dedup();
    all
}

impl Stay {
    /// Reads an answer's body as it comes.
    fn body(name: &'static str, scene: &Scene, request: &Request, read: fn(&[u8]) -> Vec<u8>) -> Self {
        let (came, socket) = follow(name, scene.open(request));
        Self { name, came, read, latest: None, socket: Some(socket) }
    }

    /// Reads whatever comes after an upgrade.
    fn upgraded(name: &'static str, scene: &Scene, request: &Request, first: &[u8]) -> Self {
        let stream = scene.open(request);
        assert_eq!(stream.status, 101, "{name}");
        let mut reader = stream.upgraded();
        let socket = reader.get_ref().try_clone().unwrap();
        reader.get_mut().write_all(first).unwrap();
        let came = Arc::<Came>::default();
        let into = Arc::clone(&came);
        std::thread::spawn(move || keep(&into, |buffer| reader.read(buffer)));
        Self { name, came, read: plain, latest: None, socket: Some(socket) }
    }

    fn terminal(scene: &Scene) -> Self {
        let line =
            "n%3D0%3B+while+%3A%3B+do+echo+tick+%24n.%3B+n%3D%24%28%28n%2B1%29%29%3B+sleep+0.05%3B+done";
        let request = scene.request("GET", format!("{}/pty?cmd={line}", scene.sandbox));
        let mut socket = WebSocket::by(scene.port, request);
        let came = Arc::<Came>::default();
        let into = Arc::clone(&came);
        std::thread::spawn(move || {
            loop {
                match socket.read() {
                    Message::Bytes(bytes) => into.bytes.lock().unwrap().extend(bytes),
                    _ => return into.closed.store(true, Ordering::SeqCst),
                }
            }
        });
        Self { name: "a terminal", came, read: plain, latest: None, socket: None }
    }

    fn ticks(&self) -> Vec<u64> {
        ticks(&(self.read)(&self.came.bytes.lock().unwrap()))
    }

    fn is_closed(&self) -> bool {
        self.came.closed.load(Ordering::SeqCst)
    }
}

fn keep(into: &Came, mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(n @ 1..) = read(&mut buffer) {
        into.bytes.lock().unwrap().extend_from_slice(&buffer[..n]);
    }
    into.closed.store(true, Ordering::SeqCst);
}

/// Keeps what comes as the body of an answer.
fn follow(name: &str, mut stream: Stream) -> (Arc<Came>, TcpStream) {
    assert!(stream.status < 300, "{name}: {}", stream.status);
    let (came, socket) = (Arc::<Came>::default(), stream.socket().try_clone().unwrap());
    let into = Arc::clone(&came);
    std::thread::spawn(move || {
        while let Ok(piece) = stream.piece() {
            if piece.is_empty() {
                break;
            }
            into.bytes.lock().unwrap().extend(piece);
        }
        into.closed.store(true, Ordering::SeqCst);
    });
    (came, socket)
}

/// Takes a large body slowly until it is over, and then the rest; gives its length.
fn download(
    name: &'static str,
    mut stream: Stream,
    over: &Arc<AtomicBool>,
) -> (&'static str, JoinHandle<usize>) {
    assert_eq!(stream.status, 200, "{name}");
    let over = Arc::clone(over);
    let reading = std::thread::spawn(move || {
        let mut length = 0;
        loop {
            let piece = stream.piece().unwrap_or_else(|error| panic!("{name} broke off: {error}"));
            if piece.is_empty() {
                return length;
            }
            length += piece.len();
            if !over.load(Ordering::SeqCst) {
                std::thread::sleep(PAUSE);
            }
        }
    });
    (name, reading)
}

impl Stays {
    pub fn open(scene: Scene) -> Self {
        let s = &scene;
        let sse = |method, target: String| s.request(method, target).header("accept", "text/event-stream");
        let run = json!({ "language": "bash", "code": TICKS, "limits": { "wall": "2h" } });
        let command = json!({ "command": TICKS, "timeout": 7200 });
        let cell = "import time\nn = 0\nwhile True:\n    print(f'tick {n}.', flush=True)\n    n += 1\n    time.sleep(0.05)";
        let cell = json!({ "code": cell });
        let config = json!({ "cmd": "/bin/sh", "args": ["-c", TICKS] });
        let port = format!("{}/ports/8000/", s.sandbox);
        let tunnel = s.request("GET", format!("{}/tunnel/8000", s.sandbox));
        let tunnel = tunnel.header("connection", "Upgrade").header("upgrade", "tcp");
        let execute = format!("{}/contexts/{}/execute", s.sandbox, s.context);
        let watch = json!({ "path": "/workspace/seen", "recursive": false });
        let attached = json!({ "process": { "pid": pid(s, "echo tick") } });
        let socket = crate::server::socket::upgrade;
        let ticking = vec![
            Stay::body("a run", s, &sse("POST", "/v1/runs".to_owned()).json(&run), plain),
            Stay::body("an exec", s, &sse("POST", format!("{}/exec", s.sandbox)).json(&command), plain),
            Stay::body("an attached exec", s, &sse("GET", format!("{}/events", s.ticking)), plain),
            Stay::body("a cell", s, &sse("POST", execute).json(&cell), plain),
            Stay::body("a watch", s, &sse("GET", format!("{}/files/watch?path=seen", s.sandbox)), plain),
            Stay::terminal(s),
            Stay::body("a port", s, &s.request("GET", &port), plain),
            Stay::upgraded("a port's WebSocket", s, &socket(s.request("GET", &port)), b""),
            Stay::upgraded("a tunnel", s, &tunnel, b"raw"),
            Stay::body(
                "E2B's process",
                s,
                &connect(s, "/process.Process/Start", &json!({ "process": config })),
                unpacked,
            ),
            Stay::body(
                "E2B's attached process",
                s,
                &connect(s, "/process.Process/Connect", &attached),
                unpacked,
            ),
            Stay::body("E2B's watch", s, &connect(s, "/filesystem.Filesystem/WatchDir", &watch), plain),
            Stay::body("E2B's code", s, &s.e2b("POST", 49999, "/execute").json(&cell), plain),
            Stay::body("a port of E2B's", s, &s.e2b("GET", 8000, "/"), plain),
            Stay::upgraded("a WebSocket of a port of E2B's", s, &socket(s.e2b("GET", 8000, "/")), b""),
        ];
        let listen = [
            ("events", sse("GET", "/v1/events".to_owned())),
            ("events of a sandbox", sse("GET", format!("{}/events", s.sandbox))),
        ];
        let session = sse("GET", "/mcp".to_owned()).header("mcp-session-id", &s.mcp);
        let session = session.header("mcp-protocol-version", "2025-11-25");
        let session = follow("MCP's stream of a session", s.open(&session));
        let events = listen.into_iter().map(|(name, request)| {
            let (came, socket) = follow(name, s.open(&request));
            (name, came, socket, 0)
        });
        let events = events.collect();
        let mut talks = mcp_socket(s);
        let (came, socket) = (Arc::<Came>::default(), talks.try_clone().unwrap());
        let into = Arc::clone(&came);
        std::thread::spawn(move || keep(&into, |buffer| talks.read(buffer)));
        let over = Arc::<AtomicBool>::default();
        let downloads = [
            ("a download", s.request("GET", format!("{}/files?path=large/file", s.sandbox))),
            ("E2B's download", s.e2b("GET", 49983, "/files?path=/workspace/large/file")),
            ("a session's download", s.request("GET", format!("/workspace/se/download/{}/large", s.session))),
        ];
        let downloads = downloads.map(|(name, request)| download(name, s.open(&request), &over)).into();
        let uploads = [
            ("an upload", s.request("PUT", format!("{}/files?path=mine", s.sandbox))),
            ("E2B's upload", s.e2b("POST", 49983, "/files?path=/workspace/mine-too")),
            ("input", s.request("POST", format!("{}/stdin", s.reading))),
        ];
        let uploads = uploads.map(|(name, request)| {
            let request = request.header("content-type", "application/octet-stream").bytes(vec![0; STEP]);
            (name, s.send_half(&request, LARGE))
        });
        let uploads = slow(uploads.into(), &over);
        Self { ticking, events, mcp: (came, socket, 0), session, downloads, uploads, over, scene }
    }

    /// Every stream still brings what happens.
    pub fn are_served(&mut self) {
        for stay in &mut self.ticking {
            let before = stay.latest;
            eventually(&format!("{} ticks on", stay.name), || {
                assert!(!stay.is_closed(), "{} was closed: {}", stay.name, text(&stay.came));
                stay.latest = stay.ticks().last().copied();
                stay.latest > before
            });
        }
        let command = json!({ "command": "echo something happens" });
        self.scene.post(&format!("{}/exec", self.scene.sandbox), &command).expect(200);
        for (name, came, _, had) in &mut self.events {
            eventually(&format!("{name} tell of it"), || {
                assert!(!came.closed.load(Ordering::SeqCst), "{name} were closed: {}", text(came));
                came.bytes.lock().unwrap().len() > *had
            });
            *had = came.bytes.lock().unwrap().len();
        }
        assert!(!self.session.0.closed.load(Ordering::SeqCst), "MCP's stream was closed");
        let (came, socket, asked) = &mut self.mcp;
        *asked += 1;
        let (id, sandbox) = (format!("\"id\":{}", 1000 + *asked), format!("sbx_{}", self.scene.bare));
        let arguments = json!({ "sandbox_id": sandbox, "command": "echo here" });
        let mut message = call("sandbox_exec", &arguments);
        message["id"] = json!(1000 + *asked);
        socket.write_all(&frame(&message)).unwrap();
        eventually("MCP's socket answers", || {
            assert!(!came.closed.load(Ordering::SeqCst), "MCP's socket was closed: {}", text(came));
            text(came).contains(&id)
        });
        let request = self.scene.request("POST", "/mcp").header("accept", BOTH).json(&message);
        let request = request.header("mcp-session-id", &self.scene.mcp);
        let answer = self.scene.send(&request.header("mcp-protocol-version", "2025-11-25"));
        assert!(answer.status == 200 && answer.text().contains("here"), "{}", answer.text());
    }

    /// Ends them all; gives how many ticks came, of which none is missing.
    pub fn end(mut self) -> usize {
        self.are_served();
        self.over.store(true, Ordering::SeqCst);
        let mut count = 0;
        for stay in &self.ticking {
            let ticks = stay.ticks();
            let gap = ticks.windows(2).find(|pair| pair[1] != pair[0] + 1);
            assert!(gap.is_none(), "{} went from {gap:?}", stay.name);
            count += ticks.len();
            if let Some(socket) = &stay.socket {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        for (name, came, socket, _) in &self.events {
            let numbers: Vec<u64> =
                text(came).lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect();
            assert!(numbers.len() > 1 && numbers.is_sorted(), "{name}: {numbers:?}");
            let _ = socket.shutdown(Shutdown::Both);
        }
        let _ = self.mcp.1.shutdown(Shutdown::Both);
        let _ = self.session.1.shutdown(Shutdown::Both);
        for (name, reading) in self.downloads {
            assert_eq!(reading.join().unwrap(), LARGE, "{name}");
        }
        for (name, mut socket) in self.uploads {
            let mut answer = [0; 12];
            socket.read_exact(&mut answer).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(answer.starts_with(b"HTTP/1.1 20"), "{name}: {}", String::from_utf8_lossy(&answer));
        }
        for path in ["mine", "mine-too"] {
            let stat = self.scene.request("GET", format!("{}/files/stat?path={path}", self.scene.sandbox));
            assert_eq!(self.scene.send(&stat).expect(200)["size"], LARGE, "{path}");
        }
        count
    }
}

/// Goes on with uploads, slowly until it is over.
fn slow(uploads: Vec<(&'static str, TcpStream)>, over: &Arc<AtomicBool>) -> Vec<(&'static str, TcpStream)> {
    for (name, socket) in &uploads {
        let (name, over, mut socket) = (*name, Arc::clone(over), socket.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut left = LARGE - STEP;
            while left > 0 {
                // What is left when it is over follows at once.
                let step = if over.load(Ordering::SeqCst) { left } else { STEP.min(left) };
                let sent = socket.write_all(&vec![0; step]);
                sent.unwrap_or_else(|error| panic!("{name}: {error}"));
                left -= step;
                std::thread::sleep(PAUSE);
            }
        });
    }
    uploads
}

fn text(came: &Came) -> String {
    String::from_utf8_lossy(&came.bytes.lock().unwrap()).into_owned()
}
