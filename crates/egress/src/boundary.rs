//! Where no tenant's policy reaches, beside the addresses that are not public: what the operator denies, and what lies
//! behind this network's translator from IPv6 to IPv4 (NAT64).
//!
//! Which addresses a translator turns into which is up to the network that this machine is in. Where it says so, by the
//! name that RFC 7050 set aside for the question, or where the operator says so, a translated address is judged by the one
//! that it stands for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_types::{IpNetwork, Nat64Prefix, is_public};
use tokio::time::{Instant, timeout};

use crate::address::is_own;
use crate::proxy::Refusal;
use crate::upstream::Resolver;

/// A name that has these IPv4 addresses and no other, so that any IPv6 address of it is a translation of them.
const KNOWN_NAME: &str = "ipv4only.arpa.";
const KNOWN_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// Blocks that nobody routes but translators: the usual one, and the one for prefixes of a network's own.
const FOR_TRANSLATION: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
];
const LOOKUP_TIME: Duration = Duration::from_secs(5);
/// How long an answer holds, and how long no answer is put up with.
const HOLDS: Duration = Duration::from_secs(600);
const AGAIN: Duration = Duration::from_secs(30);

/// What the sandboxes of one server share. [`Default`] denies what is not public and nothing else.
#[derive(Default)]
pub struct Boundary {
    denied: Vec<IpNetwork>,
    /// Said by the operator.
    configured: Vec<Nat64Prefix>,
    resolver: Option<Arc<dyn Resolver>>,
    discovered: Mutex<Discovered>,
    /// Held while the name is looked up: one question is enough for everybody.
    asking: tokio::sync::Mutex<()>,
}

/// A prefix is known until so many answers in a row lack it: one that is forgotten opens what lies behind it.
const FORGOTTEN_AFTER: u32 = 3;

#[derive(Debug, Default)]
struct Discovered {
    /// With how many answers in a row lacked each.
    prefixes: Vec<(Nat64Prefix, u32)>,
    /// When to ask again.
    due: Option<Instant>,
}

impl Boundary {
    /// `denied`: what no policy of a tenant reaches. `configured`: prefixes of this network's translators; those that
    /// `resolver` knows of are found out.
    pub fn new(denied: Vec<IpNetwork>, configured: Vec<Nat64Prefix>, resolver: Arc<dyn Resolver>) -> Self {
        Self { denied, configured, resolver: Some(resolver), ..Self::default() }
    }

    /// Finds out the prefixes of this network, unless that is known. What was known before holds where nobody answers.
    pub(crate) async fn learn(&self) {
        let Some(resolver) = &self.resolver else { return };
        if self.is_fresh() {
            return;
        }
        let _turn = self.asking.lock().await;
        if self.is_fresh() {
            return;
        }
        let found = match timeout(LOOKUP_TIME, resolver.lookup(KNOWN_NAME)).await {
            Ok(Ok(addresses)) => Some(prefixes(&addresses)),
            _ => None,
        };
        let mut discovered = self.discovered();
        discovered.due = Some(Instant::now() + if found.is_some() { HOLDS } else { AGAIN });
        match found {
            Some(found) => {
                if discovered.take(found) {
                    let prefixes: Vec<_> = discovered.known().map(ToString::to_string).collect();
                    tracing::info!(?prefixes, "this network translates IPv6 to IPv4 (NAT64)");
                }
            }
            None => {
                tracing::debug!("the name server does not say whether this network translates IPv6 to IPv4")
            }
        }
    }

    /// Whether a tenant's policy may reach the address.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Refusal> {
        let denied = |address: IpAddr| self.denied.iter().any(|network| network.contains(address));
        if denied(address) {
            return Err(Refusal::DeniedAddress);
        }
        match self.translated(address)? {
            Some(real) if denied(real) => Err(Refusal::DeniedAddress),
            Some(real) => plain(real),
            None => plain(address),
        }
    }

    /// The address that a connection to this one ends at, where a translator of this network comes between.
    pub(crate) fn stands_for(&self, address: IpAddr) -> Option<IpAddr> {
        self.translated(address).ok().flatten()
    }

    /// The IPv4 address that a translator of this network makes of this one; `None`: none does.
    fn translated(&self, address: IpAddr) -> Result<Option<IpAddr>, Refusal> {
        let IpAddr::V6(address) = address else { return Ok(None) };
        let discovered = self.discovered();
        // A name server's word opens nothing that is not public anyway or there for translation.
        let credible =
            is_public(address.into()) || FOR_TRANSLATION.iter().any(|block| within(address, *block));
        let discovered = discovered.known().filter(|_| credible);
        let mut real = None;
        for prefix in self.configured.iter().chain(discovered).filter(|prefix| prefix.contains(address)) {
            let embedded = prefix.embedded(address).ok_or(Refusal::ForbiddenAddress)?;
            // Two prefixes that contain each other: nobody knows by which one the translator goes.
            if real.replace(embedded).is_some_and(|other| other != embedded) {
                return Err(Refusal::ForbiddenAddress);
            }
        }
        Ok(real.map(IpAddr::V4))
    }

    fn is_fresh(&self) -> bool {
        self.discovered().due.is_some_and(|due| Instant::now() < due)
    }

    fn discovered(&self) -> MutexGuard<'_, Discovered> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Discovered {
    fn known(&self) -> impl Iterator<Item = &Nat64Prefix> {
        self.prefixes.iter().map(|(prefix, _)| prefix)
    }

    /// Takes an answer. `true`: other prefixes are known now.
    fn take(&mut self, found: Vec<Nat64Prefix>) -> bool {
        let before = self.prefixes.len();
        for (prefix, missing) in &mut self.prefixes {
            *missing = if found.contains(prefix) { 0 } else { *missing + 1 };
        }
        self.prefixes.retain(|(_, missing)| *missing < FORGOTTEN_AFTER);
        let forgot = self.prefixes.len() < before;
        let new: Vec<_> =
            found.into_iter().filter(|prefix| !self.known().any(|known| known == prefix)).collect();
        let learnt = !new.is_empty();
        self.prefixes.extend(new.into_iter().map(|prefix| (prefix, 0)));
        forgot || learnt
    }
}

impl fmt::Debug for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { denied, configured, discovered, .. } = self;
        f.debug_struct("Boundary")
            .field("denied", denied)
            .field("configured", configured)
            .field("discovered", discovered)
            .finish_non_exhaustive()
    }
}

/// Whether the address is public and nobody's here.
fn plain(address: IpAddr) -> Result<(), Refusal> {
    if is_public(address) && !is_own(address) { Ok(()) } else { Err(Refusal::ForbiddenAddress) }
}

fn within(address: Ipv6Addr, (first, length): (Ipv6Addr, u8)) -> bool {
    IpNetwork::new(first.into(), length).is_ok_and(|block| block.contains(address.into()))
}

fn prefixes(answers: &[IpAddr]) -> Vec<Nat64Prefix> {
    let mut found = Vec::new();
    for answer in answers {
        let IpAddr::V6(answer) = answer else { continue };
        for known in KNOWN_ADDRESSES {
            found.extend(
                Nat64Prefix::discover(*answer, known)
                    .filter(|prefix| !found.contains(prefix))
                    .collect::<Vec<_>>(),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests;
