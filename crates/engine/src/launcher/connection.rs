//! One connection to one launcher: who waits for which answer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandstorm_jail::cgroup::Counters;
use sandstorm_jail::launcher::{Answer, Ended, Launched, Refusal, Request};
use sandstorm_jail::packet;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use super::Listed;

/// Ends of jails that nobody here knows, kept for whoever asks.
const UNHEARD: usize = 4096;

type LaunchAnswer = Result<(Launched, Vec<OwnedFd>), Refusal>;
type DoneAnswer = Result<Vec<OwnedFd>, Refusal>;

#[derive(Debug)]
pub(super) struct Connection {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    launches: HashMap<String, oneshot::Sender<LaunchAnswer>>,
    counts: HashMap<String, Vec<oneshot::Sender<Option<Counters>>>>,
    /// Everything else that is asked of one jail: answered in the order of asking.
    done: HashMap<String, VecDeque<oneshot::Sender<DoneAnswer>>>,
    lists: VecDeque<(mpsc::UnboundedSender<Listed>, oneshot::Sender<()>)>,
    ends: HashMap<String, oneshot::Sender<Ended>>,
    unheard: Vec<Ended>,
    closed: bool,
    replaced: bool,
}

impl Connection {
    #[expect(
        deprecated,
        reason = "sound here: the descriptor is owned and never replaced; the successor is unsafe"
    )]
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket: AsyncFd::new(socket)?, waiting: Mutex::default() })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer, unless none can come any more: then the receiver hears that at once.
    fn expect<T>(&self, put: impl FnOnce(&mut Waiting, oneshot::Sender<T>)) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting();
        if !waiting.closed {
            put(&mut waiting, sender);
        }
        receiver
    }

    pub(super) fn expect_launch(&self, name: &str) -> oneshot::Receiver<LaunchAnswer> {
        self.expect(|waiting, sender| {
            waiting.launches.insert(name.to_owned(), sender);
        })
    }

    pub(super) fn expect_count(&self, name: &str) -> oneshot::Receiver<Option<Counters>> {
        self.expect(|waiting, sender| waiting.counts.entry(name.to_owned()).or_default().push(sender))
    }

    pub(super) fn expect_done(&self, name: &str) -> oneshot::Receiver<DoneAnswer> {
        self.expect(|waiting, sender| waiting.done.entry(name.to_owned()).or_default().push_back(sender))
    }

    pub(super) fn expect_list(&self, listed: mpsc::UnboundedSender<Listed>) -> oneshot::Receiver<()> {
        self.expect(|waiting, sender| waiting.lists.push_back((listed, sender)))
    }

    pub(super) fn expect_end(&self, name: &str) -> oneshot::Receiver<Ended> {
        self.expect(|waiting, sender| {
            waiting.ends.insert(name.to_owned(), sender);
        })
    }

    pub(super) fn expect_no_end(&self, name: &str) {
        self.waiting().ends.remove(name);
    }

    pub(super) fn take_unheard(&self) -> Vec<Ended> {
        std::mem::take(&mut self.waiting().unheard)
    }

    pub(super) async fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.socket.writable().await?;
            match ready.try_io(|socket| packet::send(socket.as_fd(), request, descriptors)) {
                Ok(sent) => {
                    return sent.inspect_err(|error| tracing::error!(%error, "the launcher cannot be asked"));
                }
                Err(_would_block) => {}
            }
        }
    }

    /// Ends every jail that the launcher keeps.
    pub(super) async fn end_everything(&self) {
        let (sender, mut listed) = mpsc::unbounded_channel();
        let done = self.expect_list(sender);
        if self.send(&Request::List, &[]).await.is_err() || done.await.is_err() {
            return;
        }
        while let Ok(one) = listed.try_recv() {
            tracing::warn!(jail = one.name, "a jail that was given up is ended");
            let _ = self.send(&Request::Kill { name: one.name }, &[]).await;
        }
    }

    pub(super) fn send_now(&self, request: &Request) {
        let _ = packet::send(self.socket.as_fd(), request, &[]);
    }

    /// Reads answers until there are no more.
    pub(super) async fn read(&self) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return };
            match ready.try_io(|socket| packet::receive::<Answer>(socket.as_fd())) {
                Ok(Ok(Some((answer, descriptors)))) => self.hear(answer, descriptors),
                Ok(Ok(None) | Err(_)) => return,
                Err(_would_block) => {}
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
                None => waiting.done(&name, Err(refusal)),
            },
            Answer::Done { name } => waiting.done(&name, Ok(Vec::new())),
            Answer::Adopted { name } | Answer::Captured { name } => waiting.done(&name, Ok(descriptors)),
            Answer::Counted { name, counters } => {
                for waiter in waiting.counts.remove(&name).unwrap_or_default() {
                    let _ = waiter.send(counters.clone());
                }
            }
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
    fn done(&mut self, name: &str, answer: DoneAnswer) {
        let Some(waiters) = self.done.get_mut(name) else { return };
        if let Some(waiter) = waiters.pop_front() {
            let _ = waiter.send(answer);
        }
        if waiters.is_empty() {
            self.done.remove(name);
        }
    }
}
