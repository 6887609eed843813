//! How many sandboxes of one kind are worth having ready. Pure: whoever asks says what time it is.

use std::time::{Duration, Instant};

/// Over which time arrivals are counted.
const RATE_SPAN: Duration = Duration::from_secs(10);
/// Arrivals within this time are one burst, which nothing could be made for on the way.
const BURST_SPAN: Duration = Duration::from_millis(250);
/// After this time a burst counts half.
const BURST_HALF_LIFE: Duration = Duration::from_secs(60);
/// A kind that nobody asked for in this time is of no use any more.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How many times as long as usual a fill may take before requests notice.
const SLOW_FILL: f64 = 4.0;
/// What a first fill is thought to take.
const USUAL_FILL: Duration = Duration::from_millis(10);
/// How much a new measurement changes what is known.
const WEIGHT: f64 = 0.2;

/// What was seen of one kind of sandbox.
#[derive(Debug)]
pub(crate) struct Demand {
    arrivals: u64,
    last: Instant,
    /// Arrivals, each counting less with time, as of `last`.
    recent: f64,
    burst: Burst,
    fill: Duration,
    memory: u64,
    weighed: bool,
    pinned: usize,
}

/// The most that came at once, each burst counting less with time.
#[derive(Debug)]
struct Burst {
    began: Instant,
    now: u32,
    highest: f64,
    as_of: Instant,
}

impl Demand {
    /// Of a kind that nobody asked for yet. `memory`: what one is thought to take until one was weighed.
    pub(crate) fn new(now: Instant, memory: u64) -> Self {
        Self {
            arrivals: 0,
            last: now,
            recent: 0.0,
            burst: Burst { began: now, now: 0, highest: 0.0, as_of: now },
            fill: USUAL_FILL,
            memory,
            weighed: false,
            pinned: 0,
        }
    }

    /// Somebody wanted one, whether there was one or not.
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.recent = self.recent * faded(self.last, now, RATE_SPAN) + 1.0;
        self.last = now;
        self.arrivals += 1;
        self.burst.arrive(now);
    }

    /// One was made.
    pub(crate) fn filled(&mut self, took: Duration) {
        let known = self.fill.as_secs_f64();
        self.fill = Duration::from_secs_f64(known + WEIGHT * (took.as_secs_f64() - known));
    }

    /// One was weighed.
    pub(crate) fn weigh(&mut self, bytes: u64) {
        self.memory = match self.weighed {
            true => (self.memory as f64 + WEIGHT * (bytes as f64 - self.memory as f64)) as u64,
            false => bytes,
        };
        self.weighed = true;
    }

    /// Wants at least this many at all times.
    pub(crate) fn pin(&mut self, count: usize) {
        self.pinned = count;
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned > 0
    }

    /// What one takes while it waits.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.max(1)
    }

    /// Arrivals in a second.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        self.recent * faded(self.last, now, RATE_SPAN) / RATE_SPAN.as_secs_f64()
    }

    /// Whether it came more than once, or is wanted in any case.
    pub(crate) fn is_proven(&self) -> bool {
        self.arrivals > 1 || self.pinned > 0
    }

    pub(crate) fn is_forgotten(&self, now: Instant) -> bool {
        self.pinned == 0 && now.saturating_duration_since(self.last) > REMEMBERED
    }

    pub(crate) fn last(&self) -> Instant {
        self.last
    }

    /// How many to have ready: what comes while a slow fill is under way, with room for chance, or what came at once
    /// lately; a few for a kind that was seen lately at all.
    pub(crate) fn target(&self, now: Instant) -> usize {
        if self.is_forgotten(now) {
            return 0;
        }
        let meanwhile = self.rate(now) * self.fill.as_secs_f64() * SLOW_FILL;
        let by_rate = meanwhile + 2.0 * meanwhile.sqrt();
        let floor = match self.arrivals {
            0 => 0,
            1 => 1,
            _ => 2,
        };
        let demanded = by_rate.max(self.burst.height(now)).ceil() as usize;
        demanded.max(floor).max(self.pinned)
    }
}

impl Burst {
    fn arrive(&mut self, now: Instant) {
        if now.saturating_duration_since(self.began) > BURST_SPAN {
            (self.began, self.now) = (now, 0);
        }
        self.now = self.now.saturating_add(1);
        self.highest = self.height(now).max(f64::from(self.now));
        self.as_of = now;
    }

    fn height(&self, now: Instant) -> f64 {
        self.highest * faded(self.as_of, now, BURST_HALF_LIFE).powf(std::f64::consts::LN_2)
    }
}

/// How much of something is left that fades to 1/e in `span`.
fn faded(since: Instant, now: Instant, span: Duration) -> f64 {
    (-now.saturating_duration_since(since).as_secs_f64() / span.as_secs_f64()).exp()
}

/// When to begin and when to stop filling: between the two marks nothing happens, so that fills come together and not one
/// behind each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watermarks {
    pub(crate) low: usize,
    pub(crate) high: usize,
}

impl Watermarks {
    pub(crate) fn of(target: usize) -> Self {
        Self { low: target / 2, high: target }
    }

    /// Whether to fill, given whether that is what was being done.
    pub(crate) fn fills(self, stock: usize, filling: bool) -> bool {
        stock < self.high && (filling || stock <= self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    /// Arrivals at an even rate.
    fn steady(start: Instant, rate: f64, seconds: f64) -> (Demand, Instant) {
        let mut demand = Demand::new(start, 1 << 20);
        let count = (rate * seconds) as u32;
        let mut now = start;
        for n in 0..count {
            now = after(start, f64::from(n) / rate);
            demand.arrive(now);
        }
        (demand, now)
    }

    #[test]
    fn a_rate_is_learnt_and_forgotten() {
        let (demand, now) = steady(Instant::now(), 20.0, 60.0);
        assert!((demand.rate(now) - 20.0).abs() < 1.0, "{}", demand.rate(now));
        assert!(demand.rate(after(now, 10.0)) < 8.0);
        assert!(demand.rate(after(now, 120.0)) < 0.01);
    }

    #[test]
    fn nobody_asked_means_nothing_is_made() {
        let now = Instant::now();
        assert_eq!(Demand::new(now, 1).target(now), 0);
    }

    #[test]
    fn one_that_was_seen_lately_is_kept_ready_and_then_no_more() {
        let now = Instant::now();
        let mut demand = Demand::new(now, 1);
        demand.arrive(now);
        assert_eq!((demand.target(now), demand.is_proven()), (1, false));
        demand.arrive(after(now, 5.0));
        assert_eq!((demand.target(after(now, 5.0)), demand.is_proven()), (2, true));
        assert_eq!(demand.target(after(now, 500.0)), 2);
        assert_eq!(demand.target(after(now, 700.0)), 0);
        assert!(demand.is_forgotten(after(now, 700.0)));
    }

    #[test]
    fn slow_fills_and_high_rates_need_more() {
        let (mut slow, now) = steady(Instant::now(), 10.0, 30.0);
        let quick = slow.target(now);
        for _ in 0..50 {
            slow.filled(Duration::from_millis(500));
        }
        assert!(slow.target(now) > 4 * quick, "{} against {quick}", slow.target(now));
        let (fast, now) = steady(Instant::now(), 200.0, 30.0);
        assert!(fast.target(now) > 2 * quick, "{} against {quick}", fast.target(now));
    }

    #[test]
    fn a_burst_is_prepared_for_and_fades() {
        let now = Instant::now();
        let mut demand = Demand::new(now, 1);
        for n in 0..100 {
            demand.arrive(after(now, f64::from(n) / 1000.0));
        }
        assert_eq!(demand.target(after(now, 0.1)), 100);
        let minute = demand.target(after(now, 60.2));
        assert!((49..=51).contains(&minute), "{minute}");
        assert_eq!(demand.target(after(now, 550.0)), 2);
    }

    #[test]
    fn what_is_pinned_stays() {
        let now = Instant::now();
        let mut demand = Demand::new(now, 1);
        demand.pin(4);
        assert_eq!(demand.target(after(now, 100_000.0)), 4);
        assert!(!demand.is_forgotten(after(now, 100_000.0)) && demand.is_proven());
    }

    #[test]
    fn what_was_weighed_counts() {
        let mut demand = Demand::new(Instant::now(), 1 << 20);
        demand.weigh(5 << 20);
        assert_eq!(demand.memory(), 5 << 20);
        demand.weigh(0);
        assert_eq!(demand.memory(), 4 << 20);
    }

    #[test]
    fn fills_come_together() {
        let marks = Watermarks::of(8);
        assert_eq!(marks, Watermarks { low: 4, high: 8 });
        assert!(!marks.fills(5, false) && marks.fills(4, false));
        assert!(marks.fills(7, true) && !marks.fills(8, true));
        assert!(Watermarks::of(1).fills(0, false));
        assert!(!Watermarks::of(0).fills(0, false) && !Watermarks::of(0).fills(0, true));
    }
}
