//! A future that wakes itself is polled again at once, and what it starts begins afterwards.
//!
//! A connection wakes itself with every body that is read. The runtime takes that for a task that makes room for others: it
//! puts it at the end of its queue and wakes another thread to look for work, which finds next to none.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use sandstorm_provider::then_start;

/// How often in a row, before others have their turn.
const MOST: usize = 8;

const RESTS: u8 = 0;
const POLLED: u8 = 1;
/// Woken while it was being polled.
const AGAIN: u8 = 2;

pub(super) struct Again<F> {
    future: F,
    alarm: Arc<Alarm>,
    waker: Waker,
}

#[derive(Default)]
struct Alarm {
    state: AtomicU8,
    task: AtomicWaker,
}

impl<F> Again<F> {
    pub(super) fn new(future: F) -> Self {
        let alarm = Arc::<Alarm>::default();
        Self { future, waker: Arc::clone(&alarm).into(), alarm }
    }

    pub(super) fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = |state| (state == POLLED).then_some(AGAIN);
        // Where it is being polled, or was woken already, whoever polls it sees that.
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, woken) == Err(RESTS) {
            self.task.wake();
        }
    }
}

impl<F: Future + Unpin> Future for Again<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        this.alarm.task.register(cx.waker());
        then_start(|| this.poll_for_a_while(cx))
    }
}

impl<F: Future + Unpin> Again<F> {
    fn poll_for_a_while(&mut self, cx: &Context<'_>) -> Poll<F::Output> {
        for _ in 0..MOST {
            self.alarm.state.store(POLLED, Ordering::Release);
            let polled = Pin::new(&mut self.future).poll(&mut Context::from_waker(&self.waker));
            if polled.is_ready() {
                return polled;
            }
            let state = &self.alarm.state;
            if state.compare_exchange(POLLED, RESTS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        self.alarm.state.store(RESTS, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_wakes_itself_wakes_nobody_else_unless_it_goes_on_for_ever() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        for (times, woken) in [(0, 0), (3, 0), (MOST - 1, 0), (MOST, 1), (100, 1)] {
            let mut left = times;
            let mut future = Again::new(std::future::poll_fn(move |cx| {
                if left > 0 {
                    left -= 1;
                    cx.waker().wake_by_ref();
                }
                Poll::<()>::Pending
            }));
            count.0.store(0, Ordering::SeqCst);
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(count.0.load(Ordering::SeqCst), woken, "{times} times");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_call_of_another_thread_is_missed() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<u32>(1);
        std::thread::spawn(move || {
            for number in 0..20_000 {
                sender.blocking_send(number).unwrap();
            }
        });
        let all = Box::pin(async move {
            let mut heard = 0;
            while receiver.recv().await.is_some() {
                heard += 1;
            }
            heard
        });
        let heard = tokio::time::timeout(Duration::from_secs(60), Again::new(all)).await;
        assert_eq!(heard, Ok(20_000));
    }
}
