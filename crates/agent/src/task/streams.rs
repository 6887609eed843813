//! The pipes, terminal and socket of a task.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::child::Stdio;
use crate::guest::Pipes;
use crate::protocol::{CHUNK, Init, InputStream, MESSAGE, PIECE_COST, Stream, Task, TerminalSize, WINDOW};
use crate::terminal;

pub(super) struct Streams {
    pub(super) child: Stdio,
    pub(super) outputs: Vec<Output>,
    pub(super) inputs: Vec<Input>,
    pub(super) terminal: bool,
}

impl Streams {
    pub(super) fn open(init: &Init, task: &Task) -> Result<Self, Errno> {
        let program = match task {
            Task::Program(program) => Some(program),
            Task::File(_) | Task::Connect { .. } => None,
        };
        let mut streams = match program.and_then(|p| p.terminal.map(|size| (p.root, size))) {
            Some((root, size)) => Self::on_terminal(if root { 0 } else { init.uid }, size)?,
            None => Self::on_pipes()?,
        };
        if program.is_some_and(|p| p.side_channel) {
            streams.add_side_channel()?;
        }
        Ok(streams)
    }

    fn on_pipes() -> Result<Self, Errno> {
        let (stdin_read, stdin_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout_read, stdout_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr_read, stderr_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // A program opens `/dev/stdin` and its like anew, as its own user; the pipe is the agent's.
        for pipe in [&stdin_read, &stdout_write, &stderr_write] {
            rustix::fs::fchmod(pipe, rustix::fs::Mode::from_raw_mode(0o666))?;
        }
        Ok(Self {
            child: Stdio { input: stdin_read, output: stdout_write, error: stderr_write, side: None },
            outputs: vec![Output::new(Stream::Output, stdout_read), Output::new(Stream::Error, stderr_read)],
            inputs: vec![Input::new(InputStream::Main, stdin_write)],
            terminal: false,
        })
    }

    /// Those of a guest, which made them itself. A side channel is added when its program has begun.
    pub(super) fn of_guest(pipes: Pipes) -> (Vec<Output>, Vec<Input>) {
        let outputs =
            vec![Output::new(Stream::Output, pipes.output), Output::new(Stream::Error, pipes.error)];
        (outputs, vec![Input::new(InputStream::Main, pipes.input)])
    }

    fn on_terminal(owner: u32, size: TerminalSize) -> Result<Self, Errno> {
        let terminal = terminal::open(owner, size)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&terminal.controller, 4)?;
        Ok(Self {
            child: Stdio {
                input: rustix::io::fcntl_dupfd_cloexec(&terminal.peer, 4)?,
                output: rustix::io::fcntl_dupfd_cloexec(&terminal.peer, 4)?,
                error: terminal.peer,
                side: None,
            },
            outputs: vec![Output::new(Stream::Output, terminal.controller)],
            inputs: vec![Input::new(InputStream::Main, copy)],
            terminal: true,
        })
    }

    fn add_side_channel(&mut self) -> Result<(), Errno> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&ours, 4)?;
        self.outputs.push(Output::new(Stream::Side, ours));
        self.inputs.push(Input::new(InputStream::Side, copy));
        self.child.side = Some(theirs);
        Ok(())
    }
}

thread_local! {
    /// Room for one piece of output, had once: most pieces are small, and room for a large one is dear to get each time.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gets that room.
pub(crate) fn prepare() {
    ROOM.with_borrow_mut(|room| room.reserve(CHUNK));
}

/// Reads at most so much, and no more than [`CHUNK`]. Nothing is the end.
pub(super) fn read_piece(fd: &OwnedFd, most: usize) -> Result<Vec<u8>, Errno> {
    ROOM.with_borrow_mut(|room| {
        room.reserve(CHUNK);
        let (piece, _) = rustix::io::read(fd, &mut room.spare_capacity_mut()[..most.min(CHUNK)])?;
        Ok(piece.to_vec())
    })
}

/// The way to the side channel of a guest's program.
pub(super) fn side_input(socket: &OwnedFd) -> Result<Input, Errno> {
    Ok(Input::new(InputStream::Side, rustix::io::fcntl_dupfd_cloexec(socket, 4)?))
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) stream: Stream,
    pub(super) fd: Option<OwnedFd>,
    pub(super) credit: u32,
    /// Nothing was there to read at the last try.
    pub(super) empty: bool,
}

impl Output {
    pub(super) fn new(stream: Stream, fd: OwnedFd) -> Self {
        Self { stream, fd: Some(fd), credit: WINDOW, empty: false }
    }

    /// Whether the window has room for a piece.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > PIECE_COST
    }
}

#[derive(Debug)]
pub(super) struct Input {
    pub(super) to: InputStream,
    pub(super) fd: Option<OwnedFd>,
    pub(super) pending: VecDeque<u8>,
    pub(super) closing: bool,
    /// Bytes that the program has or will get.
    pub(super) taken: u64,
    /// A message that is not whole yet.
    staged: Vec<u8>,
    /// Bytes that came while others were still to be written, of whole messages and of the staged one: their credit
    /// waits until those are gone, so that no more than a message and a window are ever here.
    owed: u32,
    owed_staged: u32,
}

impl Input {
    fn new(to: InputStream, fd: OwnedFd) -> Self {
        Self {
            to,
            fd: Some(fd),
            pending: VecDeque::new(),
            closing: false,
            taken: 0,
            staged: Vec::new(),
            owed: 0,
            owed_staged: 0,
        }
    }

    /// Takes bytes in.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
        self.taken = self.taken.saturating_add(bytes.len() as u64);
    }

    /// The program takes no more: what waits for it will never reach it. Gives its length.
    pub(super) fn lose(&mut self) -> usize {
        self.fd = None;
        let lost = self.pending.len();
        self.taken = self.taken.saturating_sub(lost as u64);
        lost
    }

    /// Takes bytes of a message in; what comes back is credit. `Err`: it is longer than any message may be.
    pub(super) fn stage(&mut self, bytes: &[u8]) -> Result<u32, Errno> {
        if self.staged.len() + bytes.len() > MESSAGE {
            return Err(Errno::MSGSIZE);
        }
        self.staged.extend_from_slice(bytes);
        if self.pending.is_empty() {
            return Ok(bytes.len() as u32);
        }
        self.owed_staged = self.owed_staged.saturating_add(bytes.len() as u32);
        Ok(0)
    }

    /// The staged message is whole.
    pub(super) fn commit(&mut self) {
        self.pending.extend(self.staged.drain(..));
        self.owed = self.owed.saturating_add(std::mem::take(&mut self.owed_staged));
    }

    /// Credit that is due now that bytes were written.
    pub(super) fn settle(&mut self, written: usize) -> u32 {
        match self.to {
            InputStream::Main => written as u32,
            InputStream::Side if self.pending.is_empty() => {
                std::mem::take(&mut self.owed).saturating_add(std::mem::take(&mut self.owed_staged))
            }
            InputStream::Side => 0,
        }
    }

    /// The host is gone and half a message with it. Gives the bytes whose credit the next host does not have.
    pub(super) fn forget_half(&mut self) -> u32 {
        self.staged = Vec::new();
        self.owed_staged = 0;
        match self.to {
            InputStream::Main => u32::try_from(self.pending.len()).unwrap_or(u32::MAX),
            InputStream::Side => self.owed,
        }
    }

    /// Lets the program see the end. A side channel is one socket for both ways, so closing this descriptor of it
    /// would not be enough.
    pub(super) fn finish(&mut self) {
        if let (Some(fd), InputStream::Side) = (self.fd.take(), self.to) {
            let _ = rustix::net::shutdown(&fd, rustix::net::Shutdown::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side() -> Input {
        let null = std::fs::File::open("/dev/null").unwrap();
        Input::new(InputStream::Side, null.into())
    }

    #[test]
    fn half_a_message_never_reaches_the_program() {
        let mut input = side();
        assert_eq!(input.stage(b"whole").unwrap(), 5);
        input.commit();
        // Others wait to be written, so the credit for these waits too.
        assert_eq!(input.stage(b"second").unwrap(), 0);
        input.commit();
        assert_eq!(input.stage(b"half").unwrap(), 0);
        assert_eq!(input.forget_half(), 6);
        assert_eq!(input.pending, b"wholesecond");
        input.pending.clear();
        assert_eq!(input.settle(11), 6);
        assert_eq!(input.forget_half(), 0);
    }

    #[test]
    fn a_message_has_a_longest() {
        let mut input = side();
        for _ in 0..MESSAGE / 1024 {
            input.stage(&[0; 1024]).unwrap();
        }
        assert_eq!(input.stage(&[0]), Err(Errno::MSGSIZE));
    }
}
