//! Collecting what does not get through, for as long as a caller wants to know: while a program runs, for example.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sandstorm_types::{Denied, DeniedList};

use crate::denial::Denial;

/// Who collects what one sandbox is refused.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<Weak<Mutex<DeniedList>>>>);

/// What was refused since it was made. It is bounded, whatever the sandbox does.
#[derive(Debug)]
pub struct Watch(Arc<Mutex<DeniedList>>);

impl Watchers {
    /// Collects from now on, until it is dropped.
    pub fn watch(&self) -> Watch {
        let list = Arc::default();
        let mut lists = lock(&self.0);
        lists.retain(|list| list.strong_count() > 0);
        lists.push(Arc::downgrade(&list));
        Watch(list)
    }

    pub(crate) fn note(&self, denial: &Denial) {
        let lists = lock(&self.0);
        if lists.is_empty() {
            return;
        }
        let told = denial.as_told();
        for list in lists.iter().filter_map(Weak::upgrade) {
            lock(&list).add(told.clone());
        }
    }
}

impl Watch {
    pub fn seen(&self) -> Vec<Denied> {
        lock(&self.0).clone().into_vec()
    }
}

/// Lists stay whole between calls, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::denial::Host;
    use crate::proxy::Refusal;

    fn denial(name: &str, port: Option<u16>) -> Denial {
        Denial::new(Some(Host::Name(name.parse().unwrap())), port, Refusal::NotAllowed)
    }

    #[test]
    fn each_hears_of_its_own_time() {
        let watchers = Watchers::default();
        watchers.note(&denial("before.test", None));
        let first = watchers.watch();
        watchers.note(&denial("one.test", Some(443)));
        let second = watchers.watch();
        for _ in 0..3 {
            watchers.note(&denial("two.test", Some(22)));
        }
        let told = |watch: &Watch| -> Vec<_> {
            let seen = watch.seen().into_iter();
            seen.map(|one| (one.target().unwrap(), one.reason, one.count)).collect()
        };
        let two = ("two.test:22".to_owned(), "not_allowed".to_owned(), 3);
        assert_eq!(told(&first), [("one.test:443".to_owned(), "not_allowed".to_owned(), 1), two.clone()]);
        assert_eq!(told(&second), [two]);
        drop((first, second));
        let _third = watchers.watch();
        assert_eq!(lock(&watchers.0).len(), 1, "those who left are still known");
    }

    #[test]
    fn a_flood_is_a_short_list() {
        let watchers = Watchers::default();
        let watch = watchers.watch();
        for index in 0..100_000 {
            watchers.note(&denial(&format!("n{index}.test"), Some(443)));
        }
        let seen = watch.seen();
        assert_eq!(seen.len(), 33);
        assert_eq!(seen.iter().map(|one| one.count).sum::<u64>(), 100_000);
    }
}
