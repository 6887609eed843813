//! Handing a program to a guest, and hearing whether it began.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use super::{Word, failure};
use crate::protocol::{Program, StartFailure};

/// The flag of a job that says: descriptor 3 stays open, as the program's side channel.
const SIDE_CHANNEL: u8 = 1;

/// The flag of a job that says: the guest tells the status of its program before it is taken apart.
const SAY_END: u8 = 2;

/// The flag of a job that says: in its working directory and in its home there is nothing but what comes with it.
const UNTOUCHED: u8 = 4;

/// The flag of a job that says: that the program begins is said together with how it ends, and no sooner.
const QUIET: u8 = 8;

/// Longest word about a job.
const WORD: usize = 4096;

/// Who gives a guest its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Giver {
    /// It hears that the program begins and goes on from there.
    Agent,
    /// It wants to be woken once. `untouched`: nothing was put into the sandbox before.
    Host { untouched: bool },
}

/// A job on its way to a guest.
#[derive(Debug)]
pub(crate) struct Handing {
    side: OwnedFd,
    job: Vec<u8>,
    /// How much of it the guest's socket took.
    sent: usize,
    /// What it answered so far.
    word: Vec<u8>,
    /// Whether the program is taken to run already, so that silence is no failure.
    presumed: bool,
}

/// What a guest said to its job.
#[derive(Debug)]
pub(crate) enum Heard {
    Nothing,
    /// It is about to run the program. From now on the socket is the program's, if it has a side channel.
    Begun,
    /// Its program runs and has spoken for it. Nothing that comes from there counts any more: the socket is shut down, and
    /// the launcher tells how the guest ends.
    Silenced,
    Failed(StartFailure),
}

impl Handing {
    /// Sends as much of the job as the socket takes. `None`: the guest is gone, and has none of it.
    pub(crate) fn new(program: &Program, side: OwnedFd) -> Option<Self> {
        let job = job(program, Giver::Agent);
        let sent = match rustix::io::write(&side, &job) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return None,
        };
        let mut handing = Self { side, job, sent, word: Vec::new(), presumed: false };
        handing.send();
        Some(handing)
    }

    /// Of a job that the guest was given by the host.
    pub(crate) fn handed(side: OwnedFd) -> Self {
        Self { side, job: Vec::new(), sent: 0, word: Vec::new(), presumed: true }
    }

    pub(crate) fn side(&self) -> &OwnedFd {
        &self.side
    }

    /// The socket, when the job is done.
    pub(crate) fn into_side(self) -> OwnedFd {
        self.side
    }

    /// Whether some of the job has to wait for room.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.job.len()
    }

    fn send(&mut self) {
        while self.is_sending() {
            match rustix::io::write(&self.side, &self.job[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // It is gone; reading says so, after its last words.
                Err(_) => self.sent = self.job.len(),
            }
        }
        self.job = Vec::new();
        self.sent = 0;
    }

    /// Sends what is left and listens. Not a byte is taken beyond the answer: what follows is the program's.
    pub(crate) fn advance(&mut self) -> Heard {
        self.send();
        if self.presumed {
            return self.hear_presumed();
        }
        loop {
            let length = self.word.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
            let whole = match length {
                None => 4,
                Some(0) => return Heard::Begun,
                Some(length @ 4..=WORD) => 4 + length,
                Some(_) => return Heard::Failed(failure("guest", Errno::PROTO.raw_os_error())),
            };
            if self.word.len() == whole {
                let errno = self.word[4..].first_chunk().map_or(0, |errno| i32::from_le_bytes(*errno));
                let step = String::from_utf8_lossy(&self.word[8..]);
                return Heard::Failed(failure(&step, errno));
            }
            let mut buffer = [0; WORD];
            match rustix::io::read(&self.side, &mut buffer[..whole - self.word.len()]) {
                Ok(n) if n > 0 => self.word.extend_from_slice(&buffer[..n]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Heard::Nothing,
                Ok(_) | Err(_) => return Heard::Failed(failure("guest", Errno::PIPE.raw_os_error())),
            }
        }
    }

    /// Listens to a guest whose program may run by now and write to the socket, too. A guest sends each word as a whole:
    /// what is no word by itself will never become one, and to wait for the rest would be to wait for ever.
    fn hear_presumed(&mut self) -> Heard {
        let mut bytes = [0; 4 + WORD + 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = match rustix::net::recv(&self.side, &mut bytes[..], flags) {
            Ok((_, 0)) => return Heard::Begun,
            Ok((_, length)) => &bytes[..length],
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            // It ended, or gave its word up: that it began was known before.
            Err(_) => return Heard::Begun,
        };
        match (Word::parse(peeked), peeked) {
            (Some(Word::NotBegun(failure)), _) => Heard::Failed(failure),
            // How it ends stays where it is.
            (Some(Word::Ended { .. }), _) | (None, [0, 0, 0, 0]) => {
                match rustix::io::read(&self.side, &mut [0; 4]) {
                    Ok(4) => Heard::Begun,
                    _ => self.silence(),
                }
            }
            (None, _) => self.silence(),
        }
    }

    fn silence(&self) -> Heard {
        // Whoever else holds this end would keep the guest waiting for somebody who ends it.
        let _ = rustix::net::shutdown(&self.side, Shutdown::Both);
        Heard::Silenced
    }
}

/// A program in the words of a guest: its length, then arguments, variables, working directory, flags and files.
pub fn job(program: &Program, giver: Giver) -> Vec<u8> {
    let mut job = vec![0; 4];
    number(&mut job, program.argv.len());
    for word in &program.argv {
        string(&mut job, word.as_bytes());
    }
    number(&mut job, program.env.len());
    for (name, value) in &program.env {
        string(&mut job, name.as_bytes());
        string(&mut job, value.as_bytes());
    }
    string(&mut job, program.cwd.as_bytes());
    let manner = match (program.side_channel, program.last) {
        (true, _) => SIDE_CHANNEL,
        // Nothing of it may go on afterwards, so that its word is as good as its end.
        (false, true) => SAY_END,
        (false, false) => 0,
    };
    job.push(
        manner
            | match giver {
                Giver::Agent => 0,
                Giver::Host { untouched: false } => QUIET,
                Giver::Host { untouched: true } => QUIET | UNTOUCHED,
            },
    );
    number(&mut job, program.files.len());
    for (path, content) in &program.files {
        string(&mut job, path);
        string(&mut job, content);
    }
    let length = job.len() - 4;
    job[..4].copy_from_slice(&(length as u32).to_le_bytes());
    job
}

/// A program came in one frame, so nothing in it is longer than that.
fn number(job: &mut Vec<u8>, number: usize) {
    job.extend((number as u32).to_le_bytes());
}

fn string(job: &mut Vec<u8>, bytes: &[u8]) {
    number(job, bytes.len());
    job.extend_from_slice(bytes);
}
