//! Tasks that are started while somebody is being answered begin when the answer is on its way: a task that starts wakes a
//! thread, and the answer would wait for that.

use std::cell::RefCell;
use std::pin::Pin;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// What waits for the end of what this thread does now, if that is to be waited for.
    static WAITING: RefCell<Option<Vec<Work>>> = const { RefCell::new(None) };
}

/// Does something; tasks that it starts with [`Tasks::finish`](super::Tasks::finish) begin right after it.
pub fn then_start<T>(first: impl FnOnce() -> T) -> T {
    let _rest = Rest { outer: WAITING.replace(Some(Vec::new())) };
    first()
}

/// Starts a task that its tracker has counted, now or when what is being done is done.
#[expect(clippy::disallowed_methods, reason = "the tracker knows of it already")]
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    let now = WAITING.with_borrow_mut(|waiting| match waiting {
        Some(waiting) => {
            waiting.push(Box::pin(work));
            None
        }
        None => Some(work),
    });
    if let Some(work) = now {
        tokio::spawn(work);
    }
}

/// Starts what waits, also when what came first panicked.
struct Rest {
    outer: Option<Vec<Work>>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        for work in WAITING.replace(self.outer.take()).into_iter().flatten() {
            spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Tasks;

    use super::*;

    #[tokio::test]
    async fn what_is_started_meanwhile_begins_afterwards() {
        let tasks = Tasks::default();
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let start = |word: &'static str| {
            let sender = sender.clone();
            tasks.finish("say", async move { sender.send(word).unwrap() });
        };
        let waiting = || WAITING.with_borrow(|waiting| waiting.as_ref().map(Vec::len));
        then_start(|| {
            start("first");
            then_start(|| start("second"));
            assert_eq!(waiting(), Some(2), "what is within waits for all of it");
        });
        assert_eq!(waiting(), None);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            then_start(|| {
                start("third");
                panic!("on purpose");
            });
        }));
        assert!(panicked.is_err());
        start("fourth");
        tasks.finished().await;
        drop(sender);
        let mut words = Vec::new();
        while let Some(word) = heard.recv().await {
            words.push(word);
        }
        assert_eq!(words, ["first", "second", "third", "fourth"]);
    }

    #[tokio::test]
    async fn who_waits_for_all_tasks_waits_for_those_that_have_not_begun() {
        let tasks = Tasks::default();
        let (sender, done) = tokio::sync::oneshot::channel();
        then_start(|| {
            tasks.finish("last", async move { sender.send(()).unwrap() });
            assert!(!tasks.tracker.is_empty());
        });
        tasks.finished().await;
        done.await.unwrap();
    }
}
