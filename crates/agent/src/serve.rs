//! The agent's loop: one thread, one `poll`, no waiting anywhere else.
//!
//! Messages come in on the control socket, children report by SIGCHLD, pipes become ready. Output is read only while
//! the host has given credit for it and the socket is not backed up, so memory stays bounded whatever the programs do.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal};
use rustix::thread::CapabilitySets;

use crate::frame::{self, Decoder};
use crate::protocol::{FromAgent, Init, TaskId, ToAgent, VERSION};
use crate::task::{self, Progress, Running};

/// Past this many unsent bytes, no more output is taken from programs.
const BACKLOG: usize = 512 * 1024;

/// Serves the control socket until the host closes it. Returning ends PID 1 and with it the sandbox.
pub fn serve(control: OwnedFd) -> io::Result<()> {
    guard_self()?;
    rustix::io::ioctl_fionbio(&control, true)?;
    // Descriptors 0 to 3 stay occupied, so that no pipe is ever born at a number that a child replaces.
    occupy_low_descriptors()?;
    let children = sandstorm_sys::process::signal_descriptor(&[Signal::CHILD.as_raw()])?;
    let mut agent = Agent {
        control,
        children,
        decoder: Decoder::default(),
        outbound: Vec::new(),
        init: None,
        tasks: BTreeMap::new(),
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
    control: OwnedFd,
    children: OwnedFd,
    decoder: Decoder,
    outbound: Vec<u8>,
    init: Option<Init>,
    tasks: BTreeMap<TaskId, Running>,
    /// Pipes that outlived their task because a background process still holds the other end. They are read to
    /// nowhere: closing them would kill that process.
    abandoned: Vec<OwnedFd>,
}

/// What a polled descriptor stands for.
#[derive(Clone, Copy)]
enum Source {
    Control,
    Children,
    Task(TaskId, task::Port),
    Abandoned(usize),
}

impl Agent {
    /// One turn of the loop. `false`: the host is gone.
    fn turn(&mut self) -> io::Result<bool> {
        // From the last to the first, so that forgetting one does not move those still to come.
        let mut swallowed = Vec::new();
        for (source, events) in self.wait()? {
            match source {
                Source::Control => {
                    if events.intersects(PollFlags::OUT) {
                        self.flush()?;
                    }
                    if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                        && !self.receive()?
                    {
                        return Ok(false);
                    }
                }
                Source::Children => self.reap()?,
                Source::Task(id, port) => {
                    if let Some(running) = self.tasks.get_mut(&id) {
                        let said = running.advance(port);
                        self.say_all(said)?;
                    }
                }
                Source::Abandoned(index) => swallowed.push(index),
            }
        }
        for index in swallowed.into_iter().rev() {
            self.swallow(index);
        }
        self.finish()?;
        self.flush()?;
        Ok(true)
    }

    /// Waits until something is ready.
    fn wait(&self) -> io::Result<Vec<(Source, PollFlags)>> {
        let mut control = PollFlags::IN;
        if !self.outbound.is_empty() {
            control |= PollFlags::OUT;
        }
        let mut sources = vec![Source::Control, Source::Children];
        let mut fds = vec![PollFd::new(&self.control, control), PollFd::new(&self.children, PollFlags::IN)];
        let roomy = self.outbound.len() < BACKLOG;
        for (id, running) in &self.tasks {
            for (port, fd, events) in running.interests(roomy) {
                sources.push(Source::Task(*id, port));
                fds.push(PollFd::from_borrowed_fd(fd, events));
            }
        }
        for (index, fd) in self.abandoned.iter().enumerate() {
            sources.push(Source::Abandoned(index));
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        loop {
            match poll(&mut fds, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(sources
            .into_iter()
            .zip(fds.iter().map(PollFd::revents))
            .filter(|(_, events)| !events.is_empty())
            .collect())
    }

    /// Reads what the host sent. `false`: it closed the socket.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 64 * 1024];
        match rustix::io::read(&self.control, &mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => self.decoder.push(&buffer[..n]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
        while let Some(message) = self.decoder.take::<ToAgent>().map_err(io::Error::other)? {
            self.obey(message)?;
        }
        Ok(true)
    }

    fn obey(&mut self, message: ToAgent) -> io::Result<()> {
        match message {
            ToAgent::Init(init) => {
                if init.version != VERSION || self.init.is_some() {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                self.init = Some(init);
                self.say(&FromAgent::Ready { version: VERSION })
            }
            ToAgent::Start { id, task } => {
                let Some(init) = &self.init else {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                };
                match task::start(init, &task) {
                    Ok(running) => {
                        self.tasks.insert(id, running.named(id));
                        Ok(())
                    }
                    Err(failure) => self.say(&FromAgent::Failed { id, failure }),
                }
            }
            ToAgent::Input { id, to, bytes } => self.with(id, |t| t.input(to, &bytes)),
            ToAgent::CloseInput { id, to } => self.with(id, |t| t.close_input(to)),
            ToAgent::Credit { id, stream, bytes } => self.with(id, |t| t.credit(stream, bytes)),
            ToAgent::Resize { id, size } => self.with(id, |t| t.resize(size)),
            ToAgent::Signal { id, signal } => self.with(id, |t| t.signal(signal)),
        }
    }

    /// Applies a message to a task that may have ended meanwhile.
    fn with(&mut self, id: TaskId, act: impl FnOnce(&mut Running)) -> io::Result<()> {
        if let Some(running) = self.tasks.get_mut(&id) {
            act(running);
        }
        Ok(())
    }

    /// Collects every child that ended: tasks, and orphans that landed on PID 1.
    fn reap(&mut self) -> io::Result<()> {
        let mut drained = [0; 1024];
        while rustix::io::read(&self.children, &mut drained).is_ok() {}
        while let Some(reaped) = sandstorm_sys::process::reap_any()? {
            if let Some(running) = self.tasks.values_mut().find(|t| t.pid == reaped.pid && t.is_alive()) {
                running.ended(reaped);
            }
        }
        Ok(())
    }

    /// Reports tasks whose process ended and whose output was passed on.
    fn finish(&mut self) -> io::Result<()> {
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            while let Some(running) = self.tasks.get_mut(&id) {
                let said = running.drain(self.outbound.len() < BACKLOG);
                if said.is_empty() {
                    break;
                }
                self.say_all(said)?;
            }
        }
        let over: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| t.progress() == Progress::Over).map(|(id, _)| *id).collect();
        for id in over {
            if let Some(running) = self.tasks.remove(&id) {
                let (said, leftover) = running.farewell();
                self.say_all(said)?;
                self.abandoned.extend(leftover);
            }
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

    fn say_all(&mut self, messages: Vec<FromAgent>) -> io::Result<()> {
        messages.iter().try_for_each(|m| self.say(m))
    }

    fn say(&mut self, message: &FromAgent) -> io::Result<()> {
        self.outbound.extend(frame::encode(message).map_err(io::Error::other)?);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outbound.is_empty() {
            match rustix::io::write(&self.control, &self.outbound) {
                Ok(n) => {
                    self.outbound.drain(..n);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Signals a task's whole process group: each program leads its own session.
pub(crate) fn signal_group(pid: i32, signal: i32) {
    let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) else { return };
    // The group may be gone, or not yet made because the child has not reached `setsid`: then the process itself.
    if rustix::process::kill_process_group(pid, signal).is_err() {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
