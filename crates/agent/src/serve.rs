//! The agent's loop: one thread, one `poll`, no waiting anywhere else.
//!
//! Messages come in on the control socket, children report by SIGCHLD, pipes become ready. Output is read only while
//! the host has given credit for it and the socket is not backed up, so memory stays bounded whatever the programs do.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{DumpableBehavior, Pid, Signal};
use rustix::thread::CapabilitySets;

use crate::door::{self, Visit};
use crate::frame::{self, Decoder};
use crate::guest::Guests;
use crate::protocol::{FromAgent, Init, InputStream, Tag, Task, TaskId, ToAgent, VERSION};
use crate::rank::Score;
use crate::task::{self, Running};
use sandstorm_sys::process::{Children, look_for_ended};

/// Past this many unsent bytes, no more output is taken from programs.
const BACKLOG: usize = 512 * 1024;

/// Tasks that are gone and may still be asked about.
const MOST_REMEMBERED: usize = 64;

/// Gets what every agent needs before long, so that copies of this process have it.
pub fn prepare() {
    task::prepare();
}

/// Serves hosts: the one at the control socket, then each that comes through the door. Without a host and without a
/// launcher at the door it returns, which ends PID 1 and with it the sandbox. `score`: what
/// [`open_score`](crate::open_score) returned to this process, or the null device.
pub fn serve(control: OwnedFd, door: OwnedFd, score: OwnedFd) -> io::Result<()> {
    guard_self()?;
    rustix::io::ioctl_fionbio(&control, true)?;
    rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::fcntl_setfd(&door, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::fcntl_setfd(&score, rustix::io::FdFlags::CLOEXEC)?;
    // Descriptors 0 to 3 stay occupied, so that no pipe is ever born at a number that a child replaces.
    occupy_low_descriptors()?;
    let children = sandstorm_sys::process::signal_descriptor(&[Signal::CHILD.as_raw()])?;
    let mut agent = Agent {
        control: Some(control),
        door: Some(door),
        score: Score::new(score),
        children,
        decoder: Decoder::default(),
        outbound: Vec::new(),
        init: None,
        tasks: BTreeMap::new(),
        took: VecDeque::new(),
        guests: Guests::default(),
        only_greeted: true,
        abandoned: Vec::new(),
    };
    while agent.turn()? {}
    Ok(())
}

/// Closes this process to the payload: not dumpable, so `/proc/1` shows nothing, and nothing to inherit.
fn guard_self() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::clear_ambient_capability_set()?;
    let held = rustix::thread::capabilities(None)?;
    let inheritable = rustix::thread::CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable, ..held })?;
    sandstorm_sys::process::ignore_broken_pipes();
    Ok(())
}

fn occupy_low_descriptors() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    loop {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if null.as_raw_fd() > crate::CONTROL_DESCRIPTOR {
            return Ok(());
        }
        // Kept open for the life of PID 1.
        std::mem::forget(null);
    }
}

struct Agent {
    /// The present host, if there is one.
    control: Option<OwnedFd>,
    /// Where the next one comes from; `None` once nobody can come any more.
    door: Option<OwnedFd>,
    score: Score,
    children: OwnedFd,
    decoder: Decoder,
    outbound: Vec<u8>,
    init: Option<Init>,
    /// Boxed: the map has room for several at once, and nearly always there is one.
    tasks: BTreeMap<TaskId, Box<Running>>,
    /// What tasks that are gone took of their main input, for hosts that ask late.
    took: VecDeque<(TaskId, u64)>,
    /// Interpreters that wait for a program.
    guests: Guests,
    /// Whether the present host has heard greetings alone: it takes descriptors as long as that is so.
    only_greeted: bool,
    /// Pipes that outlived their task because a background process still holds the other end. They are read to
    /// nowhere: closing them would kill that process.
    abandoned: Vec<OwnedFd>,
}

/// What a polled descriptor stands for.
#[derive(Clone, Copy)]
enum Source {
    Control,
    Door,
    Children,
    Task(TaskId, task::Port),
    Guest(u32),
    Abandoned(usize),
}

impl Agent {
    /// One turn of the loop. `false`: there is no host and none will come.
    fn turn(&mut self) -> io::Result<bool> {
        // From the last to the first, so that forgetting one does not move those still to come.
        let mut swallowed = Vec::new();
        for (source, events) in self.wait()? {
            match source {
                Source::Control => {
                    if events.intersects(PollFlags::OUT) {
                        self.flush()?;
                    }
                    if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                        self.receive()?;
                    }
                }
                Source::Door => self.open_door()?,
                Source::Children => self.reap()?,
                Source::Task(id, port) => {
                    if let Some(running) = self.tasks.get_mut(&id) {
                        running.advance(port);
                        self.pass_on(id)?;
                    }
                }
                Source::Guest(number) => {
                    let said = self.guests.look(number);
                    self.say_of_guest(said)?;
                }
                Source::Abandoned(index) => swallowed.push(index),
            }
        }
        for index in swallowed.into_iter().rev() {
            self.swallow(index);
        }
        self.finish()?;
        self.flush()?;
        // Only now: all of this takes time in which the host could have heard of the end.
        if !self.tasks.is_empty() {
            let now = Instant::now();
            self.tasks.values_mut().for_each(|running| running.clear_away(now));
            for (id, over) in self.tasks.extract_if(.., |_, running| running.is_over()) {
                self.took.truncate(MOST_REMEMBERED - 1);
                self.took.push_front((id, over.taken(InputStream::Main)));
            }
        }
        Ok(self.control.is_some() || self.door.is_some())
    }

    /// Whatever comes through the door. A host is the host from now on.
    fn open_door(&mut self) -> io::Result<()> {
        let Some(door) = &self.door else { return Ok(()) };
        match door::answer(door.as_fd())? {
            Visit::Host(control) => {
                self.lose_host();
                rustix::io::ioctl_fionbio(&control, true)?;
                self.control = Some(control);
                self.only_greeted = true;
                let held: Vec<_> = self.tasks.values_mut().filter_map(|running| running.hold()).collect();
                self.say(&FromAgent::Ready { version: VERSION, held: held.len() as u32 })?;
                for task in held {
                    self.say(&FromAgent::Held(task))?;
                }
            }
            Visit::Guest(number, side) => {
                // Without a host nobody would ever have use for it.
                if self.control.is_some() {
                    let said = self.guests.welcome(number, side);
                    self.say_of_guest(said)?;
                }
            }
            Visit::GuestEnded(number, end) => {
                match self.tasks.values_mut().find(|task| task.guest == Some(number) && task.is_alive()) {
                    Some(running) => running.ended(end),
                    None => {
                        let said = self.guests.ended(number, end);
                        self.say_of_guest(said)?;
                    }
                }
            }
            Visit::Nobody => {}
            Visit::Closed => self.door = None,
        }
        Ok(())
    }

    /// The host is gone: what does not last ends at once, the rest waits for the next one.
    fn lose_host(&mut self) {
        self.control = None;
        self.outbound = Vec::new();
        self.decoder = Decoder::default();
        self.guests.dismiss_all();
        for (_, mut running) in self.tasks.extract_if(.., |_, running| !running.is_lasting()) {
            running.end();
            self.abandoned.extend(running.abandon());
        }
        for running in self.tasks.values_mut() {
            running.hold();
        }
    }

    /// Waits until something is ready, or has rested long enough.
    fn wait(&self) -> io::Result<Vec<(Source, PollFlags)>> {
        let mut sources = Vec::with_capacity(16);
        sources.push((Source::Children, PollFlags::empty()));
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
        if let Some(control) = &self.control {
            let out = if self.outbound.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            sources.push((Source::Control, PollFlags::empty()));
            fds.push(PollFd::new(control, PollFlags::IN | out));
        }
        if let Some(door) = &self.door {
            sources.push((Source::Door, PollFlags::empty()));
            fds.push(PollFd::new(door, PollFlags::IN));
        }
        let roomy = self.outbound.len() < BACKLOG;
        let now = Instant::now();
        let look = self.tasks.values().filter_map(|running| running.next_look(now)).min();
        let patience = look.and_then(|at| Timespec::try_from(at.duration_since(now)).ok());
        for (id, running) in &self.tasks {
            for (port, fd, events) in running.interests(roomy, now) {
                sources.push((Source::Task(*id, port), PollFlags::empty()));
                fds.push(PollFd::from_borrowed_fd(fd, events));
            }
        }
        for (number, fd) in self.guests.interests() {
            sources.push((Source::Guest(number), PollFlags::empty()));
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for (index, fd) in self.abandoned.iter().enumerate() {
            sources.push((Source::Abandoned(index), PollFlags::empty()));
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        loop {
            match poll(&mut fds, patience.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // In the room that is there already: this is done for every message.
        for ((_, events), fd) in sources.iter_mut().zip(&fds) {
            *events = fd.revents();
        }
        sources.retain(|(_, events)| !events.is_empty());
        Ok(sources)
    }

    /// Reads what the host sent.
    fn receive(&mut self) -> io::Result<()> {
        let Some(control) = &self.control else { return Ok(()) };
        match rustix::io::read(control, rustix::buffer::spare_capacity(self.decoder.room())) {
            Ok(n) if n > 0 => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            // Closed, or broken, which is the same.
            Ok(_) | Err(_) => {
                self.lose_host();
                return Ok(());
            }
        }
        while let Some(message) = self.decoder.take::<ToAgent>().map_err(io::Error::other)? {
            self.obey(message)?;
        }
        Ok(())
    }

    fn obey(&mut self, message: ToAgent) -> io::Result<()> {
        match message {
            ToAgent::Init(init) => {
                if init.version != VERSION || self.init.is_some() {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                self.init = Some(init);
                self.say(&FromAgent::Ready { version: VERSION, held: 0 })
            }
            ToAgent::Start { id, lasting, task } => self.start(id, lasting, &task),
            ToAgent::Input { id, to, bytes } => match self.tasks.get_mut(&id) {
                Some(running) => Ok(running.input(to, &bytes)?),
                None => Ok(()),
            },
            ToAgent::AskTaken { id, to } => {
                let bytes = match self.tasks.get(&id) {
                    Some(running) => running.taken(to),
                    None => self.took.iter().find(|(gone, _)| *gone == id).map_or(0, |(_, took)| *took),
                };
                self.say(&FromAgent::Taken { id, to, bytes })
            }
            ToAgent::EndAll => {
                sandstorm_sys::process::end_everything_else();
                Ok(())
            }
            ToAgent::Commit { id } => self.with(id, |t| t.commit()),
            ToAgent::CloseInput { id, to } => self.with(id, |t| t.close_input(to)),
            ToAgent::Credit { id, stream, bytes } => self.with(id, |t| t.credit(stream, bytes)),
            ToAgent::Resize { id, size } => self.with(id, |t| t.resize(size)),
            ToAgent::Signal { id, signal } => self.with(id, |t| t.signal(signal)),
            ToAgent::Dismiss { guest } => {
                self.guests.dismiss(guest);
                Ok(())
            }
            ToAgent::Forget { id } => {
                if let Some(running) = self.tasks.get_mut(&id) {
                    self.abandoned.extend(running.release());
                }
                Ok(())
            }
        }
    }

    fn start(&mut self, id: TaskId, lasting: Option<Tag>, task: &Task) -> io::Result<()> {
        let Some(init) = &self.init else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        // What a last program left is ended, but nothing that is started after it.
        self.tasks.values_mut().for_each(|task| task.end_remains());
        let started = match task {
            Task::Program(program) if let Some(guest) = program.guest => {
                task::hand_over(&mut self.guests, id, lasting, program, guest)
            }
            task => task::start(init, &self.score, id, lasting, task),
        };
        match started {
            Ok(running) => {
                self.tasks.insert(id, Box::new(running));
                Ok(())
            }
            Err(failure) => self.say(&FromAgent::Failed { id, failure }),
        }
    }

    /// Tells the host of a guest. A guest of a host that is gone was dismissed with it.
    fn say_of_guest(&mut self, said: Option<FromAgent>) -> io::Result<()> {
        match said {
            Some(message) if self.control.is_some() && !self.lend(&message)? => self.say(&message),
            _ => Ok(()),
        }
    }

    /// Tells of a guest that waits together with its outlets. `false`: it is another message, or there is no room now.
    fn lend(&mut self, message: &FromAgent) -> io::Result<bool> {
        let FromAgent::GuestReady { guest, .. } = message else { return Ok(false) };
        self.flush()?;
        let (Some(control), Some(outlets), true) =
            (&self.control, self.guests.outlets(*guest), self.only_greeted && self.outbound.is_empty())
        else {
            return Ok(false);
        };
        let frame = frame::encode(message).map_err(io::Error::other)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if !beside.push(SendAncillaryMessage::ScmRights(&outlets)) {
            return Ok(false);
        }
        match rustix::net::sendmsg(control, &[IoSlice::new(&frame)], &mut beside, flags) {
            Ok(sent) => {
                self.only_greeted = false;
                self.outbound.extend_from_slice(&frame[sent..]);
                Ok(true)
            }
            // A host that is gone is found to be when the message is sent without them.
            Err(_) => Ok(false),
        }
    }

    /// Applies a message to a task that may have ended meanwhile.
    fn with(&mut self, id: TaskId, act: impl FnOnce(&mut Running)) -> io::Result<()> {
        if let Some(running) = self.tasks.get_mut(&id) {
            act(running);
        }
        Ok(())
    }

    /// Tells the host what a task has to say.
    fn pass_on(&mut self, id: TaskId) -> io::Result<()> {
        let room = if self.control.is_some() { BACKLOG.saturating_sub(self.outbound.len()) } else { 0 };
        match self.tasks.get_mut(&id) {
            Some(running) if self.control.is_some() => {
                let said = running.take_said(room, Instant::now());
                said.iter().try_for_each(|message| self.say(message))
            }
            _ => Ok(()),
        }
    }

    /// Collects every child that ended: tasks, and orphans that landed on PID 1. What an orphan used is put down to the
    /// program that did not wait for it.
    fn reap(&mut self) -> io::Result<()> {
        let mut drained = [0; 1024];
        while rustix::io::read(&self.children, &mut drained).is_ok() {}
        loop {
            let pid = match look_for_ended()? {
                Children::Ended(pid) => pid,
                Children::Living => return Ok(()),
                Children::None => {
                    self.tasks.values_mut().for_each(|task| task.is_alone());
                    return Ok(());
                }
            };
            let session = rustix::process::getsid(Pid::from_raw(pid)).ok().map(Pid::as_raw_nonzero);
            let reaped = sandstorm_sys::process::reap(pid)?;
            if let Some(running) =
                self.tasks.values_mut().find(|t| t.pid == reaped.pid && t.guest.is_none() && t.is_alive())
            {
                running.ended(reaped);
                continue;
            }
            if let Some(running) = who_left(&mut self.tasks, session.map(NonZero::get)) {
                running.left(reaped);
            }
        }
    }

    /// Reports tasks whose process ended and whose output was passed on.
    fn finish(&mut self) -> io::Result<()> {
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            loop {
                self.pass_on(id)?;
                let roomy = self.outbound.len() < BACKLOG;
                let Some(running) = self.tasks.get_mut(&id) else { break };
                if !running.drain(roomy) {
                    break;
                }
            }
            if let Some(running) = self.tasks.get_mut(&id) {
                self.abandoned.extend(running.let_go());
            }
            self.pass_on(id)?;
        }
        Ok(())
    }

    /// Reads an abandoned pipe to nowhere; at its end, forgets it.
    fn swallow(&mut self, index: usize) {
        let mut buffer = [0; 4096];
        let Some(fd) = self.abandoned.get(index) else { return };
        match rustix::io::read(fd, &mut buffer) {
            Ok(n) if n > 0 => {}
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                self.abandoned.swap_remove(index);
            }
        }
    }

    fn say(&mut self, message: &FromAgent) -> io::Result<()> {
        self.only_greeted &= matches!(message, FromAgent::Ready { .. } | FromAgent::Held(_));
        frame::append(message, &mut self.outbound).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outbound.is_empty() {
            let Some(control) = &self.control else { return Ok(()) };
            match rustix::io::write(control, &self.outbound) {
                Ok(n) => {
                    self.outbound.drain(..n);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => self.lose_host(),
            }
        }
        Ok(())
    }
}

/// The program that left an orphan: the one in whose session it was. One that left its session can be of the only program that
/// there ever is; where programs come one after the other, it can be of any of them.
fn who_left(tasks: &mut BTreeMap<TaskId, Box<Running>>, session: Option<i32>) -> Option<&mut Box<Running>> {
    let only = tasks.len() == 1;
    tasks.values_mut().find(|task| session == Some(task.pid) || (only && task.is_last()))
}

/// Signals a task's whole process group: each program leads its own session.
pub(crate) fn signal_group(pid: i32, signal: i32) {
    let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) else { return };
    // The group may be gone, or not yet made because the child has not reached `setsid`: then the process itself.
    if rustix::process::kill_process_group(pid, signal).is_err() {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_that_left_its_session_is_of_the_only_program_that_there_ever_is() {
        let one = |last| BTreeMap::from([(1, Box::new(Running::of_program(7, 1, last)))]);
        let mut kept = one(false);
        assert!(who_left(&mut kept, Some(7)).is_some());
        assert!(
            who_left(&mut kept, Some(9)).is_none(),
            "what an earlier program left is put down to this one"
        );
        assert!(who_left(&mut kept, None).is_none());
        let mut run = one(true);
        assert!(who_left(&mut run, Some(9)).is_some());
        // A helper is beside it.
        run.insert(2, Box::new(Running::of_program(8, 2, false)));
        assert!(who_left(&mut run, Some(9)).is_none());
        assert_eq!(who_left(&mut run, Some(8)).unwrap().pid, 8);
    }
}
