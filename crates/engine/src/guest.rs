//! A guest interpreter that waits for its program.

use std::os::fd::OwnedFd;

use rustix::net::{SendFlags, Shutdown, send, shutdown};
use sandstorm_agent::protocol::{Guest, Program};

/// A job up to this is taken by an empty socket as a whole or not at all.
const AT_ONCE: usize = 8 * 1024;

/// One that waits, and the agent's end of its side socket.
#[derive(Debug)]
pub(crate) struct WaitingGuest {
    pub(crate) number: u32,
    side: Option<OwnedFd>,
}

impl WaitingGuest {
    pub(crate) fn new(number: u32, side: Option<OwnedFd>) -> Self {
        Self { number, side }
    }

    /// One that only its agent speaks with.
    pub(crate) fn of_the_agent(self) -> Self {
        Self { side: None, ..self }
    }

    /// How it gets its program: from here where that can be done at once, so that it begins while its agent is told of it. Else
    /// the agent will. Only for a program with which its sandbox ends, in whatever way it is lost: nobody but this process
    /// knows of it yet. `untouched`: nothing was put into the sandbox before.
    pub(crate) fn prepare(self, program: &Program, untouched: bool) -> Given {
        let direct = self.side.filter(|_| program.last && !program.side_channel);
        let side_and_job = direct.map(|side| (side, sandstorm_agent::job(program, untouched)));
        match side_and_job.filter(|(_, job)| job.len() <= AT_ONCE) {
            Some((side, job)) => Given::FromHere(Job { number: self.number, side, job }),
            None => Given::ByTheAgent(self.number),
        }
    }
}

/// How a guest gets its program.
#[derive(Debug)]
pub(crate) enum Given {
    FromHere(Job),
    ByTheAgent(u32),
}

impl Given {
    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::FromHere(job) => job.number,
            Self::ByTheAgent(number) => *number,
        }
    }

    /// What the agent is told of it.
    pub(crate) fn guest(&self) -> Guest {
        match self {
            Self::FromHere(job) => Guest::Handed(job.number),
            Self::ByTheAgent(number) => Guest::Run(*number),
        }
    }
}

/// A program in the words of its guest.
#[derive(Debug)]
pub(crate) struct Job {
    number: u32,
    side: OwnedFd,
    job: Vec<u8>,
}

impl Job {
    /// `false`: the guest is gone, and has nothing of it.
    pub(crate) fn send(self) -> bool {
        match send(&self.side, &self.job, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(took) if took < self.job.len() => {
                // Half a job is none: it ends, and that is told as the end of the program.
                let _ = shutdown(&self.side, Shutdown::Both);
                true
            }
            sent => sent.is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use serde_bytes::ByteBuf;

    use super::*;

    fn program(last: bool, content: usize) -> Program {
        Program {
            argv: vec!["/usr/bin/python3".to_owned(), "main.py".to_owned()],
            last,
            files: vec![(ByteBuf::from("main.py"), ByteBuf::from(vec![b'#'; content]))],
            ..Program::default()
        }
    }

    #[test]
    fn a_small_last_program_is_handed_and_nothing_else() {
        let hand = |program: &Program| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let given = WaitingGuest::new(7, Some(ours.into())).prepare(program, true);
            let told = given.guest();
            if let Given::FromHere(job) = given {
                assert!(job.send());
            }
            let mut came = Vec::new();
            theirs.read_to_end(&mut came).unwrap();
            (told, came)
        };
        let small = program(true, 8);
        assert_eq!(hand(&small), (Guest::Handed(7), sandstorm_agent::job(&small, true)));
        assert_eq!(hand(&program(false, 8)), (Guest::Run(7), Vec::new()));
        assert_eq!(hand(&program(true, AT_ONCE)), (Guest::Run(7), Vec::new()));
        assert_eq!(hand(&Program { side_channel: true, ..program(true, 8) }), (Guest::Run(7), Vec::new()));
    }

    #[test]
    fn one_that_is_gone_is_given_nothing() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let given = WaitingGuest::new(7, Some(ours.into())).prepare(&program(true, 8), true);
        let Given::FromHere(job) = given else { panic!("it is to be sent from here") };
        assert!(!job.send());
        let unreachable = WaitingGuest::new(7, None).prepare(&program(true, 8), true);
        assert_eq!(unreachable.guest(), Guest::Run(7));
    }
}
