//! One task: a child process with its streams.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use sandstorm_sys::fork::Forked;
use sandstorm_sys::process::Reaped;
use serde_bytes::ByteBuf;

use crate::child::{self, Status, Stdio};
use crate::frame::Decoder;
use crate::protocol::{
    CHUNK, Ending, FromAgent, Init, InputStream, StartFailure, Stream, Task, TaskId, TaskUsage, TerminalSize,
    WINDOW,
};
use crate::{connect, files, serve, terminal};

/// A descriptor of a task that the loop polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Status,
    Output(Stream),
    Input(InputStream),
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Working,
    /// The process ended and everything that it wrote was passed on.
    Over,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: i32,
    id: TaskId,
    status: Option<OwnedFd>,
    statuses: Decoder,
    started: bool,
    outputs: Vec<Output>,
    inputs: Vec<Input>,
    terminal: bool,
    /// Nothing else outlives it.
    last: bool,
    ended: Option<Reaped>,
}

#[derive(Debug)]
struct Output {
    stream: Stream,
    fd: Option<OwnedFd>,
    credit: u32,
    /// Nothing was there to read at the last try.
    empty: bool,
}

#[derive(Debug)]
struct Input {
    to: InputStream,
    fd: Option<OwnedFd>,
    pending: VecDeque<u8>,
    closing: bool,
}

/// Forks the child of a task.
pub(crate) fn start(init: &Init, task: &Task) -> Result<Running, StartFailure> {
    let fail = |step: &str| {
        let step = step.to_owned();
        move |errno: Errno| StartFailure { step, errno: errno.raw_os_error() }
    };
    let streams = Streams::open(init, task).map_err(fail("streams"))?;
    let (status_read, status_write) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(fail("status pipe"))?;
    let forked = sandstorm_sys::fork::fork()
        .map_err(|e| fail("fork")(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
    let pid = match forked {
        Forked::Parent { pid } => pid,
        Forked::Child => {
            drop(status_read);
            let stdio = streams.child;
            match task {
                Task::Program(program) => child::become_program(init, program, stdio, status_write),
                Task::File(work) => child::become_helper(init, stdio, status_write, || files::perform(work)),
                Task::Connect { port } => {
                    child::become_helper(init, stdio, status_write, || connect::relay(*port))
                }
            }
        }
    };
    let Streams { child: _, outputs, inputs, terminal } = streams;
    for fd in outputs.iter().filter_map(|o| o.fd.as_ref()).chain(inputs.iter().filter_map(|i| i.fd.as_ref()))
    {
        rustix::io::ioctl_fionbio(fd, true).map_err(fail("streams"))?;
    }
    rustix::io::ioctl_fionbio(&status_read, true).map_err(fail("status pipe"))?;
    Ok(Running {
        pid,
        id: 0,
        status: Some(status_read),
        statuses: Decoder::default(),
        started: false,
        outputs,
        inputs,
        terminal,
        last: matches!(task, Task::Program(program) if program.last),
        ended: None,
    })
}

struct Streams {
    child: Stdio,
    outputs: Vec<Output>,
    inputs: Vec<Input>,
    terminal: bool,
}

impl Streams {
    fn open(init: &Init, task: &Task) -> Result<Self, Errno> {
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

impl Output {
    fn new(stream: Stream, fd: OwnedFd) -> Self {
        Self { stream, fd: Some(fd), credit: WINDOW, empty: false }
    }
}

impl Input {
    fn new(to: InputStream, fd: OwnedFd) -> Self {
        Self { to, fd: Some(fd), pending: VecDeque::new(), closing: false }
    }

    /// Lets the program see the end. A side channel is one socket for both ways, so closing this descriptor of it
    /// would not be enough.
    fn finish(&mut self) {
        if let (Some(fd), InputStream::Side) = (self.fd.take(), self.to) {
            let _ = rustix::net::shutdown(&fd, rustix::net::Shutdown::Write);
        }
    }
}

impl Running {
    pub(crate) fn named(mut self, id: TaskId) -> Self {
        self.id = id;
        self
    }

    /// Which descriptors to poll, and for what. `roomy`: there is space for more output on the way to the host.
    pub(crate) fn interests(&self, roomy: bool) -> Vec<(Port, BorrowedFd<'_>, PollFlags)> {
        let mut interests = Vec::with_capacity(4);
        if let Some(status) = &self.status {
            interests.push((Port::Status, status.as_fd(), PollFlags::IN));
        }
        // While output waits for credit, the side channel waits too, or it would overtake it.
        let stuck = self.outputs.iter().any(|o| o.stream != Stream::Side && o.fd.is_some() && o.credit == 0);
        for output in &self.outputs {
            let waits = output.stream == Stream::Side && stuck;
            if let (Some(fd), true) = (&output.fd, roomy && output.credit > 0 && !waits) {
                interests.push((Port::Output(output.stream), fd.as_fd(), PollFlags::IN));
            }
        }
        for input in &self.inputs {
            if let (Some(fd), false) = (&input.fd, input.pending.is_empty()) {
                interests.push((Port::Input(input.to), fd.as_fd(), PollFlags::OUT));
            }
        }
        interests
    }

    /// Moves bytes on a descriptor that became ready.
    pub(crate) fn advance(&mut self, port: Port) -> Vec<FromAgent> {
        match port {
            Port::Status => self.read_status(),
            Port::Output(Stream::Side) => self.read_side(),
            Port::Output(stream) => self.read_output(stream).into_iter().collect(),
            Port::Input(to) => self.write_input(to).into_iter().collect(),
        }
    }

    fn read_status(&mut self) -> Vec<FromAgent> {
        let mut buffer = [0; 1024];
        let Some(status) = &self.status else { return Vec::new() };
        let mut said = Vec::new();
        match rustix::io::read(status, &mut buffer) {
            Ok(0) => self.status = None,
            Ok(n) => self.statuses.push(&buffer[..n]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.status = None,
        }
        while let Ok(Some(message)) = self.statuses.take::<Status>() {
            match message {
                Status::Walls(walls) if !self.started => {
                    self.started = true;
                    said.push(FromAgent::Started { id: self.id, walls });
                }
                Status::Walls(_) => {}
                Status::Failure(failure) => said.push(FromAgent::Failed { id: self.id, failure }),
            }
        }
        said
    }

    /// What a program says on its side channel comes after what it printed before. A pipe holds no more than one
    /// chunk, so one that gave a chunk, or is empty, holds nothing from before any more.
    fn read_side(&mut self) -> Vec<FromAgent> {
        let mut said = Vec::new();
        for stream in [Stream::Output, Stream::Error] {
            let mut taken = 0;
            while let Some(message) = self.read_output(stream) {
                if let FromAgent::Output { bytes, .. } = &message {
                    taken += bytes.len();
                }
                said.push(message);
                if taken >= CHUNK {
                    break;
                }
            }
            let settled = |o: &Output| o.fd.is_none() || o.empty || taken >= CHUNK;
            if !self.outputs.iter().filter(|o| o.stream == stream).all(settled) {
                // No credit left to read it: the side channel waits with it.
                return said;
            }
        }
        said.extend(self.read_output(Stream::Side));
        said
    }

    fn read_output(&mut self, stream: Stream) -> Option<FromAgent> {
        let output = self.outputs.iter_mut().find(|o| o.stream == stream)?;
        let fd = output.fd.as_ref()?;
        let mut buffer = vec![0; CHUNK.min(output.credit as usize)];
        if buffer.is_empty() {
            return None;
        }
        match rustix::io::read(fd, &mut buffer) {
            Ok(n) if n > 0 => {
                buffer.truncate(n);
                output.credit -= n as u32;
                output.empty = false;
                Some(FromAgent::Output { id: self.id, stream, bytes: ByteBuf::from(buffer) })
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                output.empty = true;
                None
            }
            // A terminal whose last user is gone says EIO, a pipe says end of file.
            Ok(_) | Err(_) => {
                output.fd = None;
                Some(FromAgent::Closed { id: self.id, stream })
            }
        }
    }

    fn write_input(&mut self, to: InputStream) -> Option<FromAgent> {
        let input = self.inputs.iter_mut().find(|i| i.to == to)?;
        let fd = input.fd.as_ref()?;
        let (front, _) = input.pending.as_slices();
        let written = match rustix::io::write(fd, front) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            // The program closed its end. What is left has nowhere to go; the host gets its credit back.
            Err(_) => {
                input.fd = None;
                input.pending.len()
            }
        };
        input.pending.drain(..written);
        if input.pending.is_empty() && input.closing {
            input.finish();
        }
        Some(FromAgent::Credit { id: self.id, to, bytes: written as u32 })
    }

    pub(crate) fn input(&mut self, to: InputStream, bytes: &[u8]) {
        if let Some(input) = self.inputs.iter_mut().find(|i| i.to == to && i.fd.is_some()) {
            input.pending.extend(bytes);
        }
    }

    pub(crate) fn close_input(&mut self, to: InputStream) {
        let terminal = self.terminal;
        if let Some(input) = self.inputs.iter_mut().find(|i| i.to == to) {
            if terminal && to == InputStream::Main {
                // A terminal has no end of file; what a person types for it is Ctrl-D.
                input.pending.push_back(4);
            } else {
                input.closing = true;
                if input.pending.is_empty() {
                    input.finish();
                }
            }
        }
    }

    pub(crate) fn credit(&mut self, stream: Stream, bytes: u32) {
        if let Some(output) = self.outputs.iter_mut().find(|o| o.stream == stream) {
            output.credit = output.credit.saturating_add(bytes).min(WINDOW);
        }
    }

    pub(crate) fn resize(&mut self, size: TerminalSize) {
        if let (true, Some(controller)) = (self.terminal, self.outputs.first().and_then(|o| o.fd.as_ref())) {
            let _ = terminal::resize(controller, size);
        }
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        if self.ended.is_none() {
            serve::signal_group(self.pid, signal);
        }
    }

    /// Whether its process has not been collected: a pid means somebody else after that.
    pub(crate) fn is_alive(&self) -> bool {
        self.ended.is_none()
    }

    /// The process is gone. What it wrote before is still in its pipes.
    pub(crate) fn ended(&mut self, reaped: Reaped) {
        if self.last {
            sandstorm_sys::process::end_everything_else();
        }
        self.ended = Some(reaped);
        for output in &mut self.outputs {
            output.empty = false;
        }
    }

    /// Over when the process ended and each pipe was found empty or at its end since. Everything that the process
    /// wrote is then on its way; a background child that keeps the pipe open does not delay the end.
    pub(crate) fn progress(&self) -> Progress {
        let drained = self.outputs.iter().all(|o| o.fd.is_none() || o.empty);
        if self.ended.is_some() && self.status.is_none() && drained {
            Progress::Over
        } else {
            Progress::Working
        }
    }

    /// The last messages of this task, and pipes that somebody else still holds.
    pub(crate) fn farewell(mut self) -> (Vec<FromAgent>, Vec<OwnedFd>) {
        let mut said = Vec::new();
        let mut leftover = Vec::new();
        for output in &mut self.outputs {
            if let Some(fd) = output.fd.take() {
                said.push(FromAgent::Closed { id: self.id, stream: output.stream });
                if output.stream != Stream::Side && !self.terminal {
                    leftover.push(fd);
                }
            }
        }
        if let Some(reaped) = self.ended {
            said.push(FromAgent::Exited { id: self.id, ending: ending(reaped), usage: usage(reaped) });
        }
        (said, leftover)
    }

    /// Reads every output once more after the process ended; the loop alone would wait for pipes that stay silent.
    pub(crate) fn drain(&mut self, roomy: bool) -> Vec<FromAgent> {
        if self.ended.is_none() || !roomy {
            return Vec::new();
        }
        let streams: Vec<Stream> =
            self.outputs.iter().filter(|o| o.fd.is_some() && !o.empty).map(|o| o.stream).collect();
        let mut said: Vec<FromAgent> = streams.into_iter().filter_map(|s| self.read_output(s)).collect();
        if self.status.is_some() {
            said.extend(self.read_status());
        }
        said
    }
}

fn ending(reaped: Reaped) -> Ending {
    match reaped.ending {
        sandstorm_sys::process::Ending::Code(code) => Ending::Code(code),
        sandstorm_sys::process::Ending::Signal(signal) => Ending::Signal(signal),
    }
}

fn usage(reaped: Reaped) -> TaskUsage {
    TaskUsage {
        user_microseconds: reaped.user_time.as_micros() as u64,
        system_microseconds: reaped.system_time.as_micros() as u64,
        peak_memory_bytes: reaped.peak_memory_bytes,
    }
}
