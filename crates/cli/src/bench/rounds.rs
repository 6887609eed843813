//! All cases in turns, so that whatever else happens on the machine hits them alike.

use std::time::Duration;

use super::arguments::Extent;
use super::machine::Clock;
use super::progress;
use super::samples::Samples;

/// Something that can be done again and again.
pub(super) trait Subject {
    /// Does it once and says how long that took. What it has to prepare or clean up is not in that time.
    fn sample(&mut self) -> anyhow::Result<Duration>;
}

/// A subject and what was measured of it.
pub(super) struct Case {
    /// Such as `fresh-python` or `bwrap-node`.
    pub(super) name: String,
    /// For people.
    pub(super) title: String,
    pub(super) ours: bool,
    subject: Option<Box<dyn Subject>>,
    pub(super) samples: Samples,
    /// Processor time of all counted samples, what went on after the answer included.
    cpu: Duration,
    /// Why there are no samples, or no more.
    pub(super) error: Option<String>,
    /// Why it is not measured here at all, which is no failure.
    pub(super) skipped: Option<String>,
    pace: Pace,
}

/// How often a case has its turn, by how long it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace {
    /// Takes part in every round of this number.
    every: usize,
    /// Samples in a turn.
    samples: usize,
}

impl Pace {
    /// Quick ones give more samples in the same time, slow ones fewer: otherwise the slowest peer decides how long all
    /// of it takes.
    fn of(sample: Duration, rounds: usize) -> Self {
        match sample.as_millis() {
            0..=9 => Self { every: 1, samples: 5 },
            10..=29 => Self { every: 1, samples: 2 },
            30..=119 => Self { every: 1, samples: 1 },
            // With few rounds it would have no turn at all.
            _ => Self { every: rounds.div_ceil(4).min(4), samples: 1 },
        }
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("samples", &self.samples.count())
            .finish_non_exhaustive()
    }
}

impl Case {
    /// `made`: the subject, or the reason why there is none.
    pub(super) fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        ours: bool,
        made: anyhow::Result<Box<dyn Subject>>,
    ) -> Self {
        let (subject, error) = match made {
            Ok(subject) => (Some(subject), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Self {
            name: name.into(),
            title: title.into(),
            ours,
            subject,
            samples: Samples::default(),
            cpu: Duration::ZERO,
            error,
            skipped: None,
            pace: Pace { every: 1, samples: 1 },
        }
    }

    pub(super) fn skipped(name: impl Into<String>, title: impl Into<String>, why: String) -> Self {
        let mut case = Self::new(name, title, true, Err(anyhow::anyhow!("skipped")));
        (case.error, case.skipped) = (None, Some(why));
        case
    }

    /// Processor time of one sample, in milliseconds.
    pub(super) fn cpu_ms(&self) -> Option<f64> {
        (self.samples.count() > 0).then(|| self.cpu.as_secs_f64() * 1000.0 / self.samples.count() as f64)
    }

    /// One turn. A case that fails is out, with the error that it gave. Says after how many counted samples the machine
    /// did not come to rest.
    fn turn(&mut self, clock: &Clock, counted: bool, rounds: usize) -> anyhow::Result<usize> {
        let Some(subject) = &mut self.subject else { return Ok(0) };
        let mut unsettled = 0;
        for _ in 0..self.pace.samples {
            let before = clock.read()?;
            let sample = subject.sample();
            let settled = clock.settle()?;
            let used = clock.since(before)?;
            match sample {
                Ok(took) if counted => {
                    self.samples.add(took);
                    self.cpu += used;
                    unsettled += usize::from(!settled);
                }
                Ok(took) => self.pace = Pace::of(took, rounds),
                Err(error) => {
                    self.error = Some(format!("{error:#}"));
                    self.subject = None;
                    break;
                }
            }
        }
        Ok(unsettled)
    }
}

/// Lets all cases take their turns. Says after how many of them the machine did not come to rest.
pub(super) fn measure(cases: &mut [Case], extent: Extent, clock: &Clock) -> anyhow::Result<usize> {
    let mut unsettled = 0;
    for round in 0..extent.warm_up + extent.rounds {
        let counted = round >= extent.warm_up;
        // Each round starts elsewhere, so that no case always follows the same other.
        let first = round % cases.len().max(1);
        for place in 0..cases.len() {
            let number = (first + place) % cases.len();
            let case = &mut cases[number];
            // Those that do not take part in every round do not all choose the same one.
            let turn = !counted || (round + number).is_multiple_of(case.pace.every);
            if turn {
                progress::tell(&format!(
                    "round {} of {}: {}",
                    round + 1,
                    extent.warm_up + extent.rounds,
                    case.title
                ));
                unsettled += case.turn(clock, counted, extent.rounds)?;
            }
        }
    }
    progress::done(&format!("{} rounds of {} cases", extent.rounds, cases.len()));
    Ok(unsettled)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scripted(Vec<anyhow::Result<Duration>>);

    impl Subject for Scripted {
        fn sample(&mut self) -> anyhow::Result<Duration> {
            self.0.pop().unwrap_or_else(|| Ok(Duration::from_millis(500)))
        }
    }

    fn case(script: Vec<anyhow::Result<Duration>>) -> Case {
        Case::new("x", "x", true, Ok(Box::new(Scripted(script))))
    }

    #[test]
    fn a_case_that_fails_keeps_its_error_and_is_left_alone() {
        let clock = Clock::find().unwrap();
        let mut case = case(vec![Ok(Duration::from_secs(9)), Err(anyhow::anyhow!("no such thing"))]);
        case.turn(&clock, true, 9).unwrap();
        case.turn(&clock, true, 9).unwrap();
        assert_eq!(case.error.as_deref(), Some("no such thing"));
        assert_eq!(case.samples.count(), 0);
        assert_eq!(case.cpu_ms(), None);
    }

    #[test]
    fn slow_cases_have_fewer_turns() {
        assert_eq!(Pace::of(Duration::from_millis(1), 100), Pace { every: 1, samples: 5 });
        assert_eq!(Pace::of(Duration::from_millis(400), 100), Pace { every: 4, samples: 1 });
        assert_eq!(Pace::of(Duration::from_millis(400), 3), Pace { every: 1, samples: 1 });
    }
}
