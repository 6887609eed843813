//! The launcher's loop: requests, jails that end, limits that are reached.

mod joins;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use super::Workshop;
use super::answers::{Answers, Ticket};
use super::birth::{Newborn, Outcome};
use super::clients::Clients;
use super::disks::Disks;
use super::protocol::{Answer, EndCause, Ended, Refusal, Request};
use super::pulse;
use super::reclaim::Reclaims;
use super::sources::Sources;
use super::strays::Strays;
use super::surgery::Surgeon;
use super::unmounts::Unmounts;
use super::ward::{Buried, Ward};
use super::watch::{Part, Serial, Token, Watched, Watcher};
use super::zygotes::Zygotes;
use crate::error::{JailError, doing};
use crate::image;
use crate::instance::sweep_dead;

/// Ends that are kept for the next client.
const UNHEARD: usize = 4096;

/// From so many jails on, none keeps descriptors open only because they may be needed again soon.
const MANY: usize = 128;

pub(super) struct State {
    clients: Clients,
    /// As they were when somebody last looked.
    changes: u64,
    workshop: Workshop,
    watcher: Watcher,
    next_serial: Serial,
    newborns: BTreeMap<Serial, Newborn>,
    wards: BTreeMap<Serial, Ward>,
    /// Newborns and wards by their names.
    names: HashMap<String, Serial>,
    answers: Answers,
    /// Pauses that were asked for and are not settled yet.
    pausing: Vec<Ticket>,
    unheard: Vec<Ended>,
    zygotes: Zygotes,
    surgeons: BTreeMap<Serial, Surgeon>,
    strays: Strays,
    reclaims: Reclaims,
    disks: Disks,
    unmounts: Unmounts,
    /// Where the guardian asks for signs of life.
    heart: Option<Watched>,
}

impl State {
    pub(super) fn new(
        clients: Clients,
        workshop: Workshop,
        watcher: Watcher,
        heart: Option<Watched>,
    ) -> Self {
        let zygotes = Zygotes::new(workshop.config.zygotes.clone());
        Self {
            changes: clients.changes(),
            clients,
            workshop,
            zygotes,
            surgeons: BTreeMap::new(),
            strays: Strays::default(),
            reclaims: Reclaims::default(),
            disks: Disks::default(),
            unmounts: Unmounts::default(),
            heart,
            watcher,
            next_serial: 0,
            newborns: BTreeMap::new(),
            wards: BTreeMap::new(),
            names: HashMap::new(),
            answers: Answers::default(),
            pausing: Vec::new(),
            unheard: Vec::new(),
        }
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

    /// Waits for what happens next and deals with it. `false`: it is over.
    fn turn(&mut self) -> Result<bool, JailError> {
        let timeout = self.next_look().map(|at| at.saturating_duration_since(Instant::now()));
        let happened = self.watcher.wait(timeout).map_err(doing("wait for jails"))?;
        for token in &happened {
            self.deal_with(*token);
        }
        self.look_at_clocks();
        self.settle_pauses();
        self.bury_the_dead();
        self.unmounts.begin(&self.watcher);
        if happened.contains(&Token::Listener) || happened.contains(&Token::Greeter) || self.greets_late() {
            let new = self.clients.welcome(happened.contains(&Token::Listener));
            self.forget_who_went();
            if let (Some(told), Some(sources)) = (self.clients.take_sources(), &mut self.workshop.sources) {
                *sources = Sources::new(&told);
            }
            if new {
                for ended in std::mem::take(&mut self.unheard) {
                    self.tell_end(ended);
                }
            }
        }
        if happened.contains(&Token::Client)
            && let Some((request, descriptors)) = self.clients.hear()?
        {
            if request == Request::Shutdown {
                return Ok(false);
            }
            self.obey(request, descriptors);
        }
        self.forget_who_went();
        self.reclaim_memory();
        let is_empty = self.wards.is_empty() && self.newborns.is_empty() && self.disks.is_empty();
        Ok(!self.clients.are_over(is_empty))
    }

    fn deal_with(&mut self, token: Token) {
        match token {
            Token::Newborn(serial) => {
                if let Some(newborn) = self.newborns.remove(&serial) {
                    let outcome = newborn.hear(&self.workshop, &self.watcher);
                    self.see(serial, outcome);
                }
            }
            Token::Jail(serial, part) => {
                if let Some(ward) = self.wards.get_mut(&serial) {
                    for zygote in ward.hear(&self.watcher, part) {
                        self.zygotes.lose_guest(zygote);
                    }
                } else if part == Part::Init
                    && let Some(newborn) = self.newborns.remove(&serial)
                {
                    self.see(serial, newborn.lose_init());
                }
            }
            Token::Zygote(serial) => self.hear_zygote(serial),
            Token::Surgeon(serial) => self.hear_surgeon(serial),
            Token::Stray => self.strays.collect(),
            Token::Reclaim => self.reclaims.collect(),
            Token::Disk(serial) => self.hear_disk(serial),
            Token::Unmount => self.unmounts.collect(),
            Token::Guardian => {
                if !self.heart.as_ref().is_some_and(|heart| pulse::answer(heart.as_fd())) {
                    self.heart = None;
                }
            }
            Token::Listener | Token::Greeter | Token::Client => {}
        }
    }

    /// Somebody who connected has not said anything for too long.
    fn greets_late(&self) -> bool {
        self.clients.next_look().is_some_and(|at| at <= Instant::now())
    }

    /// What became of a newborn.
    fn see(&mut self, serial: Serial, outcome: Outcome) {
        match outcome {
            Outcome::Waiting(newborn) => {
                self.newborns.insert(serial, *newborn);
            }
            Outcome::Grown(mut ward, launched, descriptors) => {
                if self.wards.len() >= MANY {
                    ward.save_descriptors();
                }
                // Ours to end before anybody hears of it: the client may be gone by now.
                self.wards.insert(serial, *ward);
                self.say(&Answer::Launched(*launched), &descriptors);
            }
            Outcome::Failed(name, why) => {
                self.names.remove(&name);
                self.say(&Answer::Refused { name, refusal: Refusal::from(&why) }, &[]);
            }
        }
    }

    /// The next moment at which something must be looked at though no descriptor says so.
    fn next_look(&self) -> Option<Instant> {
        let jails = self.wards.values().filter_map(Ward::next_look);
        let newborns = self.newborns.values().filter_map(Newborn::next_look);
        let surgeons = self.surgeons.values().filter_map(Surgeon::next_look);
        let others = self.clients.next_look().into_iter().chain(self.zygotes.next_look());
        let others = others.chain(self.reclaims.next_look()).chain(self.disks.next_look());
        let others = others.chain(self.unmounts.next_look());
        jails.chain(newborns).chain(surgeons).chain(others).min()
    }

    fn look_at_clocks(&mut self) {
        let now = Instant::now();
        for ward in self.wards.values_mut() {
            if ward.next_look().is_some_and(|at| at <= now) {
                ward.look();
            }
        }
        let late = |newborn: &Newborn| newborn.next_look().is_some_and(|at| at <= now);
        let late: Vec<Serial> =
            self.newborns.iter().filter(|(_, newborn)| late(newborn)).map(|(serial, _)| *serial).collect();
        for serial in late {
            if let Some(newborn) = self.newborns.remove(&serial) {
                self.newborns.insert(serial, newborn.look());
            }
        }
        for surgeon in
            self.surgeons.values().filter(|surgeon| surgeon.next_look().is_some_and(|at| at <= now))
        {
            surgeon.kill();
        }
        self.reclaims.look();
        self.disks.look();
        for (serial, why) in self.zygotes.look_at_clocks() {
            self.lose_zygote(serial, &why);
        }
    }

    /// Has the memory of paused jails taken back, a few at a time.
    fn reclaim_memory(&mut self) {
        while let Some(name) = self.reclaims.next() {
            let Some(reclaim) = self.ward(&name).ok().and_then(|ward| ward.reclaim()) else { continue };
            // Without it the jail keeps its memory, as on a kernel that cannot be asked.
            let _ = self.reclaims.begin(name, &reclaim, &self.watcher);
        }
    }

    fn bury_the_dead(&mut self) {
        let over: Vec<Serial> =
            self.wards.iter().filter(|(_, ward)| ward.is_over()).map(|(serial, _)| *serial).collect();
        for serial in over {
            if let Some(mut ward) = self.wards.remove(&serial) {
                self.names.remove(ward.name());
                self.reclaims.cancel(ward.name());
                for zygote in ward.zygotes() {
                    self.zygotes.lose_guest(zygote);
                }
                let network = ward.take_network();
                let Buried { mut ended, leaf, disk } = ward.bury(None);
                if let Some(disk) = disk {
                    self.unmounts.add(disk);
                }
                let stuck = leaf.map(|leaf| self.workshop.spares.give_back(leaf));
                ended.stuck = named(stuck.unwrap_or_default());
                self.tell_end(ended);
                if let (Some(networks), Some(network)) = (&mut self.workshop.networks, network) {
                    networks.give_back(network);
                }
            }
        }
    }

    /// What a client asked for that is not there any more is nobody's: it is taken back, and jails that were not to outlive
    /// it end.
    fn forget_who_went(&mut self) {
        if std::mem::replace(&mut self.changes, self.clients.changes()) == self.changes {
            return;
        }
        self.answers.forget();
        self.zygotes.forget_lines();
        for ticket in std::mem::take(&mut self.pausing) {
            if let Ok(ward) = self.ward(&ticket.name) {
                let _ = ward.resume();
            }
        }
        self.disks.abandon_all();
        for (serial, newborn) in std::mem::take(&mut self.newborns) {
            self.newborns.insert(serial, newborn.abandon(JailError::Gone));
        }
        for ward in self.wards.values_mut().filter(|ward| ward.waits_for_nobody()) {
            ward.kill(EndCause::Asked);
        }
    }

    fn new_serial(&mut self) -> Serial {
        self.next_serial += 1;
        self.next_serial
    }

    fn ward(&mut self, name: &str) -> Result<&mut Ward, JailError> {
        let serial = self.names.get(name).ok_or(JailError::Gone)?;
        self.wards.get_mut(serial).ok_or(JailError::Gone)
    }

    /// Tells the client, or keeps it for the next one.
    fn tell_end(&mut self, ended: Ended) {
        if !self.clients.say(&Answer::Ended(ended.clone()), &[]) && self.unheard.len() < UNHEARD {
            self.unheard.push(ended);
        }
    }

    fn say(&mut self, answer: &Answer, descriptors: &[OwnedFd]) {
        let given: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.clients.say(answer, &given);
    }

    /// Everything goes.
    fn end(mut self) {
        for ward in self.wards.values_mut() {
            ward.kill(EndCause::Asked);
        }
        self.zygotes.kill_all();
        self.surgeons.values().for_each(Surgeon::kill);
        self.reclaims.kill_all();
        self.disks.abandon_all();
        let newborns = std::mem::take(&mut self.newborns).into_values();
        let newborns: Vec<_> = newborns.map(|newborn| newborn.abandon(JailError::Gone)).collect();
        self.workshop.molds.end();
        // A fork that nobody knows yet is killed with the namespace that it is in.
        // All that this process ever made is killed by now. One that ends may wait for another to be collected, so they
        // are taken in whatever order they come.
        let mut collected = HashMap::new();
        sandstorm_sys::process::reap_all(|reaped| {
            collected.insert(reaped.pid, reaped);
        });
        for newborn in newborns {
            newborn.bury();
        }
        // To let go of them takes as long as the disk takes, so that comes last.
        let mut disks = Vec::new();
        for ward in std::mem::take(&mut self.wards).into_values() {
            let reaped = collected.get(&ward.pid()).copied();
            let Buried { mut ended, leaf, disk } = ward.bury(reaped);
            disks.extend(disk);
            ended.stuck = named(leaf.map(|leaf| leaf.remove()).unwrap_or_default());
            self.clients.say(&Answer::Ended(ended), &[]);
        }
        self.zygotes.clear();
        let config = &self.workshop.config;
        if let Some(instance) = self.workshop.instance.take() {
            instance.end(&self.workshop.hierarchies, &config.cgroup_parent);
            sweep_dead(&config.runtime_dir, &self.workshop.hierarchies);
        }
        disks.iter().for_each(image::forget);
    }
}

fn named(paths: Vec<PathBuf>) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}
