//! A token bucket.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Rate {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second: f64::from(per_second.max(1)), burst, tokens: burst, refilled: Instant::now() }
    }

    /// Takes one token, or says how long until there is one.
    pub(crate) fn take(&mut self) -> Result<(), Duration> {
        let now = Instant::now();
        let gained = now.duration_since(self.refilled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.refilled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }

    pub(crate) async fn wait(&mut self) {
        while let Err(pause) = self.take() {
            // Timers tick in milliseconds, so a shorter pause would be none.
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_rate() {
        let mut rate = Rate::new(10, 5);
        assert!((0..5).all(|_| rate.take().is_ok()));
        assert!(rate.take().is_err());
        let start = Instant::now();
        for _ in 0..20 {
            rate.wait().await;
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(1990) && took < Duration::from_millis(2100), "{took:?}");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..100).filter(|_| rate.take().is_ok()).count(), 5);
    }
}
