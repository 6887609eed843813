//! The launcher's loop: requests, jails that end, limits that are reached.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::clients::Clients;
use super::protocol::{Answer, EndCause, Ended, Refusal, Request};
use super::ward::Ward;
use super::{Workshop, birth, timespec};
use crate::error::{JailError, doing};
use crate::instance::sweep_dead;
use crate::spec::JailSpec;

/// Ends that are kept for the next client.
const UNHEARD: usize = 4096;

pub(super) struct State {
    clients: Clients,
    workshop: Workshop,
    wards: Vec<Ward>,
    /// Pauses that were asked for and are not settled yet.
    pausing: Vec<String>,
    unheard: Vec<Ended>,
}

impl State {
    pub(super) fn new(clients: Clients, workshop: Workshop) -> Self {
        Self { clients, workshop, wards: Vec::new(), pausing: Vec::new(), unheard: Vec::new() }
    }

    /// Serves until there is nothing left to do.
    pub(super) fn run(mut self) -> Result<(), JailError> {
        let served = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        // Whatever went wrong, no jail outlives its launcher.
        self.end();
        served
    }

    /// Waits for one thing and deals with it. `false`: it is over.
    fn turn(&mut self) -> Result<bool, JailError> {
        let (sockets, due) = self.wait().map_err(doing("wait for jails"))?;
        for index in due {
            self.wards[index].look();
        }
        self.settle_pauses();
        let over: Vec<usize> = (0..self.wards.len()).filter(|i| self.wards[*i].is_over()).rev().collect();
        for index in over {
            let ended = self.wards.swap_remove(index).bury();
            self.tell_end(ended);
        }
        if self.clients.welcome(&sockets) {
            self.take_back_pauses();
            for ended in std::mem::take(&mut self.unheard) {
                self.tell_end(ended);
            }
        }
        if let Some((request, descriptors)) = self.clients.hear(&sockets)? {
            if request == Request::Shutdown {
                return Ok(false);
            }
            self.obey(request, descriptors);
        }
        Ok(!self.clients.are_over(self.wards.is_empty()))
    }

    fn obey(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
        match request {
            Request::Launch { mut spec, keep } => {
                let cookie = descriptors.pop().filter(|_| keep);
                match self
                    .may_launch(&mut spec)
                    .and_then(|()| birth::launch(&mut self.workshop, &spec, cookie))
                {
                    Ok((ward, launched, descriptors)) => {
                        // Ours to end before anybody hears of it: the client may be gone by now.
                        self.wards.push(ward);
                        self.answer_with(&Answer::Launched(launched), &descriptors);
                    }
                    Err(e) => self.refuse(spec.name, &e),
                }
            }
            Request::Kill { name } => {
                if let Ok(ward) = self.ward(&name) {
                    ward.kill(EndCause::Asked);
                }
            }
            Request::Count { name } => {
                let counters = self.ward(&name).ok().map(|ward| ward.counters());
                self.answer(&Answer::Counted { name, counters });
            }
            Request::Pause { name } => match self.ward(&name).and_then(Ward::pause) {
                Ok(()) => {
                    self.pausing.push(name);
                    self.settle_pauses();
                }
                Err(e) => self.refuse(name, &e),
            },
            Request::Resume { name } => {
                let resumed = self.ward(&name).and_then(Ward::resume);
                self.done(name, resumed);
            }
            Request::List => self.list(),
            Request::Adopt { name } => match self.ward(&name).and_then(|ward| ward.adopt()) {
                Ok(descriptors) => self.answer_with(&Answer::Adopted { name }, &descriptors),
                Err(e) => self.refuse(name, &e),
            },
            Request::Note { name } => {
                let cookie = descriptors.pop().ok_or(JailError::Gone);
                let noted = cookie.and_then(|cookie| self.ward(&name)?.note(cookie));
                self.done(name, noted);
            }
            Request::Capture { name } => match self.ward(&name).and_then(Ward::capture) {
                Ok(descriptors) => self.answer_with(&Answer::Captured { name }, &descriptors),
                Err(e) => self.refuse(name, &e),
            },
            Request::Shutdown => {}
        }
    }

    fn may_launch(&mut self, spec: &mut JailSpec) -> Result<(), JailError> {
        // It becomes part of paths on the host.
        let letters = spec.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if spec.name.is_empty() || spec.name.len() > 64 || !letters {
            return Err(JailError::Name(spec.name.clone()));
        }
        if self.ward(&spec.name).is_ok() {
            return Err(JailError::Exists);
        }
        match &self.workshop.sources {
            Some(sources) => sources.confine(&mut spec.root),
            None => Ok(()),
        }
    }

    fn ward(&mut self, name: &str) -> Result<&mut Ward, JailError> {
        self.wards.iter_mut().find(|ward| ward.name() == name).ok_or(JailError::Gone)
    }

    fn list(&mut self) {
        let listed: Vec<_> = self
            .wards
            .iter()
            .filter_map(|ward| {
                let cookie = ward.cookie()?.try_clone_to_owned().ok()?;
                Some((Answer::Listed { name: ward.name().to_owned(), paused: ward.is_paused() }, cookie))
            })
            .collect();
        for (answer, cookie) in listed {
            self.answer_with(&answer, &[cookie]);
        }
        self.answer(&Answer::AllListed);
    }

    /// Answers the pauses that came about or failed.
    fn settle_pauses(&mut self) {
        for name in std::mem::take(&mut self.pausing) {
            match self.ward(&name).map(Ward::settled) {
                Ok(None) => self.pausing.push(name),
                Ok(Some(settled)) => self.done(name, settled),
                Err(e) => self.refuse(name, &e),
            }
        }
    }

    /// Who asked for them is gone and cannot be answered; the new client must not find jails that stop by themselves.
    fn take_back_pauses(&mut self) {
        for name in std::mem::take(&mut self.pausing) {
            if let Ok(ward) = self.ward(&name) {
                let _ = ward.resume();
            }
        }
    }

    fn done(&mut self, name: String, done: Result<(), JailError>) {
        match done {
            Ok(()) => self.answer(&Answer::Done { name }),
            Err(e) => self.refuse(name, &e),
        }
    }

    fn refuse(&mut self, name: String, error: &JailError) {
        self.answer(&Answer::Refused { name, refusal: Refusal::from(error) });
    }

    /// Tells the client, or keeps it for the next one.
    fn tell_end(&mut self, ended: Ended) {
        if !self.clients.say(&Answer::Ended(ended.clone()), &[]) && self.unheard.len() < UNHEARD {
            self.unheard.push(ended);
        }
    }

    fn answer(&mut self, answer: &Answer) {
        self.answer_with(answer, &[]);
    }

    fn answer_with(&mut self, answer: &Answer, descriptors: &[OwnedFd]) {
        let given: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.clients.say(answer, &given);
    }

    /// Waits for a client, for a jail that ended or raised its alarm, or for the next moment at which something must be
    /// looked at. Returns which of the clients' sockets are ready, and which wards are due.
    fn wait(&self) -> io::Result<(Vec<bool>, Vec<usize>)> {
        let now = Instant::now();
        let next = self.wards.iter().filter_map(Ward::next_look).chain(self.clients.next_look()).min();
        let timeout = next.map(|at| at.saturating_duration_since(now));
        let sockets = self.clients.sockets();
        let mut fds: Vec<_> = sockets.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let mut owners = Vec::new();
        for (index, ward) in self.wards.iter().enumerate() {
            for (fd, events) in ward.interests() {
                fds.push(PollFd::from_borrowed_fd(fd, events));
                owners.push(index);
            }
        }
        match poll(&mut fds, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = Instant::now();
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (clients, jails) = ready.split_at(sockets.len());
        let mut due: Vec<usize> = (0..self.wards.len())
            .filter(|i| self.wards[*i].next_look().is_some_and(|at| at <= now))
            .chain(owners.iter().zip(jails).filter(|(_, ready)| **ready).map(|(owner, _)| *owner))
            .collect();
        due.sort_unstable();
        due.dedup();
        Ok((clients.to_vec(), due))
    }

    /// Everything goes.
    fn end(mut self) {
        for ward in &mut self.wards {
            ward.kill(EndCause::Asked);
        }
        for ward in self.wards.drain(..) {
            let ended = ward.bury();
            self.clients.say(&Answer::Ended(ended), &[]);
        }
        let config = &self.workshop.config;
        if let Some(instance) = self.workshop.instance.take() {
            instance.end(&self.workshop.hierarchies, &config.cgroup_parent);
            sweep_dead(&config.runtime_dir, &self.workshop.hierarchies);
        }
    }
}
