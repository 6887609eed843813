//! A guest that this process speaks with itself, for a moment.
//!
//! Every process on the way of a run has to be woken, which on an idle machine takes longer than what it then does. So the
//! agent is left out of short programs: the guest has its program from here, says how it ends on its side socket, and what
//! it wrote is in its pipes by then. Nothing is taken before that, so that of a longer program the agent finds everything.
//!
//! All of it is the payload's to write to: what comes is bounded, and nothing here ever waits for it.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::RecvFlags;
use sandstorm_agent::Word;
use sandstorm_agent::protocol::{PayloadWalls, StartFailure, Stream};
use sandstorm_agent_client::socket::Socket;
use sandstorm_agent_client::{Outlets, TaskEvent};

/// How long a program may take until its agent follows it.
const MOMENT: Duration = Duration::from_millis(5);

/// What is read of a pipe at once. Most programs write less.
const PIECE: usize = 4 * 1024;

/// What a pipe holds at most, unless somebody with rights made it larger.
const MOST: usize = 1 << 20;

/// The read position of what has none.
const NO_OFFSET: u64 = u64::MAX;

/// Such a guest.
#[derive(Debug)]
pub(crate) struct Near {
    side: Socket,
    outlets: Outlets,
    walls: PayloadWalls,
}

/// What was heard of a program.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It is over; this is all that happened.
    Over(Vec<TaskEvent>),
    NotBegun(StartFailure),
    /// Nothing that ends it. Nothing was taken.
    GoesOn,
}

impl Near {
    /// Of a guest that has not written anything. Fails where the kernel cannot read a pipe without waiting.
    pub(crate) fn new(side: OwnedFd, outlets: Outlets, walls: PayloadWalls) -> io::Result<Self> {
        let near = Self { side: Socket::new(side)?, outlets, walls };
        near.written()?;
        Ok(near)
    }

    pub(crate) fn walls(&self) -> &PayloadWalls {
        &self.walls
    }

    /// Sends a job. `false`: the guest is gone, and nothing of it began. Half a job is none: its guest ends over it.
    pub(crate) fn send(&self, job: &[u8]) -> bool {
        let sent = self.side.try_write(job).is_ok_and(|took| took == job.len());
        if !sent {
            let _ = rustix::net::shutdown(&self.side, rustix::net::Shutdown::Both);
        }
        sent
    }

    /// Listens for a moment.
    pub(crate) async fn listen(&self) -> Heard {
        let word = tokio::time::timeout(MOMENT, self.word()).await;
        match word.ok().and_then(Result::ok).flatten() {
            Some(Word::NotBegun(failure)) => Heard::NotBegun(failure),
            Some(Word::Ended { ending, usage }) => match self.written() {
                Ok(written) => {
                    let written = [Stream::Output, Stream::Error].into_iter().zip(written);
                    let output = written.filter(|(_, bytes)| !bytes.is_empty());
                    let output = output.map(|(stream, bytes)| TaskEvent::Output { stream, bytes });
                    Heard::Over(output.chain([TaskEvent::Exited { ending, usage }]).collect())
                }
                Err(_) => Heard::GoesOn,
            },
            None => Heard::GoesOn,
        }
    }

    /// The first thing that the guest says, if it is a word. It stays where it is.
    async fn word(&self) -> io::Result<Option<Word>> {
        self.side
            .read(|side| {
                let mut bytes = [0; Word::LONGEST];
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                let (_, length) = rustix::net::recv(side, &mut bytes[..], flags)?;
                Ok((Word::parse(&bytes[..length]), false))
            })
            .await
    }

    /// What there is in its pipes.
    fn written(&self) -> rustix::io::Result<[Bytes; 2]> {
        let [output, error] = self.outlets.ends();
        Ok([read_all(output)?, read_all(error)?])
    }
}

/// Reads until nothing is left. Who goes on writing into it is not waited for.
fn read_all(pipe: &OwnedFd) -> rustix::io::Result<Bytes> {
    let mut first = [0; PIECE];
    let length = read_now(pipe, &mut first)?;
    if length < PIECE {
        return Ok(Bytes::copy_from_slice(&first[..length]));
    }
    let mut all = first.to_vec();
    let mut piece = vec![0; 16 * PIECE];
    while all.len() <= MOST {
        match read_now(pipe, &mut piece)? {
            0 => break,
            n => all.extend_from_slice(&piece[..n]),
        }
    }
    Ok(all.into())
}

/// Reads what is there, and nothing if that is nothing. The other holders of the pipe could have it wait: this call does not.
fn read_now(pipe: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        let into = &mut [IoSliceMut::new(bytes)];
        match rustix::io::preadv2(pipe.as_fd(), into, NO_OFFSET, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            read => return read,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use rustix::pipe::PipeFlags;
    use sandstorm_agent::protocol::Ending;

    use super::*;

    /// The other ends of a guest.
    pub(crate) struct Played {
        pub(crate) side: UnixStream,
        output: File,
        error: File,
    }

    pub(crate) fn played() -> (Near, Played) {
        let (ours, side) = UnixStream::pair().unwrap();
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let ((output, theirs), (error, their_errors)) = (pipe(), pipe());
        let walls =
            PayloadWalls { uid: 1000, gid: 1000, capabilities: 0, no_new_privs: true, seccomp_mode: 2 };
        let outlets = Outlets::checked(vec![output, error]).unwrap();
        let near = Near::new(ours.into(), outlets, walls).unwrap();
        (near, Played { side, output: theirs.into(), error: their_errors.into() })
    }

    fn last_word(status: u8) -> Vec<u8> {
        let mut word = vec![0, 0, 0, 0, status];
        word.extend([0; 24]);
        word
    }

    fn output_of(heard: &Heard) -> (Vec<u8>, Vec<u8>, Option<Ending>) {
        let Heard::Over(story) = heard else { panic!("{heard:?}") };
        let (mut output, mut errors, mut end) = (Vec::new(), Vec::new(), None);
        for event in story {
            match event {
                TaskEvent::Output { stream: Stream::Output, bytes } => output.extend_from_slice(bytes),
                TaskEvent::Output { bytes, .. } => errors.extend_from_slice(bytes),
                TaskEvent::Exited { ending, .. } => end = Some(*ending),
                other => panic!("{other:?}"),
            }
        }
        (output, errors, end)
    }

    #[tokio::test]
    async fn what_was_written_before_the_last_word_is_heard_with_it() {
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, 16 * PIECE] {
            let (near, mut played) = played();
            played.output.write_all(&vec![b'o'; size]).unwrap();
            played.error.write_all(b"e").unwrap();
            played.side.write_all(&last_word(3)).unwrap();
            let heard = near.listen().await;
            assert_eq!(output_of(&heard), (vec![b'o'; size], b"e".to_vec(), Some(Ending::Code(3))), "{size}");
        }
    }

    #[tokio::test]
    async fn of_one_that_goes_on_nothing_is_taken() {
        let (near, mut played) = played();
        played.output.write_all(b"early").unwrap();
        assert!(matches!(near.listen().await, Heard::GoesOn));
        // Half a word is none.
        played.side.write_all(&last_word(0)[..7]).unwrap();
        assert!(matches!(near.listen().await, Heard::GoesOn));
        let (mut word, mut bytes) = ([0; 64], [0; 64]);
        assert_eq!(rustix::net::recv(&near.side, &mut word[..], RecvFlags::DONTWAIT).unwrap().1, 7);
        assert_eq!(read_now(&near.outlets.ends()[0], &mut bytes), Ok(5));
        // Neither is its end without one.
        drop(played);
        assert!(matches!(near.listen().await, Heard::GoesOn));
    }

    #[tokio::test]
    async fn a_job_that_failed_says_why() {
        let (near, mut played) = played();
        played.side.write_all(&[9, 0, 0, 0, 28, 0, 0, 0, b'f', b'i', b'l', b'e', b's']).unwrap();
        let heard = near.listen().await;
        let Heard::NotBegun(failure) = heard else { panic!("{heard:?}") };
        assert_eq!((failure.step.as_str(), failure.errno), ("files", 28));
    }

    #[tokio::test]
    async fn nobody_can_have_this_process_wait_or_read_on() {
        // The pipe waits by itself, as one who shares it could have it do.
        let (near, mut played) = played();
        for outlet in near.outlets.ends() {
            rustix::io::ioctl_fionbio(outlet, false).unwrap();
        }
        played.side.write_all(&last_word(0)).unwrap();
        assert_eq!(output_of(&near.listen().await), (Vec::new(), Vec::new(), Some(Ending::Code(0))));
        // Somebody writes for ever.
        let writer = std::thread::spawn(move || while played.output.write_all(&[0; 4096]).is_ok() {});
        let [output, _] = near.written().unwrap();
        assert!(output.len() <= MOST + 16 * PIECE, "{}", output.len());
        drop(near);
        writer.join().unwrap();
    }

    #[test]
    fn outlets_are_two_pipes() {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap().0;
        let file = || OwnedFd::from(File::open("/dev/zero").unwrap());
        assert!(Outlets::checked(vec![pipe(), pipe()]).is_some());
        for wrong in [vec![], vec![pipe()], vec![pipe(), file()], vec![pipe(), pipe(), pipe()]] {
            assert!(Outlets::checked(wrong).is_none());
        }
    }
}
