//! As little WebSocket as a terminal needs.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::Value;

use super::instance::Server;
use crate::support::PATIENCE;

#[derive(Debug)]
pub struct WebSocket {
    reader: BufReader<TcpStream>,
    /// Bytes that arrived and were not looked for yet.
    seen: Vec<u8>,
}

/// A message: what kind, and what it holds.
#[derive(Debug, PartialEq)]
pub enum Message {
    Text(String),
    Bytes(Vec<u8>),
    Closed(u16),
}

impl WebSocket {
    #[track_caller]
    pub fn open(server: &Server, target: &str) -> Self {
        Self::by(server.port, server.request("GET", target))
    }

    #[track_caller]
    pub fn by(port: u16, request: super::http::Request) -> Self {
        let stream = super::http::open(port, &upgrade(request)).unwrap();
        if stream.status != 101 {
            let status = stream.status;
            panic!("{status}: {}", stream.finish().unwrap().text());
        }
        let reader = stream.upgraded();
        reader.get_ref().set_read_timeout(Some(2 * PATIENCE)).unwrap();
        Self { reader, seen: Vec::new() }
    }

    fn send(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            n @ 0..=125 => frame.push(0x80 | n as u8),
            n => {
                frame.push(0x80 | 126);
                frame.extend((n as u16).to_be_bytes());
            }
        }
        // A mask of zeros is a mask.
        frame.extend([0; 4]);
        frame.extend(payload);
        self.reader.get_mut().write_all(&frame).unwrap();
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.send(2, bytes);
    }

    pub fn send_text(&mut self, text: &str) {
        self.send(1, text.as_bytes());
    }

    /// An empty message of bytes stands for a sign of life that brought nothing.
    pub fn read(&mut self) -> Message {
        loop {
            let mut head = [0; 2];
            if self.reader.read_exact(&mut head).is_err() {
                return Message::Closed(1006);
            }
            let length = match head[1] & 0x7f {
                126 => {
                    let mut long = [0; 2];
                    self.reader.read_exact(&mut long).unwrap();
                    u64::from(u16::from_be_bytes(long))
                }
                127 => {
                    let mut long = [0; 8];
                    self.reader.read_exact(&mut long).unwrap();
                    u64::from_be_bytes(long)
                }
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.reader.read_exact(&mut payload).unwrap();
            match head[0] & 0x0f {
                1 => return Message::Text(String::from_utf8(payload).unwrap()),
                2 => return Message::Bytes(payload),
                8 => {
                    let code = payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code));
                    return Message::Closed(code);
                }
                9 => {
                    self.send(10, &payload);
                    return Message::Bytes(Vec::new());
                }
                _ => {}
            }
        }
    }

    /// Reads output until it holds this text.
    #[track_caller]
    pub fn read_until(&mut self, wanted: &str) {
        let began = Instant::now();
        loop {
            let seen = String::from_utf8_lossy(&self.seen);
            assert!(began.elapsed() < PATIENCE, "{wanted} never came: {seen}");
            if let Some(at) = self.seen.windows(wanted.len()).position(|w| w == wanted.as_bytes()) {
                self.seen.drain(..at + wanted.len());
                return;
            }
            match self.read() {
                Message::Bytes(bytes) => self.seen.extend(bytes),
                other => panic!("{wanted} never came: {other:?}; {}", String::from_utf8_lossy(&self.seen)),
            }
        }
    }

    /// What the server says when the program ended.
    #[track_caller]
    pub fn read_exit(&mut self) -> Value {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "the exit is never told");
            match self.read() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Bytes(_) => {}
                Message::Closed(code) => panic!("closed with {code} before the exit was told"),
            }
        }
    }
}

/// The headers that ask for an upgrade.
pub fn upgrade(request: super::http::Request) -> super::http::Request {
    request
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}
