//! What a sandbox tried and was not let do, told to whoever listens.
//!
//! The sandbox decides how often it tries, so nothing here grows or waits with it: the list of the latest is short, the
//! channel is bounded and never waited for, and what it does not get is counted and said with the next one that it does.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use sandstorm_types::{Denied, DeniedProtocol, HostName, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::proxy::Refusal;
use crate::rate::Rate;

const REMEMBERED: usize = 64;
const PER_SECOND: u32 = 10;
const BURST: u32 = 50;
/// A program that asks for the same thing again within this time is not told of again: a resolver asks for both kinds
/// of address, a library tries twice.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// One refused attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Who was to be reached. `None` when the kernel did not know, or the sandbox sent nothing that is a name.
    pub destination: Option<Host>,
    /// `None` for a lookup.
    pub port: Option<u16>,
    pub reason: Refusal,
    pub at: Timestamp,
    /// Denials since the one before this that the channel did not get.
    pub suppressed: u64,
}

/// A name in canonical form or an address: of what the sandbox sent, nothing else is told on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Name(HostName),
    Address(IpAddr),
}

impl Denial {
    pub(crate) fn new(destination: Option<Host>, port: Option<u16>, reason: Refusal) -> Self {
        Self { destination, port, reason, at: Timestamp::now(), suppressed: 0 }
    }

    /// The destination as a rule for it would be written, without the mark of an address: `example.com:443`,
    /// `[2001:db8::1]:80`; for a lookup the name alone.
    pub fn target(&self) -> Option<String> {
        let host = self.destination.as_ref()?;
        Some(match (host, self.port) {
            (Host::Address(IpAddr::V6(address)), Some(port)) => format!("[{address}]:{port}"),
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_string(),
        })
    }

    /// The same as results tell it.
    pub(crate) fn as_told(&self) -> Denied {
        let lookup = self.port.is_none() && self.reason != Refusal::NoDestination;
        Denied {
            host: self.destination.as_ref().map(Host::to_string),
            port: self.port,
            protocol: if lookup { DeniedProtocol::Dns } else { DeniedProtocol::Tcp },
            reason: self.reason.code().to_owned(),
            message: self.reason.to_string(),
            count: 1,
            at: self.at,
        }
    }

    fn repeats(&self, other: &Self) -> bool {
        (&self.destination, self.port, self.reason) == (&other.destination, other.port, other.reason)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Keeps the latest and passes denials on.
#[derive(Debug)]
pub(crate) struct Denials {
    latest: VecDeque<Denial>,
    listener: Option<mpsc::Sender<Denial>>,
    rate: Rate,
    told: Option<(Denial, Instant)>,
    suppressed: u64,
}

impl Denials {
    pub(crate) fn new(listener: Option<mpsc::Sender<Denial>>) -> Self {
        let rate = Rate::new(PER_SECOND, BURST);
        Self { latest: VecDeque::new(), listener, rate, told: None, suppressed: 0 }
    }

    /// Takes one in. False: the listener does not hear of it, except as a number.
    pub(crate) fn push(&mut self, denial: Denial) -> bool {
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(denial.clone());
        !denial.reason.is_denial() || self.tell(denial)
    }

    fn tell(&mut self, mut denial: Denial) -> bool {
        let Some(listener) = &self.listener else { return true };
        denial.suppressed = self.suppressed;
        let repeated = self
            .told
            .as_ref()
            .is_some_and(|(last, when)| when.elapsed() < SAME_WITHIN && denial.repeats(last));
        if repeated || self.rate.take().is_err() || listener.try_send(denial.clone()).is_err() {
            self.suppressed += 1;
            return false;
        }
        self.suppressed = 0;
        self.told = Some((denial, Instant::now()));
        true
    }

    pub(crate) fn latest(&self) -> Vec<Denial> {
        self.latest.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(index: usize) -> Denial {
        let name = format!("n{index}.example").parse().unwrap();
        Denial::new(Some(Host::Name(name)), Some(443), Refusal::NotAllowed)
    }

    fn read(receiver: &mut mpsc::Receiver<Denial>) -> Vec<Denial> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_as_a_few_and_a_number() {
        let (sender, mut receiver) = mpsc::channel(1000);
        let mut denials = Denials::new(Some(sender));
        let told = (0..10_000).filter(|&index| denials.push(denial(index))).count();
        assert_eq!(told, BURST as usize);
        assert_eq!(read(&mut receiver).iter().map(|denial| denial.suppressed).sum::<u64>(), 0);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(denials.push(denial(0)));
        assert_eq!(read(&mut receiver)[0].suppressed, 10_000 - u64::from(BURST));
        assert_eq!(denials.latest().len(), REMEMBERED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_is_told_once() {
        let (sender, mut receiver) = mpsc::channel(10);
        let mut denials = Denials::new(Some(sender));
        assert!(denials.push(denial(1)));
        assert!(!denials.push(denial(1)));
        assert!(denials.push(denial(2)));
        tokio::time::advance(SAME_WITHIN).await;
        assert!(denials.push(denial(2)));
        let suppressed: Vec<u64> = read(&mut receiver).iter().map(|denial| denial.suppressed).collect();
        assert_eq!(suppressed, [0, 1, 0]);
    }

    #[tokio::test]
    async fn a_listener_that_does_not_read_is_not_waited_for() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut denials = Denials::new(Some(sender));
        assert_eq!((0..10).filter(|&index| denials.push(denial(index))).count(), 2);
        assert_eq!(read(&mut receiver).len(), 2);
        assert!(denials.push(denial(10)));
        assert_eq!(read(&mut receiver)[0].suppressed, 8);
        drop(receiver);
        assert!(!denials.push(denial(11)));
    }

    #[tokio::test]
    async fn what_was_not_forbidden_is_no_denial() {
        let (sender, mut receiver) = mpsc::channel(10);
        let mut denials = Denials::new(Some(sender));
        for reason in [Refusal::Unresolved, Refusal::Unreachable, Refusal::Idle] {
            assert!(denials.push(Denial { reason, ..denial(1) }));
        }
        assert_eq!((read(&mut receiver).len(), denials.latest().len()), (0, 3));
    }

    #[test]
    fn targets_read_like_rules() {
        let of = |host, port| Denial::new(Some(host), port, Refusal::NotAllowed).target().unwrap();
        assert_eq!(of(Host::Name("a.test".parse().unwrap()), Some(80)), "a.test:80");
        assert_eq!(of(Host::Name("a.test".parse().unwrap()), None), "a.test");
        assert_eq!(of(Host::Address("8.8.8.8".parse().unwrap()), Some(53)), "8.8.8.8:53");
        assert_eq!(of(Host::Address("::1".parse().unwrap()), Some(53)), "[::1]:53");
        assert_eq!(Denial::new(None, None, Refusal::MalformedQuery).target(), None);
    }
}
