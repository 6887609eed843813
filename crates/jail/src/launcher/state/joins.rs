//! Guests: who asks for one, what the zygotes say, copies of one to another.

use super::{MANY, State};
use crate::error::JailError;
use crate::launcher::answers::Ticket;
use crate::launcher::protocol::{Answer, GuestId, Refusal};
use crate::launcher::surgery::{Operation, Outcome, Surgeon};
use crate::launcher::watch::Serial;
use crate::launcher::zygotes::{Heard, Visit};

impl State {
    /// Somebody wants a guest in a jail.
    pub(super) fn join(&mut self, name: &str, zygote: &str, owner: &str, like: Option<&GuestId>) {
        let ticket = self.answers.take_place(name);
        match self.line_up(name, zygote, owner, like, &ticket) {
            Ok(serial) => self.ask_zygote(serial),
            Err(e) => self.refuse_guest(&ticket, &e),
        }
    }

    /// Puts a visit into the line of a zygote, which is started if there is none.
    fn line_up(
        &mut self,
        name: &str,
        zygote: &str,
        owner: &str,
        like: Option<&GuestId>,
        ticket: &Ticket,
    ) -> Result<Serial, JailError> {
        let jail = *self.names.get(name).ok_or(JailError::Gone)?;
        self.ward(name)?.rooms()?;
        let serial = match like {
            Some((other, guest)) => self.zygote_of(other, *guest, owner)?,
            None => match self.zygotes.find(zygote, owner) {
                Some(serial) => serial,
                None => {
                    let serial = self.new_serial();
                    self.zygotes.start(&mut self.workshop, &self.watcher, serial, zygote, owner)?;
                    serial
                }
            },
        };
        let visit = Visit { ticket: ticket.clone(), jail };
        let lined_up = self.zygotes.get_mut(serial).map(|zygote| zygote.line_up(visit));
        match lined_up {
            Some(Ok(())) => Ok(serial),
            _ => Err(JailError::Crowded("too many wait for the zygote".to_owned())),
        }
    }

    /// The very zygote process that a guest came from.
    fn zygote_of(&mut self, jail: &str, guest: u32, owner: &str) -> Result<Serial, JailError> {
        let serial = self.ward(jail)?.guest(guest)?.zygote;
        match self.zygotes.forks_for(serial, owner) {
            true => Ok(serial),
            false => Err(JailError::NoGuest("the zygote of that guest is gone".to_owned())),
        }
    }

    /// Asks a zygote for as many guests as it can take on.
    fn ask_zygote(&mut self, serial: Serial) {
        loop {
            let Some(zygote) = self.zygotes.get_mut(serial) else { return };
            let Some(visit) = zygote.next() else { return };
            let jail = visit.jail;
            let asked = match self.wards.get(&jail).map(|ward| ward.rooms()) {
                Some(Ok((rooms, leaf))) => zygote.ask(visit, rooms, leaf),
                Some(Err(e)) => Err((visit, e)),
                None => Err((visit, JailError::Gone)),
            };
            if self.wards.len() >= MANY
                && let Some(ward) = self.wards.get_mut(&jail)
            {
                ward.save_descriptors();
            }
            if let Err((visit, e)) = asked {
                self.refuse_guest(&visit.ticket, &e);
            }
        }
    }

    /// A zygote said something, or ended.
    pub(super) fn hear_zygote(&mut self, serial: Serial) {
        while let Some(zygote) = self.zygotes.get_mut(serial) {
            match zygote.hear() {
                Heard::Nothing => return,
                Heard::Ready => {}
                Heard::Refused(visit, why) => self.refuse_guest(&visit.ticket, &why),
                Heard::Joined(visit, pid, pidfd, side) => {
                    self.welcome(serial, &visit, (serial, pid, pidfd), &side);
                }
                Heard::Broken(why) => self.lose_zygote(serial, &why),
            }
            self.ask_zygote(serial);
        }
        if self.zygotes.collect(serial) {
            self.find_strays();
        }
    }

    /// A guest is in its jail.
    fn welcome(
        &mut self,
        zygote: Serial,
        visit: &Visit,
        guest: (Serial, i32, std::os::fd::OwnedFd),
        side: &std::os::fd::OwnedFd,
    ) {
        let Some(ward) = self.wards.get_mut(&visit.jail) else {
            // PID 1 does not end before all of its namespace is collected, so the jail must be there.
            self.zygotes.lose_guest(zygote);
            self.find_strays();
            return self.refuse_guest(&visit.ticket, &JailError::Gone);
        };
        match ward.welcome(&self.watcher, guest, side) {
            Ok(guest) => {
                let joined = Answer::Joined { name: visit.ticket.name.clone(), guest };
                // Without it the client has everything to do by way of the agent.
                let side = side.try_clone().into_iter().collect();
                self.give(&visit.ticket, (joined, side));
            }
            Err(e) => self.refuse_guest(&visit.ticket, &e),
        }
    }

    /// A zygote is of no use any more: who waits for it is refused. Its guests live on.
    pub(super) fn lose_zygote(&mut self, serial: Serial, why: &str) {
        for visit in self.zygotes.fail(serial, why) {
            self.refuse_guest(&visit.ticket, &JailError::NoGuest(why.to_owned()));
        }
    }

    pub(super) fn find_strays(&mut self) {
        let wards = self.wards.values().flat_map(|ward| ward.guest_pids().chain([ward.pid()]));
        let newborns = self.newborns.values().map(|newborn| newborn.pid());
        let surgeons = self.surgeons.values().map(Surgeon::pid);
        let mold = self.workshop.molds.pid();
        let helpers = self.reclaims.pids().chain(self.disks.pids()).chain(self.unmounts.pids());
        let known: std::collections::HashSet<i32> = wards
            .chain(newborns)
            .chain(surgeons)
            .chain(self.zygotes.pids())
            .chain(mold)
            .chain(helpers)
            .collect();
        self.strays.find(&self.watcher, |pid| known.contains(&pid));
    }

    /// Somebody wants a waiting guest to go on as a copy of another.
    pub(super) fn transplant(&mut self, from: GuestId, to: GuestId) {
        let ticket = self.answers.take_place(&to.0);
        if let Err((ticket, e)) = self.operate(Operation { ticket, from, to }) {
            self.refuse_copy(&ticket, &e);
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<(), (Ticket, JailError)> {
        let new = self.new_serial();
        let Operation { from, to, .. } = &operation;
        if self.surgeons.values().any(|surgeon| surgeon.concerns(from) || surgeon.concerns(to)) {
            let why = "one of the two is being copied at this moment".to_owned();
            return Err((operation.ticket, JailError::NotCarried(why)));
        }
        let found = |(name, number): &GuestId| {
            let ward = self.names.get(name).and_then(|serial| self.wards.get(serial));
            ward.filter(|ward| !ward.is_paused()).ok_or(JailError::Gone)?.guest(*number)
        };
        let (source, destination) = match (found(from), found(to)) {
            (Ok(source), Ok(destination)) => (source, destination),
            (Err(e), _) | (_, Err(e)) => return Err((operation.ticket, e)),
        };
        // One zygote has one owner, so these two have the same.
        if source.zygote != destination.zygote {
            let why = "the two guests are not of one zygote".to_owned();
            return Err((operation.ticket, JailError::NotCarried(why)));
        }
        let free = self.surgeons.values_mut().find(|surgeon| surgeon.is_free());
        let surgeon = match free {
            Some(surgeon) => surgeon,
            None => match Surgeon::hire(&self.watcher, new) {
                Ok(surgeon) => self.surgeons.entry(new).or_insert(surgeon),
                Err(e) => return Err((operation.ticket, e)),
            },
        };
        let patients = [(source.pid, source.pidfd()), (destination.pid, destination.pidfd())];
        surgeon.operate(operation, patients)
    }

    /// A transplant is done, or whoever did it has ended.
    pub(super) fn hear_surgeon(&mut self, serial: Serial) {
        let others_are_free =
            self.surgeons.iter().any(|(other, surgeon)| *other != serial && surgeon.is_free());
        let Some(surgeon) = self.surgeons.get_mut(&serial) else { return };
        let outcome = surgeon.outcome();
        if others_are_free && outcome.is_some() {
            // One that waits is enough.
            surgeon.send_away();
        }
        if surgeon.is_over() {
            self.surgeons.remove(&serial);
        }
        if let Some(outcome) = outcome {
            self.conclude(outcome);
        }
    }

    fn conclude(&mut self, outcome: Outcome) {
        let Operation { ticket, to: (name, number), .. } = outcome.operation;
        if outcome.spoiled
            && let Ok(ward) = self.ward(&name)
        {
            ward.kill_guest(number);
        }
        match outcome.result {
            Ok(report) => self.give(&ticket, (Answer::Transplanted { name, report }, Vec::new())),
            Err(e) => self.refuse_copy(&ticket, &e),
        }
    }

    fn refuse_guest(&mut self, ticket: &Ticket, error: &JailError) {
        let refused = Answer::NotJoined { name: ticket.name.clone(), refusal: Refusal::from(error) };
        self.give(ticket, (refused, Vec::new()));
    }

    fn refuse_copy(&mut self, ticket: &Ticket, error: &JailError) {
        let refused = Answer::NotTransplanted { name: ticket.name.clone(), refusal: Refusal::from(error) };
        self.give(ticket, (refused, Vec::new()));
    }
}
