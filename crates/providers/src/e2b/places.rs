//! What our sandboxes are called there and how they are reached. Only a memory: whatever is not in it is found by its marks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use reqwest::Url;
use sandstorm_provider::{Begun, Error, Result, UnderWay};
use sandstorm_types::{ErrorKind, Limits, SandboxId, User};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::view::TheirId;
use crate::ending::MayEnd;

/// One of our sandboxes there.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<PlaceState>);

/// What is known of a place from the start.
#[derive(Debug)]
pub(super) struct NewPlace {
    pub(super) ours: SandboxId,
    pub(super) theirs: TheirId,
    /// Where its agent is.
    pub(super) agent: Url,
    pub(super) token: HeaderValue,
    pub(super) limits: Limits,
    pub(super) user: User,
    pub(super) paused: bool,
}

#[derive(Debug)]
struct PlaceState {
    ours: SandboxId,
    theirs: TheirId,
    agent: Url,
    /// What opens the agent; another one after it slept.
    token: Mutex<HeaderValue>,
    limits: Limits,
    user: User,
    paused: watch::Sender<bool>,
    /// Set while we put it to sleep or wake it: what they show of it then is of no use.
    changing: AtomicBool,
    /// Set when we set about to end it.
    ending: AtomicBool,
    /// Set when it has ended.
    ended: CancellationToken,
}

impl Place {
    pub(super) fn new(new: NewPlace) -> Self {
        let NewPlace { ours, theirs, agent, token, limits, user, paused } = new;
        Self(Arc::new(PlaceState {
            ours,
            theirs,
            agent,
            token: Mutex::new(token),
            limits,
            user,
            paused: watch::Sender::new(paused),
            changing: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            ended: CancellationToken::new(),
        }))
    }

    pub(super) fn ours(&self) -> SandboxId {
        self.0.ours
    }

    pub(super) fn theirs(&self) -> &TheirId {
        &self.0.theirs
    }

    pub(super) fn agent(&self) -> &Url {
        &self.0.agent
    }

    pub(super) fn token(&self) -> HeaderValue {
        self.0.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(super) fn user(&self) -> User {
        self.0.user
    }

    pub(super) fn set_paused(&self, paused: bool) {
        self.0.paused.send_replace(paused);
    }

    /// It was woken, and is opened by this from now on.
    pub(super) fn woken(&self, token: HeaderValue) {
        *self.0.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        self.set_paused(false);
    }

    /// It was seen like this.
    pub(super) fn seen_paused(&self, paused: bool) {
        if !self.0.changing.load(Ordering::Acquire) {
            self.set_paused(paused);
        }
    }

    /// From here on until it is dropped, nobody but us knows whether it sleeps.
    pub(super) fn change(&self) -> Changing {
        self.0.changing.store(true, Ordering::Release);
        Changing(self.clone())
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.0.paused.borrow()
    }

    /// Waits while it sleeps.
    pub(super) async fn awake(&self) {
        let mut paused = self.0.paused.subscribe();
        // The sender lives as long as this place, so waiting cannot fail.
        let _ = paused.wait_for(|paused| !*paused).await;
    }

    pub(super) fn is_ending(&self) -> bool {
        self.0.ending.load(Ordering::Acquire)
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.0.ended
    }
}

/// A sandbox that is put to sleep or woken.
pub(super) struct Changing(Place);

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.0.changing.store(false, Ordering::Release);
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
    /// Those whose creation was answered with nothing that could be relied on, and the attempt's own mark.
    unsure: HashMap<SandboxId, String>,
}

impl Places {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, ours: &SandboxId) -> Option<Place> {
        self.known().by_ours.get(ours).cloned()
    }

    pub(super) fn all(&self) -> Vec<Place> {
        self.known().by_ours.values().cloned().collect()
    }

    /// The place of this sandbox, which is remembered from now on. The one that is known stays.
    pub(super) fn add(&self, place: Place) -> Place {
        self.known().by_ours.entry(place.ours()).or_insert(place).clone()
    }

    /// Forgets a sandbox that is gone. Whether it was known.
    pub(super) fn forget(&self, ours: &SandboxId) -> bool {
        let mut known = self.known();
        known.unsure.remove(ours);
        match known.by_ours.remove(ours) {
            Some(place) => {
                place.ended().cancel();
                true
            }
            None => false,
        }
    }

    /// The mark of the last attempt to make this sandbox, if that may have made it without telling us.
    pub(super) fn unsure(&self, ours: &SandboxId) -> Option<String> {
        self.known().unsure.get(ours).cloned()
    }

    /// Takes an id for a creation. One that is taken is a conflict, unless nobody knows yet what came of the creation that
    /// took it.
    pub(super) fn begin(self: &Arc<Self>, ours: SandboxId) -> Result<Making> {
        let known = self.known();
        let taken = known.by_ours.contains_key(&ours) && !known.unsure.contains_key(&ours);
        let begun = self.making.begin(ours).filter(|_| !taken).ok_or_else(|| exists(ours))?;
        Ok(Making { places: Arc::clone(self), ours, _begun: begun })
    }

    /// Waits while a sandbox is being made.
    pub(super) async fn settled(&self, ours: &SandboxId) {
        self.making.settled(ours).await;
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
        let mut known = self.places.known();
        known.unsure.remove(&self.ours);
        // Somebody who listed meanwhile knows no more than we do.
        known.by_ours.insert(self.ours, place);
    }

    /// Nobody knows whether it exists.
    pub(super) fn unsure(self, attempt: String) {
        self.places.known().unsure.insert(self.ours, attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ours: u128) -> Place {
        Place::new(NewPlace {
            ours: SandboxId::from_bits(ours),
            theirs: "abc".parse().unwrap(),
            agent: Url::parse("http://h").unwrap(),
            token: HeaderValue::from_static("t"),
            limits: Limits::default(),
            user: User::User,
            paused: false,
        })
    }

    #[tokio::test]
    async fn an_id_is_taken_once() {
        let places = Arc::new(Places::default());
        let id = SandboxId::from_bits(1);
        let making = places.begin(id).unwrap();
        assert_eq!(places.begin(id).unwrap_err().kind(), ErrorKind::Conflict);
        making.unsure("first".to_owned());
        places.settled(&id).await;
        assert_eq!(places.unsure(&id).as_deref(), Some("first"));
        // Somebody who lists sees it; the creation can be repeated all the same.
        places.add(place(1));
        places.begin(id).unwrap().made(place(1));
        assert_eq!(places.unsure(&id), None);
        assert_eq!(places.begin(id).unwrap_err().kind(), ErrorKind::Conflict);
        let known = places.get(&id).unwrap();
        assert!(places.forget(&id) && !places.forget(&id));
        assert!(known.ended().is_cancelled() && places.all().is_empty());
    }

    #[tokio::test]
    async fn who_waits_for_a_sleeper_hears_that_it_woke() {
        let place = place(1);
        place.set_paused(true);
        let waiting = place.awake();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        place.woken(HeaderValue::from_static("new"));
        waiting.await;
        assert_eq!(place.token(), "new");
    }
}
