//! What our sandboxes and programs are called there. Only a memory: whatever is not in it is found by its labels.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_provider::{Begun, Error, ExecInput, Metered, Result, UnderWay};
use sandstorm_types::{ByteSize, ErrorKind, ExecId, SandboxId};
use tokio_util::sync::CancellationToken;

use crate::ending::MayEnd;

/// Programs that are remembered; those before are looked for when they are asked for.
const MOST_EXECS: usize = 50_000;
/// Sandboxes that ended of which it is remembered what was counted for them; of those before they are asked.
const MOST_COUNTED: usize = 10_000;

/// One of our sandboxes there.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<PlaceState>);

#[derive(Debug)]
struct PlaceState {
    ours: SandboxId,
    theirs: SandboxId,
    /// Bytes of output that it lets a program keep.
    output: ByteSize,
    /// Set when we set about to end it.
    ending: AtomicBool,
    /// Set when it has ended.
    ended: CancellationToken,
}

impl Place {
    pub(super) fn new(ours: SandboxId, theirs: SandboxId, output: ByteSize) -> Self {
        let (ending, ended) = (AtomicBool::new(false), CancellationToken::new());
        Self(Arc::new(PlaceState { ours, theirs, output, ending, ended }))
    }

    pub(super) fn ours(&self) -> SandboxId {
        self.0.ours
    }

    pub(super) fn theirs(&self) -> SandboxId {
        self.0.theirs
    }

    pub(super) fn output(&self) -> ByteSize {
        self.0.output
    }

    pub(super) fn is_ending(&self) -> bool {
        self.0.ending.load(Ordering::Acquire)
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.0.ended
    }
}

/// One program of ours there.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: ExecId,
    pub(super) place: Place,
    /// The way to its input, where it was asked for; unknown for one that was found again.
    pub(super) input: Option<ExecInput>,
    /// Most bytes of output that it can have kept; `None`: they keep nothing that we have forgotten, and have no limit.
    pub(super) output: Option<ByteSize>,
    /// Whether we sent it a signal.
    pub(super) signalled: AtomicBool,
    /// Events before this number are forgotten.
    pub(super) forgotten: AtomicU64,
    /// Set when it is known to have ended, and what was lost of its input, if that is why.
    pub(super) over: CancellationToken,
    pub(super) fault: Mutex<Option<String>>,
}

impl Running {
    pub(super) fn new(id: ExecId, place: Place, input: Option<ExecInput>, output: Option<ByteSize>) -> Self {
        Self {
            id,
            place,
            input,
            output,
            signalled: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
            over: CancellationToken::new(),
            fault: Mutex::default(),
        }
    }

    /// Its input could not be handed over: whatever it says from here on is about something else.
    pub(super) fn fail(&self, reason: String) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.over.cancel();
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl MayEnd for Place {
    fn set_ending(&self, ending: bool) {
        self.0.ending.store(ending, Ordering::Release);
    }
}

#[derive(Debug, Default)]
pub(super) struct Places {
    known: Mutex<Known>,
    making: UnderWay<SandboxId>,
}

#[derive(Debug, Default)]
struct Known {
    by_ours: HashMap<SandboxId, Place>,
    by_theirs: HashMap<SandboxId, SandboxId>,
    /// Those whose creation was answered with nothing that could be relied on.
    unsure: HashSet<SandboxId>,
    execs: HashMap<ExecId, Arc<Running>>,
    exec_order: VecDeque<ExecId>,
    /// By our id: what they counted for each sandbox that had it, by theirs.
    counted: HashMap<SandboxId, HashMap<SandboxId, Option<Metered>>>,
    counted_order: VecDeque<SandboxId>,
}

impl Places {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, ours: &SandboxId) -> Option<Place> {
        self.known().by_ours.get(ours).cloned()
    }

    pub(super) fn of_theirs(&self, theirs: &SandboxId) -> Option<Place> {
        let known = self.known();
        known.by_theirs.get(theirs).and_then(|ours| known.by_ours.get(ours)).cloned()
    }

    pub(super) fn all(&self) -> Vec<Place> {
        self.known().by_ours.values().cloned().collect()
    }

    /// The place of this sandbox, which is remembered from now on. The one that is known stays.
    pub(super) fn add(&self, place: Place) -> Place {
        let mut known = self.known();
        let place = known.by_ours.entry(place.ours()).or_insert(place).clone();
        known.by_theirs.insert(place.theirs(), place.ours());
        place
    }

    /// Forgets a sandbox that is gone, and its programs.
    pub(super) fn forget(&self, ours: &SandboxId) {
        let mut known = self.known();
        known.unsure.remove(ours);
        if let Some(place) = known.by_ours.remove(ours) {
            known.by_theirs.remove(&place.theirs());
            place.ended().cancel();
        }
        known.execs.retain(|_, running| running.place.ours() != *ours);
        let Known { execs, exec_order, .. } = &mut *known;
        exec_order.retain(|id| execs.contains_key(id));
    }

    /// Whether the last creation of this sandbox may have made it without telling us.
    pub(super) fn is_unsure(&self, ours: &SandboxId) -> bool {
        self.known().unsure.contains(ours)
    }

    /// Takes an id for a creation. One that is taken is a conflict, unless nobody knows yet what came of the creation that
    /// took it.
    pub(super) fn begin(self: &Arc<Self>, ours: SandboxId) -> Result<Making> {
        let known = self.known();
        let taken = known.by_ours.contains_key(&ours) && !known.unsure.contains(&ours);
        let begun = self.making.begin(ours).filter(|_| !taken).ok_or_else(|| exists(ours))?;
        Ok(Making { places: Arc::clone(self), ours, _begun: begun })
    }

    /// A sandbox of theirs has ended, and this is what they counted for it, if they tell.
    pub(super) fn count(&self, ours: SandboxId, theirs: SandboxId, metered: Option<Metered>) {
        let mut known = self.known();
        if !known.counted.contains_key(&ours) {
            known.counted_order.push_back(ours);
        }
        known.counted.entry(ours).or_default().insert(theirs, metered);
        while known.counted_order.len() > MOST_COUNTED {
            if let Some(oldest) = known.counted_order.pop_front() {
                known.counted.remove(&oldest);
            }
        }
    }

    /// What was counted under an id of ours, as far as that is remembered.
    pub(super) fn counted(&self, ours: &SandboxId) -> Option<Vec<Option<Metered>>> {
        self.known().counted.get(ours).map(|counted| counted.values().copied().collect())
    }

    /// Waits while a sandbox is being made.
    pub(super) async fn settled(&self, ours: &SandboxId) {
        self.making.settled(ours).await;
    }

    pub(super) fn exec(&self, id: &ExecId) -> Option<Arc<Running>> {
        self.known().execs.get(id).cloned()
    }

    pub(super) fn forget_exec(&self, id: &ExecId) {
        let mut known = self.known();
        known.execs.remove(id);
        known.exec_order.retain(|one| one != id);
    }

    pub(super) fn add_exec(&self, running: Arc<Running>) {
        let mut known = self.known();
        if known.execs.insert(running.id, Arc::clone(&running)).is_none() {
            known.exec_order.push_back(running.id);
        }
        while known.exec_order.len() > MOST_EXECS {
            if let Some(oldest) = known.exec_order.pop_front() {
                known.execs.remove(&oldest);
            }
        }
    }
}

pub(super) fn exists(ours: SandboxId) -> Error {
    Error::new(ErrorKind::Conflict, "there is such a sandbox already").with("sandbox", ours)
}

/// A sandbox that is being made. Dropping it is the end of the attempt.
#[derive(Debug)]
pub(super) struct Making {
    places: Arc<Places>,
    pub(super) ours: SandboxId,
    _begun: Begun<SandboxId>,
}

impl Making {
    /// It exists.
    pub(super) fn made(self, place: Place) {
        self.places.known().unsure.remove(&self.ours);
        self.places.add(place);
    }

    /// Nobody knows whether it exists.
    pub(super) fn unsure(self) {
        self.places.known().unsure.insert(self.ours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ours: u128, theirs: u128) -> Place {
        Place::new(SandboxId::from_bits(ours), SandboxId::from_bits(theirs), ByteSize::mib(1))
    }

    #[tokio::test]
    async fn an_id_is_taken_once_and_found_both_ways() {
        let places = Arc::new(Places::default());
        let id = SandboxId::from_bits(1);
        let making = places.begin(id).unwrap();
        assert_eq!(places.begin(id).unwrap_err().kind(), ErrorKind::Conflict);
        making.unsure();
        places.settled(&id).await;
        assert!(places.is_unsure(&id) && places.get(&id).is_none());
        // Somebody who lists sees it; the creation can be repeated all the same.
        places.add(place(1, 2));
        places.begin(id).unwrap().made(place(1, 2));
        assert!(!places.is_unsure(&id));
        assert_eq!(places.of_theirs(&SandboxId::from_bits(2)).map(|place| place.ours()), Some(id));
        assert_eq!(places.begin(id).unwrap_err().kind(), ErrorKind::Conflict);
        let known = places.get(&id).unwrap();
        let exec = ExecId::from_bits(3);
        places.add_exec(Arc::new(Running::new(exec, known.clone(), None, Some(ByteSize::mib(1)))));
        places.forget(&id);
        assert!(known.ended().is_cancelled() && places.exec(&exec).is_none() && places.all().is_empty());
    }
}
