//! A guest interpreter that waits for its program.

mod near;

use std::os::fd::OwnedFd;

use sandstorm_agent::Giver;
use sandstorm_agent::protocol::{Guest, PayloadWalls, Program};
use sandstorm_agent_client::AgentClient;

pub(crate) use self::near::{Heard, Near};

/// A job up to this is taken by an empty socket as a whole or not at all.
const AT_ONCE: usize = 8 * 1024;

/// One that waits, and the agent's end of its side socket.
#[derive(Debug)]
pub(crate) struct WaitingGuest {
    pub(crate) number: u32,
    side: Option<OwnedFd>,
    near: Option<Near>,
}

impl WaitingGuest {
    pub(crate) fn new(number: u32, side: Option<OwnedFd>) -> Self {
        Self { number, side, near: None }
    }

    /// One that this process can speak with, if its agent lent what that takes.
    pub(crate) fn come_near(mut self, agent: &AgentClient, walls: PayloadWalls) -> Self {
        if let (Some(side), Some(outlets)) = (self.side.take(), agent.take_outlets(self.number)) {
            self.near = Near::new(side, outlets, walls).ok();
        }
        self
    }

    /// One that only its agent speaks with.
    pub(crate) fn of_the_agent(self) -> Self {
        Self::new(self.number, None)
    }

    /// How it gets its program: from here where that can be done at once. Else the agent will. Only for a program with which
    /// its sandbox ends, in whatever way it is lost: nobody but this process knows of it yet. `untouched`: nothing was put
    /// into the sandbox before.
    pub(crate) fn prepare(self, program: &Program, untouched: bool) -> Given {
        let near = self.near.filter(|_| program.last && !program.side_channel);
        let near_and_job = near.map(|near| (near, sandstorm_agent::job(program, Giver::Host { untouched })));
        match near_and_job.filter(|(_, job)| job.len() <= AT_ONCE) {
            Some((near, job)) => Given::FromHere(Job { number: self.number, near, job }),
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
    pub(crate) number: u32,
    near: Near,
    job: Vec<u8>,
}

impl Job {
    pub(crate) fn walls(&self) -> &PayloadWalls {
        self.near.walls()
    }

    /// `None`: the guest is gone, and has nothing of it.
    pub(crate) fn send(self) -> Option<Near> {
        self.near.send(&self.job).then_some(self.near)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use serde_bytes::ByteBuf;

    use super::near::tests::played;
    use super::*;

    fn program(last: bool, content: usize) -> Program {
        Program {
            argv: vec!["/usr/bin/python3".to_owned(), "main.py".to_owned()],
            last,
            files: vec![(ByteBuf::from("main.py"), ByteBuf::from(vec![b'#'; content]))],
            ..Program::default()
        }
    }

    fn waiting() -> (WaitingGuest, UnixStream) {
        let (near, played) = played();
        (WaitingGuest { number: 7, side: None, near: Some(near) }, played.side)
    }

    #[tokio::test]
    async fn a_small_last_program_is_handed_and_nothing_else() {
        let hand = |program: &Program| {
            let (guest, mut theirs) = waiting();
            let given = guest.prepare(program, true);
            let told = given.guest();
            if let Given::FromHere(job) = given {
                assert!(job.send().is_some());
            }
            let mut came = Vec::new();
            theirs.read_to_end(&mut came).unwrap();
            (told, came)
        };
        let small = program(true, 8);
        let job = sandstorm_agent::job(&small, Giver::Host { untouched: true });
        assert_eq!(hand(&small), (Guest::Handed(7), job));
        assert_eq!(hand(&program(false, 8)), (Guest::Run(7), Vec::new()));
        assert_eq!(hand(&program(true, AT_ONCE)), (Guest::Run(7), Vec::new()));
        assert_eq!(hand(&Program { side_channel: true, ..program(true, 8) }), (Guest::Run(7), Vec::new()));
    }

    #[tokio::test]
    async fn one_that_is_gone_is_given_nothing() {
        let (guest, theirs) = waiting();
        drop(theirs);
        let Given::FromHere(job) = guest.prepare(&program(true, 8), true) else {
            panic!("it is to be sent from here")
        };
        assert!(job.send().is_none());
        let far = WaitingGuest::new(7, None).prepare(&program(true, 8), true);
        assert_eq!(far.guest(), Guest::Run(7));
    }
}
