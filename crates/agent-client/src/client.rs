//! The connection: one task that reads the socket, and writes what could not be written at once.

use std::convert::Infallible;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{
    FromAgent, Guest, Held, InputStream, OLDEST, PayloadWalls, Program, StartFailure, Tag, Task, TaskId,
    ToAgent, VERSION,
};
use sandstorm_provider::Tasks;
use serde_bytes::ByteBuf;
use tokio::sync::{SemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::link::{Link, LinkState, Slot};
use crate::outbox::Outbox;
use crate::outlets::Outlets;
use crate::program::Named;
use crate::socket::Socket;
use crate::{AgentError, TaskEvent, TaskHandle, TaskInput};

/// How long programs that were killed may take before they are killed once more.
const END_AGAIN: Duration = Duration::from_millis(500);

/// Speaks with one agent.
#[derive(Debug, Clone)]
pub struct AgentClient {
    link: Arc<Link>,
    next: Arc<AtomicU32>,
    /// The guest whose program ended without the agent having heard of it.
    untold: Arc<Mutex<Option<u32>>>,
    stop: CancellationToken,
}

impl AgentClient {
    /// Takes the socket over. The agent's greeting is waited for by [`AgentClient::ready`].
    pub fn new(socket: OwnedFd, tasks: &Tasks) -> io::Result<Self> {
        Self::taking_over(socket, tasks, 0)
    }

    /// The same of an agent that had another host before, which left at most so many tasks: what the agent keeps of each
    /// comes with its greeting, and is held here until somebody takes it.
    pub fn taking_over(socket: OwnedFd, tasks: &Tasks, most_held: u32) -> io::Result<Self> {
        let socket = Arc::new(Socket::new(socket)?);
        let link = Arc::new(Link::new(Outbox::new(Arc::clone(&socket)), most_held));
        let stop = CancellationToken::new();
        let (connected, stopped) = (Connected(Arc::clone(&link)), stop.clone());
        tasks.start("agent", async move {
            let link = &connected.0;
            let speak = async {
                // One that takes nothing any more may still have said something.
                let write = async {
                    link.empty_outbox().await;
                    std::future::pending::<Infallible>().await
                };
                tokio::select! {
                    biased;
                    read = read(&socket, link) => read,
                    never = write => match never {},
                }
            };
            if let Some(Err(error)) = stopped.run_until_cancelled(speak).await {
                tracing::warn!(%error, "an agent's connection is given up");
                link.lose(error);
            }
        });
        Ok(Self { link, next: Arc::new(AtomicU32::new(1)), untold: Arc::default(), stop })
    }

    /// Waits until the agent is up and has told what it held.
    pub async fn ready(&self) -> Result<(), AgentError> {
        let mut state = self.link.state.subscribe();
        let reached = state
            .wait_for(|state| matches!(state, LinkState::Ready | LinkState::Lost(_)))
            .await
            .map_err(|_| AgentError::Gone)?;
        match &*reached {
            LinkState::Lost(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Closes the connection. An agent that waits for no other host ends with it.
    pub fn close(&self) {
        self.stop.cancel();
    }

    /// Whether nobody is there to speak to any more, as the kernel knows it now.
    pub fn is_gone(&self) -> bool {
        self.link.is_over()
    }

    /// Waits until the connection is over.
    pub async fn lost(&self) {
        let mut state = self.link.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, LinkState::Lost(_))).await;
    }

    /// Ends every process in the sandbox but the agent, and waits until all tasks are told to have ended. Again and again,
    /// since something may just have been about to begin; what does not end within `patience` is an error. `false`: the agent
    /// is of an older server, and does not know how.
    pub async fn end_all(&self, patience: Duration) -> Result<bool, AgentError> {
        let all_ended = async {
            loop {
                if !self.link.end_all()? {
                    return Ok(false);
                }
                if tokio::time::timeout(END_AGAIN, self.link.is_idle()).await.is_ok() {
                    return Ok(true);
                }
            }
        };
        tokio::select! {
            ended = tokio::time::timeout(patience, all_ended) => {
                ended.unwrap_or(Err(AgentError::Unending))
            }
            () = self.lost() => Err(AgentError::Gone),
        }
    }

    /// The tasks that an earlier host left, once the agent is ready.
    pub fn take_held(&self) -> Vec<(Held, TaskHandle)> {
        let held = self.link.take_held();
        // An earlier host was here, even if nothing of its own is left.
        let highest = held.iter().map(|(held, _)| held.id).max().unwrap_or(1);
        self.next.fetch_max(highest.saturating_add(1), Ordering::Relaxed);
        held
    }

    /// Whether nothing was ever started in the sandbox.
    pub fn is_untouched(&self) -> bool {
        self.next.load(Ordering::Relaxed) == 1
    }

    /// The version of the protocol that the agent speaks, once it is there.
    pub(crate) async fn version(&self) -> Result<u16, AgentError> {
        self.link.version().await
    }

    /// Waits for this sandbox's turn for one more upload, which lasts until it is dropped.
    pub(crate) async fn upload_turn(&self) -> Result<SemaphorePermit<'_>, AgentError> {
        self.link.uploads.acquire().await.map_err(|_| AgentError::Gone)
    }

    /// Starts a task. The first event tells whether it began. One with a tag outlives this connection.
    pub fn start(&self, task: Task, lasting: Option<Tag>) -> Result<TaskHandle, AgentError> {
        self.begin(task, lasting, None)
    }

    /// Starts a task together with all of its input, which is no longer than [`sandstorm_agent::protocol::CHUNK`].
    pub fn start_with(
        &self,
        task: Task,
        lasting: Option<Tag>,
        input: &[u8],
    ) -> Result<TaskHandle, AgentError> {
        self.begin(task, lasting, Some(input))
    }

    fn begin(
        &self,
        task: Task,
        lasting: Option<Tag>,
        input: Option<&[u8]>,
    ) -> Result<TaskHandle, AgentError> {
        let id: TaskId = self.next.fetch_add(1, Ordering::Relaxed);
        let sent = input.map_or(0, <[u8]>::len) as u32;
        let mut handle = open(&self.link, id, [sent, 0], lasting.is_some()).ok_or(AgentError::Gone)?;
        if let LinkState::Lost(error) = &*self.link.state.borrow() {
            return Err(error.clone());
        }
        handle.named = Named::of(&task);
        let mut messages = self.take_untold();
        messages.push(ToAgent::Start { id, lasting, task });
        if let Some(bytes) = input {
            let to = InputStream::Main;
            if !bytes.is_empty() {
                messages.push(ToAgent::Input { id, to, bytes: ByteBuf::from(bytes) });
            }
            messages.push(ToAgent::CloseInput { id, to });
        }
        self.link.say_all(&messages).map(|()| handle)
    }

    /// Waits until a guest waits for a program, and gives what it measured of itself.
    pub async fn guest_ready(&self, guest: u32) -> Result<PayloadWalls, AgentError> {
        let mut guests = self.link.guests.subscribe();
        let told = tokio::select! {
            told = guests.wait_for(|guests| guests.contains_key(&guest)) => told.map_err(|_| AgentError::Gone)?,
            () = self.lost() => return Err(AgentError::Gone),
        };
        match told.get(&guest) {
            Some(Ok(walls)) => Ok(*walls),
            Some(Err(failure)) => Err(AgentError::Guest(failure.clone())),
            None => Err(AgentError::Gone),
        }
    }

    /// The ends from which the output of a guest is read, if its agent lent them.
    pub fn take_outlets(&self, guest: u32) -> Option<Outlets> {
        self.link.take_outlets(guest)
    }

    /// The task of a program that a guest ran to its end without the agent. The agent hears of it before anything else is
    /// started, and when it is told to end what the program left.
    pub fn ended_task_of(&self, guest: u32, story: Vec<TaskEvent>) -> TaskHandle {
        let task = self.ended_task(story);
        *self.untold.lock().unwrap_or_else(PoisonError::into_inner) = Some(guest);
        task
    }

    pub fn has_untold(&self) -> bool {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Has the agent end what such a program left, unless it has.
    pub fn end_remains(&self) {
        if self.has_untold() {
            // A sandbox that is gone has left nothing.
            let _ = self.link.say_all(&self.take_untold());
        }
    }

    fn take_untold(&self) -> Vec<ToAgent> {
        let untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(guest) = untold.map(Guest::Handed) else { return Vec::new() };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let task = Task::Program(Program { guest: Some(guest), last: true, ..Program::default() });
        vec![ToAgent::Start { id, lasting: None, task }, ToAgent::Forget { id }]
    }

    /// A task of which this is all that is ever heard.
    pub fn ended_task(&self, story: Vec<TaskEvent>) -> TaskHandle {
        let id: TaskId = self.next.fetch_add(1, Ordering::Relaxed);
        let (events, receiver) = mpsc::unbounded_channel();
        for event in story {
            let _ = events.send(event);
        }
        let input = TaskInput { link: Arc::clone(&self.link), id, to: InputStream::Main };
        TaskHandle::new(input, receiver, false)
    }

    /// Takes a guest for a program. `false`: it does not wait any more.
    pub fn take_guest(&self, guest: u32) -> bool {
        self.link.take_guest(guest)
    }

    /// Ends a guest that waits.
    pub fn dismiss(&self, guest: u32) {
        self.link.take_guest(guest);
        let _ = self.link.say(&ToAgent::Dismiss { guest });
    }
}

/// While this is held, the socket is read. When it goes, the connection is over.
struct Connected(Arc<Link>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.lose(AgentError::Gone);
    }
}

/// A place for a task's events. `None`: there is one of that number.
fn open(link: &Arc<Link>, id: TaskId, pending: [u32; 2], lasting: bool) -> Option<TaskHandle> {
    let (events, receiver) = mpsc::unbounded_channel();
    let input = TaskInput { link: Arc::clone(link), id, to: InputStream::Main };
    link.insert(id, Slot::new(events, pending)).then(|| TaskHandle::new(input, receiver, lasting))
}

async fn read(socket: &Socket, link: &Arc<Link>) -> Result<(), AgentError> {
    let mut decoder = Decoder::default();
    if !meet(socket, link, &mut decoder).await? {
        return Ok(());
    }
    loop {
        let came = socket.read(|socket| {
            let room = decoder.room();
            let spare = room.capacity() - room.len();
            let n = rustix::io::read(socket, rustix::buffer::spare_capacity(room))?;
            Ok((n, n == spare))
        });
        match came.await {
            Ok(n) if n > 0 => {}
            Ok(_) | Err(_) => return Ok(()),
        }
        while let Some(message) = take_message(&mut decoder)? {
            dispatch(message, link)?;
        }
    }
}

/// Longest reading while descriptors may come beside it.
const FIRST_WORDS: usize = 512;

/// Reads until something else than greetings comes: the outlets of a guest that was put there ahead come beside its own. All
/// that come later are let go by the kernel. `false`: the connection is over.
async fn meet(socket: &Socket, link: &Arc<Link>, decoder: &mut Decoder) -> Result<bool, AgentError> {
    let mut outlets = None;
    loop {
        let came = socket.read(|socket| {
            let mut bytes = [0; FIRST_WORDS];
            let (n, beside) = receive(socket, &mut bytes)?;
            decoder.push(&bytes[..n]);
            // A reading ends where something came beside it.
            let more = n == FIRST_WORDS || beside.is_some();
            Ok(((n, beside.and_then(Outlets::checked)), more))
        });
        match came.await {
            Ok((n, beside)) if n > 0 => outlets = beside.or(outlets),
            Ok(_) | Err(_) => return Ok(false),
        }
        while let Some(message) = take_message(decoder)? {
            let greets = matches!(message, FromAgent::Ready { .. } | FromAgent::Held(_));
            if let FromAgent::GuestReady { guest, .. } = &message
                && let Some(outlets) = outlets.take()
            {
                link.lent(*guest, outlets);
            }
            dispatch(message, link)?;
            if !greets {
                while let Some(message) = take_message(decoder)? {
                    dispatch(message, link)?;
                }
                return Ok(true);
            }
        }
    }
}

/// One reading, and what came beside it.
fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> rustix::io::Result<(usize, Option<Vec<OwnedFd>>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut beside, flags)?;
    let mut descriptors = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.get_or_insert_with(Vec::new).extend(came);
        }
    }
    Ok((received.bytes, descriptors))
}

fn take_message(decoder: &mut Decoder) -> Result<Option<FromAgent>, AgentError> {
    decoder.take().map_err(|_| AgentError::Protocol("a frame that is no message"))
}

fn dispatch(message: FromAgent, link: &Arc<Link>) -> Result<(), AgentError> {
    let (id, event) = match message {
        FromAgent::Ready { version, held } => return greeted(link, version, held),
        FromAgent::Held(held) => return told(link, held),
        FromAgent::Credit { id, to, bytes } => {
            if let Some(gate) = link.gate(id, to) {
                gate.credit(bytes);
            }
            return Ok(());
        }
        FromAgent::Taken { id, to: InputStream::Main, bytes } => return link.taken(id, bytes),
        FromAgent::Taken { .. } => return Err(AgentError::Protocol("an answer without a question")),
        FromAgent::GuestReady { guest, walls } => return link.met(guest, Ok(walls)),
        FromAgent::GuestFailed { guest, failure } => return link.met(guest, Err(cut(failure))),
        FromAgent::Started { id, walls } => (id, TaskEvent::Started(walls)),
        FromAgent::Failed { id, failure } => (id, TaskEvent::Failed(cut(failure))),
        FromAgent::Output { id, stream, bytes } => {
            (id, TaskEvent::Output { stream, bytes: Bytes::from(bytes.into_vec()) })
        }
        FromAgent::Closed { id, .. } => (id, TaskEvent::Closed),
        FromAgent::Exited { id, ending, usage } => (id, TaskEvent::Exited { ending, usage }),
    };
    link.deliver(id, event)
}

/// Our own words are short; a hostile agent's are cut.
fn cut(mut failure: StartFailure) -> StartFailure {
    failure.step = failure.step.chars().take(100).collect();
    failure
}

fn greeted(link: &Link, version: u16, held: u32) -> Result<(), AgentError> {
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(AgentError::Protocol("another version"));
    }
    if *link.state.borrow() != LinkState::Starting || held > link.most_held {
        return Err(AgentError::Protocol("a greeting that is none"));
    }
    link.greeted(version);
    link.state.send_replace(if held == 0 { LinkState::Ready } else { LinkState::Telling(held) });
    Ok(())
}

fn told(link: &Arc<Link>, held: Held) -> Result<(), AgentError> {
    let LinkState::Telling(left) = *link.state.borrow() else {
        return Err(AgentError::Protocol("a task that nobody asked for"));
    };
    let handle =
        open(link, held.id, held.pending, true).ok_or(AgentError::Protocol("a task that is told twice"))?;
    link.hold(held, handle);
    link.state.send_replace(if left <= 1 { LinkState::Ready } else { LinkState::Telling(left - 1) });
    Ok(())
}
