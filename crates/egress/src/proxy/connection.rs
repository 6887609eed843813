//! One connection of the sandbox, from its original destination to its end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::net::sockopt;
use sandstorm_types::{HostName, NetworkPolicy};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::{self, Heard, Turned};
use super::opening::Held;
use super::relay;
use super::report::Refusal;
use super::shared::Shared;
use crate::denial::{Denial, Host};
use crate::hello::{self, Hello, HelloError};
use crate::limits::ServerName;
use crate::names::Names;
use crate::permit::{Destination, Permit};

const TLS_PORT: u16 = 443;
/// A name may have any number of addresses; it gets this many tries.
const MAX_ADDRESSES: usize = 8;

pub(super) async fn serve(shared: &Shared, client: TcpStream) {
    // The programs at both ends chose their own delays; the relay must not add one. Failing costs only speed.
    let _ = client.set_nodelay(true);
    match original_destination(&client) {
        Some(original) => serve_to(shared, client, original).await,
        None => {
            refuse(shared, Denial::new(None, None, Refusal::NoDestination));
            reset(&client);
        }
    }
}

/// The destination that the sandbox dialled, from the kernel's connection tracking. A connection that was not
/// redirected has none; the jail's rules let no such connection arrive.
fn original_destination(client: &TcpStream) -> Option<SocketAddr> {
    match client.local_addr().ok()? {
        SocketAddr::V4(_) => sockopt::ip_original_dst(client).ok().map(SocketAddr::V4),
        SocketAddr::V6(_) => sockopt::ipv6_original_dst(client).ok().map(SocketAddr::V6),
    }
}

/// Serves a connection whose destination is known.
pub(super) async fn serve_to(shared: &Shared, mut client: TcpStream, original: SocketAddr) {
    let destination = destination(shared, original);
    let outcome = match &destination {
        Err(reason) => Err(Turned { reason: *reason, heard: Heard::Nothing }),
        Ok(destination) => pass(shared, &mut client, destination).await,
    };
    if let Err(Turned { reason, heard }) = outcome {
        let host = destination.map_or(Host::Address(original.ip()), |destination| destination.host());
        let denial = Denial::new(Some(host), Some(original.port()), reason);
        // On record before the client can know.
        refuse(shared, denial.clone());
        if !answer::tell(shared, &mut client, &denial, heard).await {
            reset(&client);
        }
    }
}

fn refuse(shared: &Shared, denial: Denial) {
    shared.count_refused();
    shared.record(denial);
}

fn destination(shared: &Shared, original: SocketAddr) -> Result<Destination, Refusal> {
    let port = original.port();
    match original.ip() {
        IpAddr::V4(address) if Names::is_synthetic(address) => match shared.name_of(address) {
            Some(name) => Ok(Destination::Name { name, port }),
            None => Err(Refusal::UnknownAddress),
        },
        address => Ok(Destination::Address { address, port }),
    }
}

async fn pass(shared: &Shared, client: &mut TcpStream, destination: &Destination) -> Result<(), Turned> {
    let mut changes = shared.policy_changes();
    // Marked as seen with the very value that decides, so that no change falls between the two.
    let policy = Arc::clone(&changes.borrow_and_update());
    let not_allowed = Turned { reason: Refusal::NotAllowed, heard: Heard::Nothing };
    let permit = destination.permit(&policy, shared.opened()).ok_or(not_allowed)?;
    let way = Way { permit, policy: &policy, name: destination.name_to_check(&policy) };
    let holds = |now: &NetworkPolicy| {
        // What was opened without a look at the names inside must not live on under a policy that wants one, and nothing
        // under one that wants other headers.
        let looked = way.name.is_some() || destination.name_to_check(now).is_none();
        let same = destination.headers(now) == destination.headers(&policy);
        destination.permit(now, shared.opened()).filter(|_| looked && same)
    };
    let opened = tokio::select! {
        biased;
        () = no_longer(changes.clone(), |policy| holds(policy) == Some(permit)) => Err(Refusal::PolicyChanged),
        opened = open(shared, client, destination, &way) => opened,
    };
    let heard = if hears_first(destination, way.name) { Heard::Other } else { Heard::Nothing };
    let Opened { mut server, address, held } = opened.map_err(|reason| Turned { reason, heard })?;
    shared.count_connected();
    tokio::select! {
        biased;
        () = no_longer(changes, |policy| {
            holds(policy).is_some_and(|permit| permit.check(address, shared.boundary()).is_ok())
                && destination.may_go_to(policy, address, shared.boundary())
        }) => {
            Err(Turned { reason: Refusal::PolicyChanged, heard: Heard::Other })
        }
        outcome = relay::relay(shared, client, &mut server, held) => outcome,
    }
}

/// Waits for a policy under which the connection may not be.
async fn no_longer(
    mut changes: watch::Receiver<Arc<NetworkPolicy>>,
    permitted: impl Fn(&NetworkPolicy) -> bool,
) {
    loop {
        match changes.changed().await {
            Ok(()) if permitted(&changes.borrow_and_update()) => {}
            Ok(()) => return,
            // The proxy is ending, and this connection with it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Whether the client's name is read before the connection reaches anything outside.
fn hears_first(destination: &Destination, name: Option<&HostName>) -> bool {
    destination.port() == TLS_PORT && name.is_some()
}

/// How a permitted connection is made.
#[derive(Debug)]
struct Way<'a> {
    permit: Permit,
    /// The policy that let it through.
    policy: &'a NetworkPolicy,
    name: Option<&'a HostName>,
}

/// A connection whose server has answered.
#[derive(Debug)]
struct Opened<'a> {
    server: TcpStream,
    address: IpAddr,
    held: Held<'a>,
}

async fn open<'a>(
    shared: &Shared,
    client: &mut TcpStream,
    destination: &Destination,
    way: &Way<'a>,
) -> Result<Opened<'a>, Refusal> {
    let name = way.name;
    let mut first = Vec::new();
    // On this port the client speaks first, so its name is checked before anyone outside hears of the connection. On
    // others the server may speak first: there the check waits inside the relay for the client's first bytes.
    if hears_first(destination, name)
        && let Some(name) = name
    {
        first = check_hello(shared, client, name, first).await?;
    }
    let (server, address) = dial(shared, destination, way).await?;
    let headers = destination.headers(way.policy);
    Ok(Opened { server, address, held: Held { first, name, port: destination.port(), headers } })
}

/// Reads the client's hello, after `read`, and returns every byte read so far if the name in it may pass.
pub(super) async fn check_hello(
    shared: &Shared,
    client: &mut (impl AsyncReadExt + Unpin),
    name: &HostName,
    mut read: Vec<u8>,
) -> Result<Vec<u8>, Refusal> {
    let strict = shared.server_name() == ServerName::Strict;
    let hello = timeout(shared.limits().hello_timeout, async {
        loop {
            match hello::parse(&read) {
                Err(HelloError::Incomplete) => {}
                done => return Ok(done),
            }
            let room = hello::MAX_BYTES.saturating_sub(read.len()).max(1) as u64;
            match (&mut *client).take(room).read_buf(&mut read).await {
                Ok(0) | Err(_) => return Err(Refusal::MalformedHello),
                Ok(_) => {}
            }
        }
    })
    .await
    .map_err(|_| Refusal::MalformedHello)??;
    match hello {
        Ok(hello) => check_name(shared, &hello, name).map(|()| read),
        Err(HelloError::NotTls) if strict => Err(Refusal::NotTls),
        Err(HelloError::NotTls) => Ok(read),
        Err(HelloError::Incomplete | HelloError::Malformed) => Err(Refusal::MalformedHello),
    }
}

/// Whether a hello names the server that was matched.
pub(super) fn check_name(shared: &Shared, hello: &Hello, name: &HostName) -> Result<(), Refusal> {
    let strict = shared.server_name() == ServerName::Strict;
    match &hello.server_name {
        _ if strict && hello.encrypted => Err(Refusal::EncryptedHello),
        Some(sent) if sent.eq_ignore_ascii_case(name.as_str().as_bytes()) => Ok(()),
        Some(_) => Err(Refusal::OtherServerName),
        None if strict => Err(Refusal::NoServerName),
        None => Ok(()),
    }
}

/// Resolves, drops the addresses that this permit does not reach, and dials the first of the rest that answers.
async fn dial(
    shared: &Shared,
    destination: &Destination,
    way: &Way<'_>,
) -> Result<(TcpStream, IpAddr), Refusal> {
    let permit = way.permit;
    let patience = shared.limits().connect_timeout;
    let addresses = match destination {
        Destination::Address { address, .. } => vec![*address],
        Destination::Name { name, .. } => {
            // A closing dot keeps the host's search domains away from names that the sandbox chose. The operator's own
            // names may depend on those, or on the host's table of names.
            let spelled = match permit {
                Permit::Public => format!("{name}."),
                Permit::Internal => name.to_string(),
            };
            match timeout(patience, shared.upstream.resolver.lookup(&spelled)).await {
                Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
                _ => return Err(Refusal::Unresolved),
            }
        }
    };
    if permit == Permit::Public && addresses.iter().any(IpAddr::is_ipv6) {
        shared.boundary().learn().await;
    }
    let mut refusal = Refusal::ForbiddenAddress;
    let mut within = Vec::new();
    for address in addresses {
        match permit.check(address, shared.boundary()) {
            Ok(()) if !destination.may_go_to(way.policy, address, shared.boundary()) => {
                refusal = Refusal::NotAllowed;
            }
            Ok(()) => within.push(address),
            Err(reason) => refusal = reason,
        }
    }
    for address in within.into_iter().take(MAX_ADDRESSES) {
        let target = SocketAddr::new(address, destination.port());
        match timeout(patience, shared.upstream.dialer.dial(target)).await {
            Ok(Ok(server)) => return Ok((server, address)),
            _ => refusal = Refusal::Unreachable,
        }
    }
    Err(refusal)
}

/// Makes the client see a reset instead of an orderly end, which it could take for an empty answer.
fn reset(client: &TcpStream) {
    // Failing here means that the client is gone already.
    let _ = client.set_zero_linger();
}

#[cfg(test)]
mod tests;
