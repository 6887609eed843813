//! Input of programs, with the server killed right after it acknowledged some.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::faults::Random;
use super::http::{self, Answer, Request};
use super::instance::Server;
use crate::support::{PATIENCE, Who, eventually};

#[test]
fn acknowledged_input_survives_a_killed_server() {
    kill_after_acknowledgements(6);
}

#[test]
#[ignore = "takes minutes"]
fn acknowledged_input_survives_two_hundred_killed_servers() {
    kill_after_acknowledgements(200);
}

/// Nobody is to be held up by quotas here.
const UNHURRIED: [(&str, &str); 1] = [("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "1000000")];

/// What reads the input: all of it at once, or so slowly that the agent always has some that no program has read.
const READERS: [&str; 4] = [
    "cat > /workspace/input",
    "while IFS= read -r line; do echo \"$line\"; done > /workspace/input",
    "cat > /workspace/input",
    "while IFS= read -r line; do echo \"$line\"; done > /workspace/input",
];

/// How a writer finds out what became of a chunk whose answer it did not hear.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// It writes the chunk again, at its place.
    Repeats,
    /// It asks where the input ends.
    Asks,
}

fn kill_after_acknowledgements(times: u32) {
    let mut server = Server::with(Who::Root, &UNHURRIED, &[]);
    let sandbox = server.sandbox(&json!({ "lifetime": "2h", "limits": { "wall": "2h", "disk": "512M" } }));
    let execs: Vec<(String, String)> = (READERS.iter().enumerate())
        .map(|(number, reader)| {
            let file = format!("/workspace/input{number}");
            let command = reader.replace("/workspace/input", &file);
            let body = json!({ "command": command, "background": true, "stdin_stream": true });
            let made = server.post(&format!("{sandbox}/exec"), &body).expect(202);
            (format!("{sandbox}/execs/{}", made["id"].as_str().unwrap()), file)
        })
        .collect();
    let world = Arc::new(World {
        port: AtomicU16::new(server.port),
        key: server.key.clone(),
        over: AtomicBool::new(false),
        unheard: AtomicUsize::new(0),
        arrived: AtomicUsize::new(0),
        said: Mutex::default(),
    });
    let (acknowledged, acknowledgements) = mpsc::channel();
    let writers: Vec<_> = (execs.iter().enumerate())
        .map(|(number, (exec, _))| {
            let manner = if number < 2 { Manner::Repeats } else { Manner::Asks };
            let (world, exec, acknowledged) = (Arc::clone(&world), exec.clone(), acknowledged.clone());
            std::thread::spawn(move || Writer::new(&world, exec, number, manner).write(&acknowledged))
        })
        .collect();
    let mut random = Random(u64::from(times) ^ 0x1234_5678_9abc_def1);
    for round in 0..times {
        std::thread::sleep(Duration::from_millis(random.below(120)));
        while acknowledgements.try_recv().is_ok() {}
        let came = acknowledgements.recv_timeout(PATIENCE);
        assert!(came.is_ok(), "round {round}: nothing is acknowledged any more: {:?}", world.said.lock());
        server.kill();
        server.restart();
        world.port.store(server.port, Ordering::SeqCst);
    }
    // Every writer has something acknowledged by the last server, too.
    world.over.store(true, Ordering::SeqCst);
    let mut chunks = 0;
    for ((exec, file), writer) in execs.iter().zip(writers) {
        let (written, count) = writer.join().unwrap();
        chunks += count;
        let close = server.request("POST", format!("{exec}/stdin?close=true"));
        assert_eq!(server.send(&close).status, 204);
        eventually("its reader ends", || server.get(exec).expect(200)["running"] == false);
        let answer = server.get(&format!("{sandbox}/files?path={file}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        same(file, &answer.body, &written);
    }
    let (unheard, arrived) = (world.unheard.load(Ordering::SeqCst), world.arrived.load(Ordering::SeqCst));
    assert!(unheard > 0, "no kill came between a chunk and its answer");
    let said = format!(
        "killed {times} times right after an acknowledgement: {chunks} chunks acknowledged, all there once and in order; \
         of {unheard} whose answer was not heard, {arrived} had arrived\n"
    );
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/stdin-kill-report.txt"), said).unwrap();
}

/// Compares without printing a megabyte.
#[track_caller]
fn same(file: &str, found: &[u8], wanted: &[u8]) {
    let differ = found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(found.len().min(wanted.len()));
    let near = |bytes: &[u8]| {
        let from = differ.saturating_sub(40);
        String::from_utf8_lossy(&bytes[from..(differ + 40).min(bytes.len())]).into_owned()
    };
    assert!(
        found == wanted,
        "{file}: {} bytes of {}, different from {differ} on: {:?} instead of {:?}",
        found.len(),
        wanted.len(),
        near(found),
        near(wanted),
    );
}

struct World {
    port: AtomicU16,
    key: String,
    over: AtomicBool,
    /// Chunks whose answer was not heard, and those of them that had arrived whole.
    unheard: AtomicUsize,
    arrived: AtomicUsize,
    /// The latest words of a server that took nothing.
    said: Mutex<String>,
}

/// Why a chunk was not acknowledged.
enum Lost {
    /// No server had it.
    NotTaken,
    /// A server may have had it, and its answer was not heard.
    Unheard,
}

struct Writer<'a> {
    world: &'a World,
    exec: String,
    manner: Manner,
    random: Random,
    number: usize,
    /// All that was acknowledged.
    written: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(world: &'a World, exec: String, number: usize, manner: Manner) -> Self {
        let random = Random(0x9e37_79b9_7f4a_7c15 ^ number as u64);
        Self { world, exec, manner, random, number, written: Vec::new() }
    }

    /// Writes chunks until it is over; gives what was acknowledged, and in how many chunks.
    fn write(mut self, acknowledged: &mpsc::Sender<()>) -> (Vec<u8>, usize) {
        let mut count = 0;
        while !self.world.over.load(Ordering::SeqCst) {
            let filling = "x".repeat(self.random.below(6000) as usize);
            self.acknowledge(format!("writer {} chunk {count} {filling}\n", self.number).as_bytes());
            let _ = acknowledged.send(());
            count += 1;
            std::thread::sleep(Duration::from_millis(self.random.below(4)));
        }
        (self.written, count)
    }

    /// Writes a chunk until it is acknowledged.
    fn acknowledge(&mut self, chunk: &[u8]) {
        let (begins, began) = (self.written.len(), Instant::now());
        let ends = begins + chunk.len();
        let mut had = begins;
        loop {
            assert!(
                began.elapsed() < 4 * PATIENCE,
                "{} takes nothing: {:?}",
                self.exec,
                self.world.said.lock()
            );
            let answer = match self.manner {
                Manner::Repeats => self.post(&format!("?offset={begins}"), chunk),
                Manner::Asks => self.post("", &chunk[had - begins..]),
            };
            let lost = match answer {
                Ok(answer) => {
                    assert_eq!(offset(&answer), ends, "{}: {}", self.exec, answer.text());
                    self.written.extend(chunk);
                    return;
                }
                Err(lost) => lost,
            };
            // The chunk, or a part of it, may be there. What was acknowledged before is.
            had = self.ask();
            assert!((begins..=ends).contains(&had), "{}: {had} is not within {begins} and {ends}", self.exec);
            if matches!(lost, Lost::Unheard) {
                self.world.unheard.fetch_add(1, Ordering::SeqCst);
            }
            if had == ends {
                self.world.arrived.fetch_add(1, Ordering::SeqCst);
                if matches!(self.manner, Manner::Asks) {
                    self.written.extend(chunk);
                    return;
                }
            }
        }
    }

    /// How much input its program has had.
    fn ask(&self) -> usize {
        let began = Instant::now();
        loop {
            if let Ok(answer) = self.post("", b"") {
                return offset(&answer);
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{} does not answer: {:?}",
                self.exec,
                self.world.said.lock()
            );
        }
    }

    fn post(&self, query: &str, bytes: &[u8]) -> Result<Answer, Lost> {
        let request = Request::new("POST", format!("{}/stdin{query}", self.exec))
            .header("authorization", &format!("Bearer {}", self.world.key))
            .header("content-type", "application/octet-stream")
            .bytes(bytes);
        let answer = http::open(self.world.port.load(Ordering::SeqCst), &request).and_then(|it| it.finish());
        let (lost, said) = match answer {
            Ok(answer) if answer.status == 204 => return Ok(answer),
            Ok(answer) => {
                // A server that starts may not be ready, and says nothing else.
                assert_eq!(answer.status, 503, "{}: {}", self.exec, answer.text());
                (Lost::NotTaken, answer.text())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => (Lost::NotTaken, error.to_string()),
            Err(error) => (Lost::Unheard, error.to_string()),
        };
        *self.world.said.lock().unwrap() = said;
        std::thread::sleep(Duration::from_millis(20));
        Err(lost)
    }
}

fn offset(answer: &Answer) -> usize {
    answer.header("stdin-offset").expect("it is counted").parse().unwrap()
}
