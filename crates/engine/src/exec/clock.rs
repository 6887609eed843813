//! The time that a program has. It stands still while its sandbox does.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::journal::ExecJournal;

/// What is left of a program's time.
#[derive(Debug)]
pub(super) struct WallClock {
    pub(super) left: Duration,
    /// Where it is noted for the next host.
    pub(super) journal: Option<ExecJournal>,
}

impl WallClock {
    /// Waits until the time is over.
    pub(super) async fn run_out(mut self, mut paused: watch::Receiver<bool>) {
        let mut noted = *paused.borrow();
        loop {
            let stands = *paused.borrow_and_update();
            if stands != noted {
                noted = stands;
                self.note(!stands);
            }
            let began = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(self.left), if !stands => return,
                changed = paused.changed() => {
                    if !stands {
                        self.left = self.left.saturating_sub(began.elapsed());
                    }
                    if changed.is_err() {
                        // Nobody pauses or resumes any more: the sandbox is gone, and its end ends this too.
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    fn note(&self, runs: bool) {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.set_clock(self.left, runs)
        {
            tracing::warn!(%error, "the time that is left of an exec cannot be noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_the_sandbox_does() {
        let paused = watch::Sender::new(false);
        let clock = WallClock { left: Duration::from_secs(10), journal: None };
        let began = Instant::now();
        let running = clock.run_out(paused.subscribe());
        let pausing = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            paused.send_replace(true);
            tokio::time::sleep(Duration::from_secs(100)).await;
            paused.send_replace(false);
        };
        tokio::join!(running, pausing);
        assert_eq!(began.elapsed().as_secs(), 110);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_over_while_paused_waits() {
        let paused = watch::Sender::new(true);
        let clock = WallClock { left: Duration::from_secs(1), journal: None };
        let waited = tokio::time::timeout(Duration::from_secs(60), clock.run_out(paused.subscribe())).await;
        assert!(waited.is_err());
    }
}
