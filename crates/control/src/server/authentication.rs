//! From a presented key to a caller.
//!
//! A key that was found good is trusted for less than a second without looking again, so that revoking works within a
//! second; a key that was not is looked up every time, so that a new one works at once and every failure takes the
//! same way.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, TenantId, Timestamp, User};

use super::access::own_quota;
use super::failure::stored;
use super::keys::{self, Actor};
use super::{Caller, Control, Inner, KeyForm, KeyView, NewKey, Scopes};

/// The key id of who needs no key.
pub(super) const DEVELOPER: &str = "<developer>";
/// How long a good key is trusted.
const TRUSTED: Duration = Duration::from_millis(800);
/// More keys than this in one second are looked up again.
const MOST: usize = 10_000;
/// How often it is looked whether the holder of a connection still may.
const LOOK: Duration = Duration::from_secs(1);
/// How long a tenant's quota is taken as known.
const QUOTA_KNOWN: Duration = Duration::from_secs(2);

/// Keys that were good a moment ago, and uses that are not written yet.
#[derive(Debug, Default)]
pub(super) struct KnownKeys {
    known: Mutex<Known>,
    /// Held by whoever compares a signature with the tokens of all sandboxes.
    pub(super) searching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    by_hash: HashMap<[u8; 32], (KeyView, Instant)>,
    by_id: HashMap<String, (Option<KeyView>, Instant)>,
    good: HashMap<TenantId, (Vec<String>, Instant)>,
    tenants: HashMap<TenantId, Instant>,
    used: HashMap<String, Timestamp>,
}

impl KnownKeys {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trusted(&self, hash: &[u8; 32]) -> Option<KeyView> {
        let known = self.known();
        let (key, at) = known.by_hash.get(hash)?;
        (at.elapsed() < TRUSTED).then(|| key.clone())
    }

    fn trust(&self, hash: [u8; 32], key: &KeyView) {
        let mut known = self.known();
        if known.by_hash.len() >= MOST {
            known.by_hash.clear();
        }
        known.by_hash.insert(hash, (key.clone(), Instant::now()));
    }

    fn used(&self, id: &str) {
        self.known().used.insert(id.to_owned(), Timestamp::now());
    }

    /// Uses since the last time this was asked.
    pub(super) fn take_used(&self) -> Vec<(String, Timestamp)> {
        std::mem::take(&mut self.known().used).into_iter().collect()
    }

    pub(super) fn forget(&self, id: &str) {
        let mut known = self.known();
        known.by_hash.retain(|_, (key, _)| key.id != id);
        known.by_id.remove(id);
        known.good.clear();
    }

    /// Whether the tenant's quota should be read again. Says so to one caller only.
    fn quota_is_due(&self, tenant: TenantId) -> bool {
        let mut known = self.known();
        let due = known.tenants.get(&tenant).is_none_or(|at| at.elapsed() >= QUOTA_KNOWN);
        if due {
            known.tenants.insert(tenant, Instant::now());
        }
        due
    }
}

impl Control {
    /// Who presented this key. Every failure is the same `Unauthenticated`, in similar time.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn authenticate(&self, presented: &str) -> Result<Caller> {
        let inner = &self.0;
        let hash = inner.keys.hash(presented);
        let key = match inner.known_keys.trusted(&hash) {
            Some(key) => Some(key),
            None => inner.keys.find(presented, &hash).await?.map(keys::view).transpose()?,
        };
        let Some(key) = key.filter(|key| key.is_good(Timestamp::now())) else {
            metrics::counter!("sandstorm_authentication_failures_total").increment(1);
            return Err(Error::new(ErrorKind::Unauthenticated, "the key is missing or not valid"));
        };
        inner.known_keys.trust(hash, &key);
        inner.known_keys.used(&key.id);
        inner.learn_quota(key.tenant).await?;
        let KeyView { id, tenant, scopes, .. } = key;
        let (request_id, user) = (String::new(), User::default());
        Ok(Caller { tenant, key: id, scopes, request_id, traceparent: None, bound: None, user })
    }

    /// Whether the key behind a long-lived connection is still good; asked once a second by whoever holds one. A store
    /// that cannot be asked leaves it as it was.
    pub async fn still_allowed(&self, caller: &Caller) -> bool {
        if let Some(bound) = &caller.bound {
            if !self.0.bounds_hold(caller.tenant, bound) {
                return false;
            }
            if bound.visitor {
                return true;
            }
        }
        if caller.key == DEVELOPER {
            return true;
        }
        match self.0.good_key(&caller.key).await {
            Ok(key) => key.is_some_and(|key| key.tenant == caller.tenant),
            Err(error) => {
                tracing::warn!(%error, "a key could not be checked again");
                true
            }
        }
    }

    /// Resolves when the caller may not go on; for whoever holds a connection or a stream open for them.
    pub async fn revoked(self, caller: Caller) {
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.still_allowed(&caller).await {
                return;
            }
        }
    }

    /// Makes the first key of a store that never had one: the local tenant, every scope. Given once.
    pub async fn first_key(&self) -> Result<Option<String>> {
        if stored(self.0.store.has_keys().await)? {
            return Ok(None);
        }
        let by = Actor { principal: "<first start>".to_owned(), request_id: String::new() };
        let key = NewKey {
            tenant: TenantId::LOCAL,
            name: "first admin key".to_owned(),
            scopes: Scopes::all(),
            form: KeyForm::Native,
            expires_at: None,
        };
        Ok(Some(self.0.keys.create(&by, key).await?.1))
    }
}

impl Inner {
    /// The key with this id, if it was good less than half a second ago.
    pub(super) async fn good_key(&self, id: &str) -> Result<Option<KeyView>> {
        let known = self.known_keys.known().by_id.get(id).cloned();
        if let Some((key, _)) = known.filter(|(_, at)| at.elapsed() < TRUSTED / 2) {
            return Ok(key.filter(|key| key.is_good(Timestamp::now())));
        }
        let key = self.keys.by_id(id).await?.map(keys::view).transpose()?;
        let mut known = self.known_keys.known();
        if known.by_id.len() >= MOST {
            known.by_id.clear();
        }
        known.by_id.insert(id.to_owned(), (key.clone(), Instant::now()));
        Ok(key.filter(|key| key.is_good(Timestamp::now())))
    }

    /// Ids of the keys of a tenant that were good less than half a second ago.
    pub(super) async fn good_keys(&self, tenant: TenantId) -> Result<Vec<String>> {
        let known = self.known_keys.known().good.get(&tenant).cloned();
        if let Some((keys, _)) = known.filter(|(_, at)| at.elapsed() < TRUSTED / 2) {
            return Ok(keys);
        }
        let now = Timestamp::now();
        let good = self.keys.list(Some(tenant)).await?.into_iter().filter(|key| key.is_good(now));
        let good: Vec<String> = good.map(|key| key.id).collect();
        let mut known = self.known_keys.known();
        if known.good.len() >= MOST {
            known.good.clear();
        }
        known.good.insert(tenant, (good.clone(), Instant::now()));
        Ok(good)
    }

    pub(super) async fn learn_quota(&self, tenant: TenantId) -> Result<()> {
        if self.known_keys.quota_is_due(tenant) {
            let row = stored(self.store.tenant(tenant).await)?;
            self.quotas.learn(tenant, row.as_ref().and_then(own_quota));
        }
        Ok(())
    }
}
