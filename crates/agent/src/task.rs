//! One task: a child process, or a guest, with its streams.

mod beginning;
mod kept;
mod others;
mod remains;
mod rest;
mod streams;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use sandstorm_sys::fork::{Forked, fork};
use sandstorm_sys::process::Reaped;
use serde_bytes::ByteBuf;

use self::beginning::Beginning;
use self::kept::Kept;
use self::others::Others;
use self::remains::Remains;
use self::rest::Rest;
use self::streams::{Input, Output, Streams};
use crate::child::{self, Status};
use crate::frame::Decoder;
use crate::guest::{self, Guests, Handing};
use crate::protocol::{
    CHUNK, Ending, FromAgent, Guest, Held, INTERPRETER, Init, InputStream, PIECE_COST, PayloadWalls, Program,
    StartFailure, Stream, Tag, Task, TaskId, TerminalSize, WINDOW, cost,
};
use crate::rank::Score;
use crate::{connect, files, serve, terminal};

pub(crate) use self::streams::prepare;

/// A descriptor of a task that the loop polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Status,
    /// Where a guest says how its program ends.
    LastWord,
    Output(Stream),
    Input(InputStream),
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: i32,
    /// The guest that runs it. Its end is told by the launcher: it is no child of this process.
    pub(crate) guest: Option<u32>,
    id: TaskId,
    /// What the next host knows it by. `None`: it ends with the host that started it.
    tag: Option<Tag>,
    beginning: Beginning,
    /// The socket of a guest that says how its program ends. One that said it waits there until it is ended.
    last_word: Option<OwnedFd>,
    walls: Option<PayloadWalls>,
    outputs: Vec<Output>,
    inputs: Vec<Input>,
    /// Credit for input that the host was not told of yet.
    untold_credit: [u32; 2],
    terminal: bool,
    /// Nothing else outlives it.
    last: bool,
    /// Whether its output is left alone now and then, so that pieces are passed on together.
    joins: bool,
    rest: Rest,
    remains: Remains,
    ended: Option<Reaped>,
    /// What processes used that its program started and did not wait for.
    others: Others,
    /// Output of a lasting task that the host may have to be sent again.
    kept: Kept,
    /// Messages for the present host.
    said: Vec<FromAgent>,
    /// Whether everything that its process left was taken.
    drained: bool,
    /// Whether the present host was told of its end.
    told: bool,
}

/// Forks the child of a task.
pub(crate) fn start(
    init: &Init,
    score: &Score,
    id: TaskId,
    tag: Option<Tag>,
    task: &Task,
) -> Result<Running, StartFailure> {
    let fail = |step: &str| {
        let step = step.to_owned();
        move |errno: Errno| StartFailure { step, errno: errno.raw_os_error() }
    };
    let streams = Streams::open(init, task).map_err(fail("streams"))?;
    let (status_read, status_write) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(fail("status pipe"))?;
    let forked = match task {
        // When memory runs out, the kernel should pick a program and not its PID 1.
        Task::Program(_) => score.fork_payload(),
        Task::File(_) | Task::Connect { .. } => fork(),
    };
    let forked = forked.map_err(|e| fail("fork")(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
    let pid = match forked {
        Forked::Parent { pid } => pid,
        Forked::Child => {
            drop(status_read);
            let stdio = streams.child;
            match task {
                Task::Program(program) => child::become_program(init, program, stdio, status_write),
                Task::File(work) => {
                    let as_root = || files::works_as_root(work);
                    child::become_helper(init, stdio, status_write, as_root, || files::perform(work))
                }
                Task::Connect { port } => {
                    child::become_helper(init, stdio, status_write, || false, || connect::relay(*port))
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
    let mut running = Running::new(pid, id, tag, Beginning::Child(status_read, Decoder::default()));
    if let Task::Program(program) = task {
        running.serve(program);
        running.others.count(program.last && !init.is_grouped());
    }
    (running.outputs, running.inputs, running.terminal) = (outputs, inputs, terminal);
    Ok(running)
}

/// Gives a program to a guest, or takes over one that runs as a copy of another.
pub(crate) fn hand_over(
    guests: &mut Guests,
    id: TaskId,
    tag: Option<Tag>,
    program: &Program,
    guest: Guest,
) -> Result<Running, StartFailure> {
    let refused = |errno: Errno| StartFailure { step: INTERPRETER.to_owned(), errno: errno.raw_os_error() };
    if program.root || program.terminal.is_some() {
        return Err(refused(Errno::INVAL));
    }
    let gone = || refused(Errno::SRCH);
    let taken = match guest {
        Guest::Run(number) => guests.take(number, false).ok_or_else(gone)?,
        Guest::Transplanted(number) => guests.take(number, true).ok_or_else(gone)?,
        // It may have begun: nobody must start it again.
        Guest::Handed(number) => guests.take(number, true).ok_or_else(guest::lost)?,
    };
    let mut streams = Streams::of_guest(taken.pipes);
    if program.side_channel {
        streams.1.push(streams::side_input(&taken.side).map_err(refused)?);
    }
    let mut running = Running::new(taken.pid, id, tag, Beginning::Over);
    (running.outputs, running.inputs) = streams;
    running.guest = Some(taken.number);
    running.serve(program);
    match guest {
        Guest::Run(_) => {
            let handing = Handing::new(program, taken.side).ok_or_else(gone)?;
            running.beginning = Beginning::Guest(handing, taken.walls);
        }
        Guest::Handed(_) => {
            running.begun(taken.walls, None);
            running.beginning = Beginning::Guest(Handing::handed(taken.side), taken.walls);
            running.read_status();
            // What is started after one that is over must not be taken for something that it left.
            running.read_last_word();
        }
        Guest::Transplanted(_) => running.begun(taken.walls, Some(taken.side)),
    }
    taken.ended.into_iter().for_each(|end| running.ended(end));
    Ok(running)
}

impl Running {
    /// A task without streams.
    fn new(pid: i32, id: TaskId, tag: Option<Tag>, beginning: Beginning) -> Self {
        Self {
            pid,
            guest: None,
            id,
            tag,
            beginning,
            last_word: None,
            walls: None,
            outputs: Vec::new(),
            inputs: Vec::new(),
            untold_credit: [0; 2],
            terminal: false,
            last: false,
            joins: false,
            rest: Rest::default(),
            remains: Remains::default(),
            ended: None,
            others: Others::default(),
            kept: Kept::default(),
            said: Vec::new(),
            drained: false,
            told: false,
        }
    }

    /// What of a program decides how it is followed. Output is left alone only where something comes soon that says that
    /// there is no more of it: the end of the program, or a word on the side channel. Nobody types at those.
    fn serve(&mut self, program: &Program) {
        self.last = program.last;
        self.joins = (program.last || program.side_channel) && program.terminal.is_none();
    }

    /// One without streams that began already.
    #[cfg(test)]
    pub(crate) fn of_program(pid: i32, id: TaskId, last: bool) -> Self {
        let mut running = Self::new(pid, id, None, Beginning::Over);
        running.last = last;
        running
    }

    pub(crate) fn is_lasting(&self) -> bool {
        self.tag.is_some()
    }

    /// Whether nothing else outlives it.
    pub(crate) fn is_last(&self) -> bool {
        self.last
    }

    /// When it has to be looked at even if nothing becomes ready until then.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let others = self.others.until().filter(|until| *until > now);
        self.rest.until(now).into_iter().chain(self.remains.until()).chain(others).min()
    }

    /// Which descriptors to poll, and for what. `roomy`: there is space for more output on the way to the host.
    pub(crate) fn interests(&self, roomy: bool, now: Instant) -> Vec<(Port, BorrowedFd<'_>, PollFlags)> {
        let rests = self.rest.until(now).is_some();
        let mut interests = Vec::with_capacity(4);
        if let Some((status, events)) = self.beginning.interest() {
            interests.push((Port::Status, status, events));
        }
        if let (Some(side), None) = (&self.last_word, self.ended) {
            interests.push((Port::LastWord, side.as_fd(), PollFlags::IN));
        }
        // While output waits for credit, the side channel waits too, or it would overtake it.
        let stuck =
            self.outputs.iter().any(|o| o.stream != Stream::Side && o.fd.is_some() && !o.has_credit());
        for output in &self.outputs {
            let waits = if output.stream == Stream::Side { stuck } else { rests };
            if let (Some(fd), true) = (&output.fd, roomy && output.has_credit() && !waits && !self.drained) {
                interests.push((Port::Output(output.stream), fd.as_fd(), PollFlags::IN));
            }
        }
        for input in &self.inputs {
            if let (Some(fd), false) = (&input.fd, input.pending.is_empty() || self.must_wait(input.to)) {
                interests.push((Port::Input(input.to), fd.as_fd(), PollFlags::OUT));
            }
        }
        interests
    }

    /// Moves bytes on a descriptor that became ready.
    pub(crate) fn advance(&mut self, port: Port) {
        if !self.beginning.is_over() && matches!(port, Port::Output(_)) {
            // It began before it wrote anything, and is told so first.
            self.read_status();
        }
        match port {
            Port::Status => self.read_status(),
            Port::LastWord => self.read_last_word(),
            Port::Output(Stream::Side) => self.read_side(),
            Port::Output(stream) => {
                self.read_output(stream);
            }
            Port::Input(to) => self.write_input(to),
        }
    }

    /// What the host has to hear now. `room`: bytes of kept output that may go with it.
    pub(crate) fn take_said(&mut self, room: usize, now: Instant) -> Vec<FromAgent> {
        if self.rest.holds(now) {
            return Vec::new();
        }
        let mut said = std::mem::take(&mut self.said);
        let mut taken = 0;
        while taken < room
            && let Some((stream, bytes)) = self.kept.send()
        {
            taken += bytes.len();
            said.push(FromAgent::Output { id: self.id, stream, bytes: ByteBuf::from(bytes) });
        }
        let done = self.drained && self.kept.all_sent() && !self.others.is_awaited(now);
        if let (Some(reaped), true, false) = (self.ended, done, self.told) {
            self.told = true;
            let usage = self.others.and(reaped);
            said.push(FromAgent::Exited { id: self.id, ending: ending(reaped), usage });
        }
        said
    }

    fn read_status(&mut self) {
        let (heard, mut side) = self.beginning.advance();
        for status in heard {
            match status {
                Status::Walls(walls) if self.walls.is_none() => self.begun(walls, side.take()),
                // It was known to run before it said so.
                Status::Walls(_) => self.last_word = side.take(),
                Status::Failure(failure) => self.said.push(FromAgent::Failed { id: self.id, failure }),
            }
        }
    }

    /// Its program runs. `side`: the socket of a guest, which is the program's side channel now if it has one.
    fn begun(&mut self, walls: PayloadWalls, side: Option<OwnedFd>) {
        self.walls = Some(walls);
        self.said.push(FromAgent::Started { id: self.id, walls });
        if self.inputs.iter().any(|input| input.to == InputStream::Side) {
            self.outputs.extend(side.map(|side| Output::new(Stream::Side, side)));
        } else if self.last {
            self.last_word = side;
            if self.joins {
                self.rest.begin_held(Instant::now());
            }
        }
    }

    /// A guest whose program is the last thing in here says how it ends, and then does nothing any more. One that says
    /// nothing, or nonsense, is waited for: its program can write there, too, and the launcher tells its true end.
    fn read_last_word(&mut self) {
        let Some(side) = &self.last_word else { return };
        match guest::last_word(side.as_fd()) {
            Ok(Some(word)) if self.is_alive() => self.ended(Reaped { pid: self.pid, ..word }),
            Ok(None) => {}
            // Whoever else holds this end would keep the guest waiting for somebody who ends it.
            Ok(Some(_)) | Err(_) => {
                let _ = rustix::net::shutdown(side, Shutdown::Both);
                self.last_word = None;
            }
        }
    }

    /// A job goes before what is for the program that it brings.
    fn must_wait(&self, to: InputStream) -> bool {
        to == InputStream::Side && self.beginning.is_handing_over()
    }

    /// What a program says on its side channel comes after what it printed before. A pipe holds no more than one
    /// chunk, so one that gave a chunk, or is empty, holds nothing from before any more.
    fn read_side(&mut self) {
        for stream in [Stream::Output, Stream::Error] {
            let mut taken = 0;
            while taken < CHUNK {
                match self.read_output(stream) {
                    0 => break,
                    n => taken += n,
                }
            }
            let settled = |o: &Output| o.fd.is_none() || o.empty || taken >= CHUNK;
            if !self.outputs.iter().filter(|o| o.stream == stream).all(settled) {
                // No credit left to read it: the side channel waits with it.
                return;
            }
        }
        if self.read_output(Stream::Side) > 0 {
            self.rest.end();
        }
    }

    /// Reads one piece; gives its length, 0 when there was none.
    fn read_output(&mut self, stream: Stream) -> usize {
        let Some(output) = self.outputs.iter_mut().find(|o| o.stream == stream && o.has_credit()) else {
            return 0;
        };
        let Some(fd) = output.fd.as_ref() else { return 0 };
        match streams::read_piece(fd, CHUNK.min((output.credit - PIECE_COST) as usize)) {
            Ok(piece) if !piece.is_empty() => {
                let n = piece.len();
                output.credit = output.credit.saturating_sub(cost(n));
                output.empty = false;
                if self.joins && self.ended.is_none() && stream != Stream::Side {
                    self.rest.taken(n, Instant::now());
                }
                if self.tag.is_some() {
                    self.kept.push(stream, piece);
                } else {
                    self.said.push(FromAgent::Output { id: self.id, stream, bytes: ByteBuf::from(piece) });
                }
                n
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                output.empty = true;
                0
            }
            // A terminal whose last user is gone says EIO, a pipe says end of file.
            Ok(_) | Err(_) => {
                output.fd = None;
                self.say_closed(stream);
                0
            }
        }
    }

    /// Lasting tasks have no need of it: their end says the same, and is kept.
    fn say_closed(&mut self, stream: Stream) {
        if self.tag.is_none() {
            self.said.push(FromAgent::Closed { id: self.id, stream });
        }
    }

    fn write_input(&mut self, to: InputStream) {
        if self.must_wait(to) {
            return;
        }
        let Some(input) = self.inputs.iter_mut().find(|i| i.to == to) else { return };
        let Some(fd) = input.fd.as_ref() else { return };
        let (front, _) = input.pending.as_slices();
        if front.is_empty() {
            return;
        }
        let written = match rustix::io::write(fd, front) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The program closed its end. What is left has nowhere to go; the host gets its credit back.
            Err(_) => input.lose(),
        };
        input.pending.drain(..written);
        if input.pending.is_empty() && input.closing {
            input.finish();
        }
        let credit = input.settle(written);
        self.say_credit(to, credit);
    }

    /// Credit is told in pieces of some size: short messages need no answer each. What is not told yet leaves the host
    /// room for a whole chunk.
    fn say_credit(&mut self, to: InputStream, bytes: u32) {
        let untold = &mut self.untold_credit[to as usize];
        *untold = untold.saturating_add(bytes);
        if *untold >= WINDOW / 4 {
            self.said.push(FromAgent::Credit { id: self.id, to, bytes: std::mem::take(untold) });
        }
    }

    /// Bytes for the program. `Err`: the host breaks the rules.
    pub(crate) fn input(&mut self, to: InputStream, bytes: &[u8]) -> Result<(), Errno> {
        let credit = match self.inputs.iter_mut().find(|i| i.to == to && i.fd.is_some()) {
            Some(input) if to == InputStream::Side => input.stage(bytes)?,
            // Nothing comes behind the end.
            Some(input) if input.closing => bytes.len() as u32,
            Some(input) => {
                input.take(bytes);
                0
            }
            // The program takes no more: nobody has to wait for that.
            None => bytes.len() as u32,
        };
        self.say_credit(to, credit);
        // Most often there is room at once.
        self.write_input(to);
        Ok(())
    }

    /// Bytes of an input stream that the program has or will get.
    pub(crate) fn taken(&self, to: InputStream) -> u64 {
        self.inputs.iter().find(|input| input.to == to).map_or(0, |input| input.taken)
    }

    /// What came for the side channel is a whole message.
    pub(crate) fn commit(&mut self) {
        if let Some(input) = self.inputs.iter_mut().find(|i| i.to == InputStream::Side && i.fd.is_some()) {
            input.commit();
            self.rest.begin(Instant::now());
        }
        self.write_input(InputStream::Side);
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
        self.kept.acknowledge(stream, bytes);
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

    /// Ends what its program left behind, if that is still to be done.
    pub(crate) fn end_remains(&mut self) {
        self.remains.end();
    }

    /// Its host is gone, and it does not last.
    pub(crate) fn end(&mut self) {
        self.signal(Signal::KILL.as_raw());
        self.remains.end();
    }

    /// Whether its process has not been collected: a pid means somebody else after that.
    pub(crate) fn is_alive(&self) -> bool {
        self.ended.is_none()
    }

    /// The process is gone. What it wrote before is still in its pipes.
    pub(crate) fn ended(&mut self, reaped: Reaped) {
        if self.last {
            let now = Instant::now();
            self.remains.leave(now);
            if self.others.begin_to_wait(now) {
                self.remains.end();
            }
        }
        self.ended = Some(reaped);
        self.rest.end();
        for output in &mut self.outputs {
            output.empty = false;
        }
    }

    /// A process of its program's session that nobody waited for was collected.
    pub(crate) fn left(&mut self, reaped: Reaped) {
        self.others.add(reaped);
    }

    /// PID 1 has no child any more.
    pub(crate) fn is_alone(&mut self) {
        self.others.are_gone();
    }

    /// Reads every output once more after the process ended; the loop alone would wait for pipes that stay silent.
    /// Says whether anything came of it.
    pub(crate) fn drain(&mut self, roomy: bool) -> bool {
        if self.ended.is_none() || self.drained || !roomy {
            return false;
        }
        self.read_status();
        let streams: Vec<Stream> =
            self.outputs.iter().filter(|o| o.fd.is_some() && !o.empty).map(|o| o.stream).collect();
        let read: usize = streams.into_iter().map(|stream| self.read_output(stream)).sum();
        if read > 0 {
            self.remains.found_output();
        }
        read > 0
    }

    /// Once the process ended and each pipe was found empty or at its end since, gives the pipes that somebody else
    /// still holds. Everything that the process wrote was taken then; a background child that keeps a pipe open does
    /// not delay the end.
    pub(crate) fn let_go(&mut self) -> Vec<OwnedFd> {
        let drained = self.outputs.iter().all(|o| o.fd.is_none() || o.empty);
        if self.ended.is_none() || !self.beginning.is_over() || !drained || self.drained {
            return Vec::new();
        }
        self.drained = true;
        if self.last && self.tag.is_none() {
            // Whoever holds the other ends is ended before they are closed: they go with the task, once the host has been
            // told of its end, which says that they are closed.
            return Vec::new();
        }
        self.abandon()
    }

    /// Gives its pipes up.
    pub(crate) fn abandon(&mut self) -> Vec<OwnedFd> {
        let mut leftover = Vec::new();
        for (stream, fd) in
            self.outputs.iter_mut().filter_map(|o| Some((o.stream, o.fd.take()?))).collect::<Vec<_>>()
        {
            self.say_closed(stream);
            if stream != Stream::Side && !self.terminal {
                leftover.push(fd);
            }
        }
        leftover
    }

    /// Nobody wants to hear of it any more: it lasts no longer, and what it still writes goes nowhere.
    pub(crate) fn release(&mut self) -> Vec<OwnedFd> {
        self.tag = None;
        self.kept = Kept::default();
        self.abandon()
    }

    /// Ends whatever the last program left behind, if that is due.
    pub(crate) fn clear_away(&mut self, now: Instant) {
        self.remains.end_if_due(now);
    }

    /// Whether nothing of it has to be kept: one that does not last, once its end was told and nothing of it is left.
    pub(crate) fn is_over(&self) -> bool {
        self.told && self.tag.is_none() && self.remains.until().is_none()
    }

    /// Starts anew with a host that knows nothing of it. `None`: it does not last.
    pub(crate) fn hold(&mut self) -> Option<Held> {
        let tag = self.tag?;
        self.said.clear();
        self.rest.end();
        self.kept.rewind();
        self.told = false;
        for output in &mut self.outputs {
            output.credit = WINDOW.saturating_sub(self.kept.cost(output.stream));
        }
        self.untold_credit = [0; 2];
        let mut pending = [0; 2];
        for input in &mut self.inputs {
            pending[input.to as usize] = input.forget_half();
        }
        Some(Held { id: self.id, tag, walls: self.walls, first: self.kept.first(), pending })
    }
}

fn ending(reaped: Reaped) -> Ending {
    match reaped.ending {
        sandstorm_sys::process::Ending::Code(code) => Ending::Code(code),
        sandstorm_sys::process::Ending::Signal(signal) => Ending::Signal(signal),
    }
}
