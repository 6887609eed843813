//! Which zygotes are known to be warm. The launcher starts one when it is first needed and lets it go when it is not.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one is taken for warm after it was used.
const WARM_FOR: Duration = Duration::from_secs(30);

/// Past this many the ones that are cold are forgotten.
const MANY: usize = 256;

/// When each was last used, by name and owner.
#[derive(Debug, Default)]
pub(super) struct Zygotes(Mutex<HashMap<(String, String), Instant>>);

impl Zygotes {
    pub(super) fn note(&self, zygote: &str, owner: &str) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= MANY {
            used.retain(|_, at| at.elapsed() < WARM_FOR);
        }
        used.insert((zygote.to_owned(), owner.to_owned()), Instant::now());
    }

    pub(super) fn are_warm(&self, zygote: &str, owner: &str) -> bool {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.get(&(zygote.to_owned(), owner.to_owned())).is_some_and(|at| at.elapsed() < WARM_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_lately_is_warm_for_its_owner() {
        let zygotes = Zygotes::default();
        assert!(!zygotes.are_warm("python", "a"));
        zygotes.note("python", "a");
        assert!(zygotes.are_warm("python", "a"));
        assert!(!zygotes.are_warm("python", "b"));
        assert!(!zygotes.are_warm("python-preloaded", "a"));
        let long_ago = Instant::now().checked_sub(WARM_FOR).unwrap();
        zygotes.0.lock().unwrap().values_mut().for_each(|at| *at = long_ago);
        assert!(!zygotes.are_warm("python", "a"));
    }
}
