//! What is on the shelves, and what to do about it. Pure: it neither makes nor ends a sandbox.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandstorm_types::TenantId;

use super::demand::{Demand, Watermarks};
use super::share::{Bounds, Want, allot};

/// Most kinds that are told apart. Beyond that the one that was asked for least lately is forgotten.
const MOST_KINDS: usize = 512;
/// Of one tenant.
const MOST_OF_TENANT: usize = 32;
/// How many kinds of a tenant that were asked for once are kept ready: whoever asks for something else each time would
/// make us work for nothing.
const UNPROVEN: usize = 4;
/// How long shares hold before they are looked at again.
const SHARES_HOLD: Duration = Duration::from_millis(50);
/// From this part of their age on, entries are replaced.
const AGING: f64 = 0.8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What entries are kept by.
pub(crate) trait Kind: Hash + Eq {
    fn tenant(&self) -> TenantId;
    /// What one is thought to take until one was weighed.
    fn memory(&self) -> u64;
}

/// What waits on a shelf.
pub(crate) trait Entry {
    /// Whether it is of no use any more.
    fn is_dead(&mut self) -> bool;
}

/// Why an entry goes unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Age,
    Surplus,
    Death,
    Drain,
}

impl Why {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Surplus => "surplus",
            Self::Death => "death",
            Self::Drain => "drain",
        }
    }
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) struct Work<K, E> {
    pub(crate) fill: Vec<Arc<K>>,
    pub(crate) evict: Vec<(Arc<K>, E, Why)>,
}

#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) bounds: Bounds,
    pub(crate) max_age: Duration,
    /// Fills at the same time while nobody waits.
    pub(crate) at_once: usize,
}

/// All shelves.
#[derive(Debug)]
pub(crate) struct Stock<K, E> {
    rules: Rules,
    shelves: HashMap<Arc<K>, Shelf<E>>,
    /// Entries that nobody gets any more.
    outcasts: Vec<(Arc<K>, E, Why)>,
    shared_at: Option<Instant>,
    turn: u64,
    /// When each tenant had its turn.
    turns: HashMap<TenantId, u64>,
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct Shelf<E> {
    demand: Demand,
    /// The oldest first.
    ready: VecDeque<(Instant, E)>,
    filling: usize,
    granted: usize,
    refilling: bool,
    failures: u32,
    paused_until: Option<Instant>,
}

impl<E> Shelf<E> {
    fn new(now: Instant, memory: u64) -> Self {
        Self {
            demand: Demand::new(now, memory),
            ready: VecDeque::new(),
            filling: 0,
            granted: 0,
            refilling: false,
            failures: 0,
            paused_until: None,
        }
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn filling(&self) -> usize {
        self.filling
    }

    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// What is there and stays for a while, with what is being made.
    fn lasting(&self, now: Instant, aging: Duration) -> usize {
        let young = |born: &Instant| now.saturating_duration_since(*born) < aging;
        self.ready.iter().filter(|(born, _)| young(born)).count() + self.filling
    }

    fn fills(&self, now: Instant, aging: Duration) -> bool {
        Watermarks::of(self.granted).fills(self.lasting(now, aging), self.refilling)
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.filling == 0
    }
}

impl<K: Kind, E: Entry> Stock<K, E> {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            shelves: HashMap::new(),
            outcasts: Vec::new(),
            shared_at: None,
            turn: 0,
            turns: HashMap::new(),
            closed: false,
        }
    }

    /// Somebody wants one: the oldest, with its age. Whether there is one or not, the demand is noted.
    pub(crate) fn take(&mut self, kind: &Arc<K>, now: Instant) -> Option<(E, Duration)> {
        if self.closed {
            return None;
        }
        self.shelf(kind, now).demand.arrive(now);
        self.take_spare(kind, now)
    }

    /// One of a kind that was not what was wanted, but does.
    pub(crate) fn take_spare(&mut self, kind: &K, now: Instant) -> Option<(E, Duration)> {
        let (key, _) = self.shelves.get_key_value(kind)?;
        let key = Arc::clone(key);
        let shelf = self.shelves.get_mut(kind)?;
        while let Some((born, mut entry)) = shelf.ready.pop_front() {
            let age = now.saturating_duration_since(born);
            let why = match (entry.is_dead(), age > self.rules.max_age) {
                (false, false) => return Some((entry, age)),
                (true, _) => Why::Death,
                (false, true) => Why::Age,
            };
            self.outcasts.push((Arc::clone(&key), entry, why));
        }
        None
    }

    /// Wants this many of a kind at all times.
    pub(crate) fn pin(&mut self, kind: &Arc<K>, count: usize, now: Instant) {
        self.shelf(kind, now).demand.pin(count);
        self.shared_at = None;
    }

    /// Whether anybody has to look at the shelves before the next regular time.
    pub(crate) fn needs_work(&self, kind: &K, now: Instant) -> bool {
        let aging = self.rules.max_age.mul_f64(AGING);
        let short = self.shelves.get(kind).is_some_and(|shelf| shelf.fills(now, aging));
        short || self.shared_at.is_none() || !self.outcasts.is_empty()
    }

    /// Whether a shelf is empty that should not be.
    pub(crate) fn is_short(&self) -> bool {
        self.shared_at.is_none()
            || self.shelves.values().any(|shelf| shelf.granted > 0 && shelf.ready.is_empty())
    }

    /// A fill came to its end.
    pub(crate) fn put(&mut self, kind: &Arc<K>, entry: E, took: Duration, now: Instant) {
        if self.closed {
            self.outcasts.push((Arc::clone(kind), entry, Why::Drain));
            return;
        }
        let shelf = self.shelf(kind, now);
        shelf.filling = shelf.filling.saturating_sub(1);
        (shelf.failures, shelf.paused_until) = (0, None);
        shelf.demand.filled(took);
        shelf.ready.push_back((now, entry));
    }

    /// Whether there is one of a kind.
    pub(crate) fn has_ready(&self, kind: &K) -> bool {
        self.shelves.get(kind).is_some_and(|shelf| !shelf.ready.is_empty())
    }

    /// A fill came to nothing: the next one has to wait, longer each time.
    pub(crate) fn fail(&mut self, kind: &Arc<K>, now: Instant) {
        let Some(shelf) = self.shelves.get_mut(kind) else { return };
        shelf.filling = shelf.filling.saturating_sub(1);
        let pause = FIRST_PAUSE.saturating_mul(1 << shelf.failures.min(16)).min(LONGEST_PAUSE);
        shelf.failures += 1;
        shelf.paused_until = Some(now + pause);
    }

    /// What one of a kind takes was measured.
    pub(crate) fn weigh(&mut self, kind: &K, bytes: u64) {
        if let Some(shelf) = self.shelves.get_mut(kind) {
            shelf.demand.weigh(bytes);
        }
    }

    /// What is to be done. `waiting`: creations that are under way without the pool. They go first: next to them there is
    /// one fill at a time.
    pub(crate) fn work(&mut self, now: Instant, waiting: usize) -> Work<K, E> {
        if self.closed {
            return Work { fill: Vec::new(), evict: std::mem::take(&mut self.outcasts) };
        }
        if self.shared_at.is_none_or(|at| now.saturating_duration_since(at) >= SHARES_HOLD) {
            self.forget(now);
            self.share(now);
        }
        self.throw_out(now);
        let at_once = if waiting > 0 { 1 } else { self.rules.at_once };
        let mut fill = Vec::new();
        let mut under_way: usize = self.shelves.values().map(|shelf| shelf.filling).sum();
        while under_way < at_once {
            let Some(kind) = self.next_fill(now) else { break };
            under_way += 1;
            fill.push(kind);
        }
        Work { fill, evict: std::mem::take(&mut self.outcasts) }
    }

    /// Gives everything up, now and from now on.
    pub(crate) fn drain(&mut self) -> Vec<(Arc<K>, E, Why)> {
        self.closed = true;
        for (kind, shelf) in self.shelves.drain() {
            self.outcasts
                .extend(shelf.ready.into_iter().map(|(_, entry)| (Arc::clone(&kind), entry, Why::Drain)));
        }
        std::mem::take(&mut self.outcasts)
    }

    /// Gives up one that nobody needs at once: somebody needs its place. The fullest shelf gives.
    pub(crate) fn spare(&mut self) -> Option<E> {
        let fullest = self.shelves.values_mut().max_by_key(|shelf| shelf.ready.len())?;
        fullest.ready.pop_front().map(|(_, entry)| entry)
    }

    pub(crate) fn shelves(&self) -> impl Iterator<Item = (&K, &Shelf<E>)> {
        self.shelves.iter().map(|(kind, shelf)| (&**kind, shelf))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    fn shelf(&mut self, kind: &Arc<K>, now: Instant) -> &mut Shelf<E> {
        if !self.shelves.contains_key(kind) {
            self.make_room(kind.tenant());
            self.shared_at = None;
        }
        let memory = kind.memory();
        self.shelves.entry(Arc::clone(kind)).or_insert_with(|| Shelf::new(now, memory))
    }

    /// Forgets a kind, of this tenant if it has too many, else of all: one that came only once and has nothing on its shelf
    /// before others, and of those the one that was asked for least lately.
    fn make_room(&mut self, tenant: TenantId) {
        let of_tenant = self.shelves.keys().filter(|kind| kind.tenant() == tenant).count();
        let own = of_tenant >= MOST_OF_TENANT;
        if !own && self.shelves.len() < MOST_KINDS {
            return;
        }
        let eligible = self
            .shelves
            .iter()
            .filter(|(kind, shelf)| !shelf.demand.is_pinned() && (!own || kind.tenant() == tenant));
        let worth = |shelf: &Shelf<E>| (shelf.demand.is_proven(), !shelf.is_idle(), shelf.demand.last());
        let oldest = eligible.min_by_key(|(_, shelf)| worth(shelf)).map(|(kind, _)| Arc::clone(kind));
        if let Some((kind, shelf)) = oldest.and_then(|kind| self.shelves.remove_entry(&kind)) {
            let entries = shelf.ready.into_iter();
            self.outcasts.extend(entries.map(|(_, entry)| (Arc::clone(&kind), entry, Why::Surplus)));
        }
    }

    fn forget(&mut self, now: Instant) {
        self.shelves.retain(|_, shelf| !(shelf.demand.is_forgotten(now) && shelf.is_idle()));
        let shelves = &self.shelves;
        self.turns.retain(|tenant, _| shelves.keys().any(|kind| kind.tenant() == *tenant));
    }

    /// Says of each kind how many there may be.
    fn share(&mut self, now: Instant) {
        self.shared_at = Some(now);
        let mut shelves: Vec<(&Arc<K>, &mut Shelf<E>)> = self.shelves.iter_mut().collect();
        shelves.sort_by_key(|(_, shelf)| shelf.demand.last());
        let mut unproven: HashMap<TenantId, usize> = HashMap::new();
        let mut wants: Vec<Want> = shelves
            .iter()
            .map(|(kind, shelf)| {
                let tenant = kind.tenant();
                let mut target = shelf.demand.target(now);
                if target > 0 && !shelf.demand.is_proven() {
                    let seen = unproven.entry(tenant).or_default();
                    *seen += 1;
                    target = if *seen <= UNPROVEN { target } else { 0 };
                }
                Want { tenant, target, memory: shelf.demand.memory() }
            })
            .collect();
        // The latest first: they get what is too little for all.
        shelves.reverse();
        wants.reverse();
        let given = allot(&wants, self.rules.bounds);
        for ((_, shelf), given) in shelves.into_iter().zip(given) {
            shelf.granted = given;
        }
    }

    /// Takes away what is dead, too old or too much.
    fn throw_out(&mut self, now: Instant) {
        let aging = self.rules.max_age.mul_f64(AGING);
        for (kind, shelf) in &mut self.shelves {
            let mut kept = VecDeque::with_capacity(shelf.ready.len());
            let mut surplus = shelf.ready.len().saturating_sub(shelf.granted);
            for (born, mut entry) in shelf.ready.drain(..) {
                let age = now.saturating_duration_since(born);
                let why = match () {
                    () if entry.is_dead() => Why::Death,
                    () if age > self.rules.max_age => Why::Age,
                    // One that is being replaced goes when its successor is there.
                    () if surplus > 0 && age >= aging => Why::Age,
                    () if surplus > 0 => Why::Surplus,
                    () => {
                        kept.push_back((born, entry));
                        continue;
                    }
                };
                surplus = surplus.saturating_sub(1);
                self.outcasts.push((Arc::clone(kind), entry, why));
            }
            shelf.ready = kept;
        }
    }

    /// The kind to fill next: of the tenant that waited longest, the emptiest.
    fn next_fill(&mut self, now: Instant) -> Option<Arc<K>> {
        let aging = self.rules.max_age.mul_f64(AGING);
        let stock: usize = self.shelves.values().map(|shelf| shelf.ready.len() + shelf.filling).sum();
        if stock >= self.rules.bounds.entries {
            return None;
        }
        let mut best: Option<(u64, usize, &Arc<K>)> = None;
        for (kind, shelf) in &mut self.shelves {
            shelf.refilling = shelf.fills(now, aging);
            if !shelf.refilling || shelf.paused_until.is_some_and(|until| now < until) {
                continue;
            }
            let turn = self.turns.get(&kind.tenant()).copied().unwrap_or(0);
            let filled = shelf.lasting(now, aging) * 1000 / shelf.granted.max(1);
            if best.is_none_or(|(turns, full, _)| (turn, filled) < (turns, full)) {
                best = Some((turn, filled, kind));
            }
        }
        let kind = Arc::clone(best?.2);
        self.turn += 1;
        self.turns.insert(kind.tenant(), self.turn);
        if let Some(shelf) = self.shelves.get_mut(&kind) {
            shelf.filling += 1;
        }
        Some(kind)
    }
}
