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

    /// Gives it its program where that can be done at once: so it begins while the agent is told of it. Else the agent will.
    /// Only for a program with which its sandbox ends, in whatever way it is lost: nobody but this process knows of it yet.
    /// `untouched`: nothing was put into the sandbox before.
    pub(crate) fn hand(self, program: &Program, untouched: bool) -> Guest {
        let direct = self.side.filter(|_| program.last && !program.side_channel);
        let took = direct.and_then(|side| {
            let job = sandstorm_agent::job(program, untouched);
            let fits = job.len() <= AT_ONCE;
            let took = fits.then(|| send(&side, &job, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok())??;
            if took < job.len() {
                // Half a job is none: it ends, and that is told as the end of the program.
                let _ = shutdown(&side, Shutdown::Both);
            }
            Some(took)
        });
        match took {
            Some(_) => Guest::Handed(self.number),
            None => Guest::Run(self.number),
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
            let how = WaitingGuest::new(7, Some(ours.into())).hand(program, true);
            let mut came = Vec::new();
            theirs.read_to_end(&mut came).unwrap();
            (how, came)
        };
        let small = program(true, 8);
        assert_eq!(hand(&small), (Guest::Handed(7), sandstorm_agent::job(&small, true)));
        assert_eq!(hand(&program(false, 8)), (Guest::Run(7), Vec::new()));
        assert_eq!(hand(&program(true, AT_ONCE)), (Guest::Run(7), Vec::new()));
        assert_eq!(hand(&Program { side_channel: true, ..program(true, 8) }), (Guest::Run(7), Vec::new()));
    }

    #[test]
    fn one_that_is_gone_was_given_nothing() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(WaitingGuest::new(7, Some(ours.into())).hand(&program(true, 8), true), Guest::Run(7));
        assert_eq!(WaitingGuest::new(7, None).hand(&program(true, 8), true), Guest::Run(7));
    }
}
