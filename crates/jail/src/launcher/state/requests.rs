//! What a client may ask, and how it is answered.

use std::os::fd::OwnedFd;

use super::State;
use crate::error::JailError;
use crate::launcher::answers::{Given, Ticket};
use crate::launcher::birth::Newborn;
use crate::launcher::disks::{Made, Order};
use crate::launcher::protocol::{Answer, EndCause, Refusal, Request};
use crate::launcher::ward::Ward;
use crate::launcher::watch::Serial;
use crate::spec::JailSpec;

/// What was asked of one jail, done or not.
type Done = Result<Given, JailError>;

impl State {
    pub(super) fn obey(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
        match request {
            Request::Launch { spec, keep } => {
                let cookie = descriptors.pop().filter(|_| keep);
                self.launch(spec, cookie);
            }
            Request::Kill { name } => self.kill(&name),
            Request::Count { name } => {
                let counters = self.ward(&name).ok().map(|ward| ward.counters());
                self.say(&Answer::Counted { name, counters }, &[]);
            }
            Request::Pause { name } => {
                let ticket = self.answers.take_place(&name);
                match self.ward(&name).and_then(Ward::pause) {
                    Ok(()) => {
                        self.pausing.push(ticket);
                        self.settle_pauses();
                    }
                    Err(e) => self.refuse(&ticket, &e),
                }
            }
            Request::Resume { name } => {
                self.reclaims.cancel(&name);
                let resumed = self.ward(&name).and_then(Ward::resume);
                self.answer(&name, resumed.map(|()| done(&name)));
            }
            Request::List => self.list(),
            Request::Adopt { name } => {
                let adopted = self.ward(&name).and_then(|ward| {
                    let mut given = ward.adopt()?;
                    let meter = ward.meter().map(|(meter, scratch)| {
                        given.push(scratch);
                        meter
                    });
                    Ok((Answer::Adopted { name: ward.name().to_owned(), meter }, given))
                });
                self.answer(&name, adopted);
            }
            Request::Note { name } => {
                let cookie = descriptors.pop().ok_or(JailError::Gone);
                let noted = cookie.and_then(|cookie| self.ward(&name)?.note(cookie));
                self.answer(&name, noted.map(|()| done(&name)));
            }
            Request::Capture { name } => {
                let captured = self.ward(&name).and_then(Ward::capture);
                self.answer(&name, captured.map(|given| (Answer::Captured { name: name.clone() }, given)));
            }
            Request::Keep { name, on_memory, lifetime } => {
                let watcher = self.watcher.clone();
                let kept = self
                    .ward(&name)
                    .and_then(|ward| ward.keep(&watcher, descriptors.pop(), on_memory, lifetime));
                self.answer(&name, kept.map(|()| done(&name)));
            }
            Request::Join { name, zygote, owner, like } => {
                self.join(&name, &zygote, &owner, like.as_ref());
            }
            Request::Transplant { from, to } => self.transplant(from, to),
            Request::Shutdown => {}
        }
    }

    fn launch(&mut self, mut spec: Box<JailSpec>, cookie: Option<OwnedFd>) {
        let (serial, name) = (self.new_serial(), spec.name.clone());
        let begun = self.may_launch(&mut spec).and_then(|()| match spec.root.scratch_on_disk {
            true => self.make_disk(serial, Order { spec, cookie }),
            false => self.conceive(serial, Order { spec, cookie }, None),
        });
        match begun {
            Ok(()) => {
                self.names.insert(name, serial);
            }
            Err(e) => self.say(&Answer::Refused { name, refusal: Refusal::from(&e) }, &[]),
        }
    }

    /// Has the jail's writable space made on disk; it is conceived when that is there.
    fn make_disk(&mut self, serial: Serial, order: Order) -> Result<(), JailError> {
        if let Some(why) = self.workshop.disk_obstacle() {
            return Err(JailError::Disk(why));
        }
        self.disks.begin(&self.watcher, &self.workshop.config.space_dir, serial, order)
    }

    /// `scratch`: the writable space, where that was made before.
    fn conceive(&mut self, serial: Serial, order: Order, scratch: Option<OwnedFd>) -> Result<(), JailError> {
        let Order { spec, cookie } = order;
        let conceived = Newborn::conceive(&mut self.workshop, &self.watcher, serial, spec, cookie, scratch);
        let conceived = conceived.map(|newborn| {
            self.newborns.insert(serial, newborn);
        });
        if self.workshop.molds.lost_one() {
            self.find_strays();
        }
        conceived
    }

    /// A jail's writable space is there, or will never be.
    pub(super) fn hear_disk(&mut self, serial: Serial) {
        let Some(Made { order, mount, child }) = self.disks.hear(serial) else { return };
        self.strays.add(&self.watcher, child);
        let name = order.spec.name.clone();
        let conceived = mount.and_then(|mount| self.conceive(serial, order, Some(mount)));
        if let Err(e) = conceived {
            self.names.remove(&name);
            self.say(&Answer::Refused { name, refusal: Refusal::from(&e) }, &[]);
        }
    }

    fn may_launch(&mut self, spec: &mut JailSpec) -> Result<(), JailError> {
        // It becomes part of paths on the host.
        let letters = spec.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if spec.name.is_empty() || spec.name.len() > 64 || !letters {
            return Err(JailError::Name(spec.name.clone()));
        }
        if self.names.contains_key(&spec.name) {
            return Err(JailError::Exists);
        }
        match &mut self.workshop.sources {
            Some(sources) => sources.confine(&mut spec.root),
            None => Ok(()),
        }
    }

    /// Ends a jail, or what is about to be one: whoever waits for that is refused.
    fn kill(&mut self, name: &str) {
        let Some(serial) = self.names.get(name).copied() else { return };
        if let Some(ward) = self.wards.get_mut(&serial) {
            ward.kill(EndCause::Asked);
        } else if self.disks.abandon(serial) {
            // Whoever waits for it hears so when its helper has ended.
        } else if let Some(newborn) = self.newborns.remove(&serial) {
            self.newborns.insert(serial, newborn.abandon(JailError::Gone));
        }
    }

    fn list(&mut self) {
        let listed: Vec<_> = self
            .wards
            .values()
            .filter_map(|ward| {
                let cookie = ward.cookie()?.try_clone_to_owned().ok()?;
                Some((Answer::Listed { name: ward.name().to_owned(), paused: ward.is_paused() }, cookie))
            })
            .collect();
        for (answer, cookie) in listed {
            self.say(&answer, &[cookie]);
        }
        self.say(&Answer::AllListed, &[]);
    }

    /// Answers the pauses that came about or failed.
    pub(super) fn settle_pauses(&mut self) {
        for ticket in std::mem::take(&mut self.pausing) {
            match self.ward(&ticket.name).map(Ward::settled) {
                Ok(None) => self.pausing.push(ticket),
                Ok(Some(Ok(()))) => {
                    self.reclaims.add(&ticket.name);
                    self.give(&ticket, done(&ticket.name));
                }
                Ok(Some(Err(e))) | Err(e) => self.refuse(&ticket, &e),
            }
        }
    }

    /// Answers what was done at once, behind what was asked of the same jail before.
    fn answer(&mut self, name: &str, outcome: Done) {
        let ticket = self.answers.take_place(name);
        match outcome {
            Ok(given) => self.give(&ticket, given),
            Err(e) => self.refuse(&ticket, &e),
        }
    }

    pub(super) fn refuse(&mut self, ticket: &Ticket, error: &JailError) {
        let refused = Answer::Refused { name: ticket.name.clone(), refusal: Refusal::from(error) };
        self.give(ticket, (refused, Vec::new()));
    }

    pub(super) fn give(&mut self, ticket: &Ticket, given: Given) {
        for (answer, descriptors) in self.answers.give(ticket, given) {
            self.say(&answer, &descriptors);
        }
    }
}

fn done(name: &str) -> Given {
    (Answer::Done { name: name.to_owned() }, Vec::new())
}
