//! What somebody is at, by its id: it is begun once, and others can wait until it is over.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Everything that is under way. Cloning gives another hand on the same.
#[derive(Debug)]
pub struct UnderWay<K>(Arc<Mutex<HashMap<K, watch::Receiver<()>>>>);

/// Something that is under way. Dropping it is its end.
#[derive(Debug)]
pub struct Begun<K: Eq + Hash> {
    all: UnderWay<K>,
    key: K,
    _over: watch::Sender<()>,
}

impl<K> Clone for UnderWay<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash + Copy> UnderWay<K> {
    fn all(&self) -> MutexGuard<'_, HashMap<K, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when somebody else is at it.
    pub fn begin(&self, key: K) -> Option<Begun<K>> {
        let mut all = self.all();
        if all.contains_key(&key) {
            return None;
        }
        let (over, waiting) = watch::channel(());
        all.insert(key, waiting);
        Some(Begun { all: self.clone(), key, _over: over })
    }

    /// Waits while somebody is at it.
    pub async fn settled(&self, key: &K) {
        let waiting = self.all().get(key).cloned();
        if let Some(mut waiting) = waiting {
            // Nothing is ever sent: the change is that whoever was at it is done.
            let _ = waiting.changed().await;
        }
    }
}

impl<K: Eq + Hash + Copy> Begun<K> {
    pub fn key(&self) -> K {
        self.key
    }
}

impl<K: Eq + Hash> Drop for Begun<K> {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_begun_once_and_waited_for() {
        let all = UnderWay::default();
        let first = all.begin(1).unwrap();
        assert!(all.begin(1).is_none());
        assert_eq!(all.begin(2).unwrap().key(), 2);
        let settled = all.settled(&1);
        tokio::pin!(settled);
        assert!(futures_util::poll!(&mut settled).is_pending());
        drop(first);
        settled.await;
        all.settled(&1).await;
        assert!(all.begin(1).is_some());
    }
}
