//! Whether a launcher still does anything.
//!
//! Its guardian asks it now and then over a socket pair of theirs, and the launcher answers in its loop. One that does not is
//! replaced; but a busy machine is no reason for that. So what counts is not only time: the guardian has to have looked
//! often meanwhile, which it cannot where nobody gets a processor, and one that is not stopped has much longer.

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// Between an answer and the next question.
const REST: Duration = Duration::from_secs(1);
/// Between two looks at one that was asked.
const LOOK: Duration = Duration::from_millis(500);
/// A stopped launcher may be somebody's short look at it.
const STOPPED: Duration = Duration::from_secs(5);
/// Anything else may be much to do, also for others.
const SILENT: Duration = Duration::from_secs(60);

/// What the guardian knows of a launcher's answers.
#[derive(Debug)]
pub(super) struct Pulse {
    rested: Instant,
    asked: Option<Asked>,
}

/// A question without an answer so far.
#[derive(Debug)]
struct Asked {
    at: Instant,
    looks: u32,
    /// Since when it is seen stopped at every look, and how many these are.
    stopped: Option<(Instant, u32)>,
}

/// What is to be done about a launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Question,
    Replacement,
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Self {
        Self { rested: now, asked: None }
    }

    /// How long to wait for an answer, or until the next question.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        match self.asked {
            Some(_) => LOOK,
            None => (self.rested + REST).saturating_duration_since(now),
        }
    }

    pub(super) fn answered(&mut self, now: Instant) {
        (self.rested, self.asked) = (now, None);
    }

    /// Has waited as long as it was to. `is_stopped` looks at the process.
    pub(super) fn look(&mut self, now: Instant, is_stopped: impl FnOnce() -> bool) -> Need {
        let Some(asked) = &mut self.asked else {
            if now < self.rested + REST {
                return Need::Nothing;
            }
            self.asked = Some(Asked { at: now, looks: 0, stopped: None });
            return Need::Question;
        };
        asked.looks += 1;
        asked.stopped = match (is_stopped(), asked.stopped) {
            (true, Some((since, looks))) => Some((since, looks + 1)),
            (true, None) => Some((now, 1)),
            (false, _) => None,
        };
        let long = |since: Instant, looks: u32, most: Duration| {
            now.saturating_duration_since(since) >= most && LOOK.saturating_mul(looks) >= most.mul_f64(0.8)
        };
        let stopped = asked.stopped.is_some_and(|(since, looks)| long(since, looks, STOPPED));
        match stopped || long(asked.at, asked.looks, SILENT) {
            true => Need::Replacement,
            false => Need::Nothing,
        }
    }
}

/// Asks. One that has not read the last question needs no other.
pub(super) fn ask(socket: BorrowedFd<'_>) {
    let _ = rustix::net::send(socket, b"?", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes what came on either side. `None`: the other side is gone.
pub(super) fn hear(socket: BorrowedFd<'_>) -> Option<bool> {
    let mut word = [0; 8];
    match rustix::net::recv(socket, &mut word[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => None,
        Ok(_) => Some(true),
        Err(Errno::AGAIN | Errno::INTR) => Some(false),
        Err(_) => None,
    }
}

/// The launcher's part. `false`: there is no guardian any more.
pub(super) fn answer(socket: BorrowedFd<'_>) -> bool {
    match hear(socket) {
        Some(true) => {
            ask(socket);
            true
        }
        Some(false) => true,
        None => false,
    }
}

/// Whether somebody stopped a process.
pub(super) fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::packet;

    /// Looks as the guardian does until something is needed or the time is up; says when that was.
    fn watch(
        pulse: &mut Pulse,
        mut now: Instant,
        most: Duration,
        stopped: impl Fn(Duration) -> bool,
    ) -> Option<Duration> {
        let began = now;
        while now - began < most {
            now += pulse.wait(now).max(Duration::from_millis(1));
            if pulse.look(now, || stopped(now - began)) == Need::Replacement {
                return Some(now - began);
            }
        }
        None
    }

    #[test]
    fn a_stopped_one_is_replaced_soon_and_a_busy_one_late() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let stopped = watch(&mut Pulse::new(now), now, hour, |_| true).unwrap();
        assert!((STOPPED..STOPPED + 2 * REST).contains(&stopped), "{stopped:?}");
        let silent = watch(&mut Pulse::new(now), now, hour, |_| false).unwrap();
        assert!((SILENT..SILENT + 2 * REST).contains(&silent), "{silent:?}");
        let short = watch(&mut Pulse::new(now), now, SILENT, |passed| passed < Duration::from_secs(4));
        assert_eq!(short, None);
    }

    #[test]
    fn time_in_which_nobody_could_look_does_not_count() {
        let now = Instant::now();
        let mut pulse = Pulse::new(now);
        assert_eq!(pulse.look(now + REST, || true), Need::Question);
        for hour in 1..5 {
            let now = now + Duration::from_secs(3600 * hour);
            assert_eq!(pulse.look(now, || true), Need::Nothing);
        }
    }

    #[test]
    fn questions_are_answered_until_one_side_goes() {
        let (guardian, launcher) = packet::pair().unwrap();
        assert_eq!(hear(guardian.as_fd()), Some(false));
        ask(guardian.as_fd());
        assert!(answer(launcher.as_fd()));
        assert_eq!(hear(guardian.as_fd()), Some(true));
        drop(guardian);
        assert!(!answer(launcher.as_fd()));
    }
}
