//! A name server whose answers the test chooses, and who asked it what.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// What is answered for a name and a type of address.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Address(IpAddr),
    /// Another name, and its address in the same answer.
    Alias(String, IpAddr),
}

#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The last answer stays.
    answers: Mutex<HashMap<String, VecDeque<Answer>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn set(&self, name: &str, answers: &[Answer]) {
        self.answers.lock().unwrap().insert(name.to_owned(), answers.iter().cloned().collect());
    }

    pub(crate) fn is(&self, name: &str, address: &str) {
        self.set(name, &[Answer::Address(address.parse().unwrap())]);
    }

    /// Every name that was asked for since the last time, each once.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        let mut names = std::mem::take(&mut *self.asked.lock().unwrap());
        names.sort();
        names.dedup();
        names
    }

    pub(super) async fn serve(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let socket = UdpSocket::bind((super::NAME_SERVER, 53)).await.unwrap();
        let names = Arc::clone(self);
        tasks.spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query).await {
                let answer = names.answer(&query[..length]);
                let _ = socket.send_to(&answer, client).await;
            }
        });
    }

    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let (name, end) = question(query);
        let kind = u16::from_be_bytes([query[end], query[end + 1]]);
        self.asked.lock().unwrap().push(name.clone());
        let records = self.records(&name, kind);
        let mut reply = query[..end + 4].to_vec();
        reply[2..4].copy_from_slice(&[0x81, 0x80]);
        reply[6..12].copy_from_slice(&[0, records.len() as u8, 0, 0, 0, 0]);
        reply.extend(records.concat());
        reply
    }

    /// An answer is of the family of its address: for the other family the name exists and has none.
    fn records(&self, name: &str, kind: u16) -> Vec<Vec<u8>> {
        let mut all = self.answers.lock().unwrap();
        let Some(answers) = all.get_mut(name) else { return Vec::new() };
        let family = |answer: &Answer| match answer {
            Answer::Address(IpAddr::V4(_)) | Answer::Alias(_, IpAddr::V4(_)) => 1,
            Answer::Address(IpAddr::V6(_)) | Answer::Alias(_, IpAddr::V6(_)) => 28,
        };
        let Some(answer) = answers.front().filter(|answer| family(answer) == kind).cloned() else {
            return Vec::new();
        };
        if answers.len() > 1 {
            answers.pop_front();
        }
        // A pointer to the question's name stands for it.
        match answer {
            Answer::Address(address) => vec![address_record(&[0xc0, 12], address)],
            Answer::Alias(other, address) => {
                vec![record(&[0xc0, 12], 5, &labels(&other)), address_record(&labels(&other), address)]
            }
        }
    }
}

fn question(query: &[u8]) -> (String, usize) {
    let (mut labels, mut place) = (Vec::new(), 12);
    while query[place] != 0 {
        let length = usize::from(query[place]);
        labels.push(String::from_utf8_lossy(&query[place + 1..][..length]).to_lowercase());
        place += length + 1;
    }
    (labels.join("."), place + 1)
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        name.split('.').flat_map(|label| [&[label.len() as u8][..], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

fn address_record(name: &[u8], address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => record(name, 1, &address.octets()),
        IpAddr::V6(address) => record(name, 28, &address.octets()),
    }
}

fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    [name, &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 0], &length, data].concat()
}
