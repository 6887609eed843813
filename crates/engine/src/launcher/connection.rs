//! One connection to one launcher: who waits for which answer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_agent_client::socket::Socket;
use sandstorm_jail::cgroup::{Counters, Meter};
use sandstorm_jail::launcher::{Answer, Ended, Launched, Refusal, Request, TransplantReport};
use sandstorm_jail::packet;
use tokio::sync::{mpsc, oneshot, watch};

use super::Listed;
use crate::guest::WaitingGuest;

/// Ends of jails that nobody here knows, kept for whoever asks.
const UNHEARD: usize = 4096;

/// How often it is asked for a sign of life while anybody waits for it.
const PULSE: Duration = Duration::from_secs(1);
/// A launcher answers that at once unless something is wrong with it, or with the whole machine.
const SILENCE: Duration = Duration::from_secs(10);
/// By then its guardian has replaced it, if there is one that can.
const HOPELESS: Duration = Duration::from_secs(90);

type LaunchAnswer = Result<(Launched, Vec<OwnedFd>), Refusal>;
type DoneAnswer = Result<Given, Refusal>;
type TransplantAnswer = Result<TransplantReport, Refusal>;

/// What comes with an answer to something that was asked of one jail.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) meter: Option<Meter>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Who waits for answers about each jail.
type Queues<T> = HashMap<String, VecDeque<oneshot::Sender<T>>>;

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    waiting: Mutex<Waiting>,
    /// Whether the launcher has not answered for too long.
    silent: watch::Sender<bool>,
}

/// Who waits for which answer.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    launches: HashMap<String, oneshot::Sender<LaunchAnswer>>,
    /// Answered in the order of asking, each by a reading of its own: one that was taken before is not good enough.
    counts: Queues<Option<Counters>>,
    /// Everything else that is asked of one jail: answered in the order of asking.
    done: Queues<DoneAnswer>,
    joins: Queues<Result<WaitingGuest, Refusal>>,
    transplants: Queues<TransplantAnswer>,
    lists: VecDeque<(mpsc::UnboundedSender<Listed>, oneshot::Sender<()>)>,
    ends: HashMap<String, oneshot::Sender<Ended>>,
    /// Jails whose end nobody waits for, and for which there was no room to say so.
    unsaid: Vec<String>,
    unheard: Vec<Ended>,
    closed: bool,
    replaced: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::new(socket)?,
            waiting: Mutex::default(),
            silent: watch::Sender::new(false),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and gives what the answer will come by. Where answers are told apart by their order, it is the order in
    /// which requests were sent: whoever waits is noted in the moment of sending, and nobody for what was not sent.
    pub(super) async fn ask<T>(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        expect: impl FnOnce(&mut Waiting, oneshot::Sender<T>),
    ) -> io::Result<oneshot::Receiver<T>> {
        let mut expect = Some(expect);
        loop {
            match self.try_ask(request, descriptors, &mut expect) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.socket.writable().await?,
                sent => {
                    return sent.inspect_err(|error| tracing::error!(%error, "the launcher cannot be asked"));
                }
            }
        }
    }

    fn try_ask<T>(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        expect: &mut Option<impl FnOnce(&mut Waiting, oneshot::Sender<T>)>,
    ) -> io::Result<oneshot::Receiver<T>> {
        let mut waiting = self.waiting();
        packet::send(self.socket.as_fd(), request, descriptors)?;
        Ok(waiting.expect(expect.take()))
    }

    /// The same without waiting for room.
    pub(super) fn ask_now<T>(
        &self,
        request: &Request,
        expect: impl FnOnce(&mut Waiting, oneshot::Sender<T>),
    ) -> io::Result<oneshot::Receiver<T>> {
        self.try_ask(request, &[], &mut Some(expect))
    }

    /// Says something to which there is no answer.
    pub(super) async fn send(&self, request: &Request) -> io::Result<()> {
        self.ask(request, &[], |_, _: oneshot::Sender<()>| {}).await.map(drop)
    }

    /// Asks for a jail's end: now, or as soon as there is room.
    pub(super) fn kill_now(&self, name: &str) {
        let sent = packet::send(self.socket.as_fd(), &Request::Kill { name: name.to_owned() }, &[]);
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.waiting().unsaid.push(name.to_owned());
        }
    }

    /// Whether the launcher has not answered for too long.
    pub(super) fn is_silent(&self) -> bool {
        *self.silent.borrow()
    }

    /// Waits until it has not.
    pub(super) async fn silence(&self) {
        let mut silent = self.silent.subscribe();
        if silent.wait_for(|silent| *silent).await.is_err() {
            std::future::pending().await
        }
    }

    /// Watches over the launcher while somebody waits for it. Ends when it is not coming back.
    pub(super) async fn watch(&self) {
        loop {
            tokio::time::sleep(PULSE).await;
            if !self.waiting().is_awaited() {
                continue;
            }
            let mut answer = pin!(self.say_what_was_left());
            if tokio::time::timeout(SILENCE, &mut answer).await.is_ok() {
                continue;
            }
            tracing::error!("the launcher does not answer");
            self.silent.send_replace(true);
            if tokio::time::timeout(HOPELESS, &mut answer).await.is_err() {
                return;
            }
            tracing::info!("the launcher answers again");
            self.silent.send_replace(false);
        }
    }

    /// Asks for the ends that there was no room for, and waits for an answer to something that is behind them.
    async fn say_what_was_left(&self) {
        let unsaid = std::mem::take(&mut self.waiting().unsaid);
        for name in unsaid {
            let _ = self.send(&Request::Kill { name }).await;
        }
        let nobody = Request::Count { name: String::new() };
        if let Ok(answer) = self.ask(&nobody, &[], count("")).await {
            let _ = answer.await;
        }
    }

    pub(super) fn expect_end(&self, name: &str) -> oneshot::Receiver<Ended> {
        self.waiting().expect(Some(|waiting: &mut Waiting, sender| {
            waiting.ends.insert(name.to_owned(), sender);
        }))
    }

    pub(super) fn expect_no_end(&self, name: &str) {
        self.waiting().ends.remove(name);
    }

    pub(super) fn take_unheard(&self) -> Vec<Ended> {
        std::mem::take(&mut self.waiting().unheard)
    }

    /// Ends every jail that the launcher keeps.
    pub(super) async fn end_everything(&self) {
        let (sender, mut listed) = mpsc::unbounded_channel();
        let Ok(done) = self.ask(&Request::List, &[], list(sender)).await else { return };
        if done.await.is_err() {
            return;
        }
        while let Ok(one) = listed.try_recv() {
            tracing::warn!(jail = one.name, "a jail that was given up is ended");
            let _ = self.send(&Request::Kill { name: one.name }).await;
        }
    }

    /// Reads answers until there are no more.
    pub(super) async fn read(&self) {
        loop {
            let came = self.socket.read(|socket| Ok((packet::receive::<Answer>(socket)?, true)));
            match came.await {
                Ok(Some((answer, descriptors))) => self.hear(answer, descriptors),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Everybody who waits hears that there will be no answer. Whoever waits for the end of a jail hears nothing if
    /// another process has the jails now: they live.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting();
        let replaced = waiting.replaced;
        let ends = if replaced { std::mem::take(&mut waiting.ends) } else { HashMap::new() };
        *waiting = Waiting { closed: true, replaced, ends, ..Waiting::default() };
    }

    /// Whether another process has taken the jails over.
    pub(super) fn is_replaced(&self) -> bool {
        self.waiting().replaced
    }

    fn hear(&self, answer: Answer, mut descriptors: Vec<OwnedFd>) {
        let mut waiting = self.waiting();
        match answer {
            Answer::Launched(launched) => {
                if let Some(waiter) = waiting.launches.remove(&launched.name) {
                    let _ = waiter.send(Ok((launched, descriptors)));
                }
            }
            // A jail that is being made has no other request out.
            Answer::Refused { name, refusal } => match waiting.launches.remove(&name) {
                Some(waiter) => drop(waiter.send(Err(refusal))),
                None => tell(&mut waiting.done, &name, Err(refusal)),
            },
            Answer::Done { name } => tell(&mut waiting.done, &name, Ok(Given::default())),
            Answer::Adopted { name, meter } => {
                tell(&mut waiting.done, &name, Ok(Given { meter, descriptors }));
            }
            Answer::Captured { name } => {
                tell(&mut waiting.done, &name, Ok(Given { meter: None, descriptors }));
            }
            Answer::Counted { name, counters } => tell(&mut waiting.counts, &name, counters),
            Answer::Joined { name, guest } => {
                let guest = WaitingGuest::new(guest, descriptors.pop());
                tell(&mut waiting.joins, &name, Ok(guest));
            }
            Answer::NotJoined { name, refusal } => tell(&mut waiting.joins, &name, Err(refusal)),
            Answer::Transplanted { name, report } => tell(&mut waiting.transplants, &name, Ok(report)),
            Answer::NotTransplanted { name, refusal } => tell(&mut waiting.transplants, &name, Err(refusal)),
            Answer::Listed { name, paused } => {
                if let (Some((listed, _)), Some(cookie)) = (waiting.lists.front(), descriptors.pop()) {
                    let _ = listed.send(Listed { name, paused, cookie });
                }
            }
            Answer::AllListed => {
                if let Some((_, done)) = waiting.lists.pop_front() {
                    let _ = done.send(());
                }
            }
            Answer::Replaced => waiting.replaced = true,
            Answer::Ended(ended) => match waiting.ends.remove(&ended.name) {
                Some(waiter) => drop(waiter.send(ended)),
                None if waiting.unheard.len() < UNHEARD => waiting.unheard.push(ended),
                None => {}
            },
        }
    }
}

impl Waiting {
    /// Whether somebody waits for an answer, or has something to say. Ends of jails come when they come.
    fn is_awaited(&self) -> bool {
        let Self { launches, counts, done, joins, transplants, lists, unsaid, .. } = self;
        !(launches.is_empty()
            && counts.is_empty()
            && done.is_empty()
            && joins.is_empty()
            && transplants.is_empty()
            && lists.is_empty()
            && unsaid.is_empty())
    }

    /// Notes who waits, unless no answer can come any more: then the receiver hears that at once.
    fn expect<T>(
        &mut self,
        expect: Option<impl FnOnce(&mut Self, oneshot::Sender<T>)>,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        if let (Some(expect), false) = (expect, self.closed) {
            expect(self, sender);
        }
        receiver
    }
}

/// What to wait for, by the kind of answer.
pub(super) fn launch(name: &str) -> impl FnOnce(&mut Waiting, oneshot::Sender<LaunchAnswer>) {
    |waiting, sender| drop(waiting.launches.insert(name.to_owned(), sender))
}

pub(super) fn count(name: &str) -> impl FnOnce(&mut Waiting, oneshot::Sender<Option<Counters>>) {
    |waiting, sender| wait(&mut waiting.counts, name, sender)
}

pub(super) fn done(name: &str) -> impl FnOnce(&mut Waiting, oneshot::Sender<DoneAnswer>) {
    |waiting, sender| wait(&mut waiting.done, name, sender)
}

pub(super) fn join(name: &str) -> impl FnOnce(&mut Waiting, oneshot::Sender<Result<WaitingGuest, Refusal>>) {
    |waiting, sender| wait(&mut waiting.joins, name, sender)
}

pub(super) fn transplant(name: &str) -> impl FnOnce(&mut Waiting, oneshot::Sender<TransplantAnswer>) {
    |waiting, sender| wait(&mut waiting.transplants, name, sender)
}

pub(super) fn list(listed: mpsc::UnboundedSender<Listed>) -> impl FnOnce(&mut Waiting, oneshot::Sender<()>) {
    |waiting, sender| waiting.lists.push_back((listed, sender))
}

fn wait<T>(queues: &mut Queues<T>, name: &str, sender: oneshot::Sender<T>) {
    queues.entry(name.to_owned()).or_default().push_back(sender);
}

/// Answers whoever has waited longest.
fn tell<T>(queues: &mut Queues<T>, name: &str, answer: T) {
    let Some(waiters) = queues.get_mut(name) else { return };
    if let Some(waiter) = waiters.pop_front() {
        let _ = waiter.send(answer);
    }
    if waiters.is_empty() {
        queues.remove(name);
    }
}
