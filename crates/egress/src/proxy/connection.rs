//! One connection of the sandbox, from its original destination to its end.

use std::net::{IpAddr, SocketAddr};

use rustix::net::sockopt;
use sandstorm_types::{HostName, NetworkPolicy};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::relay;
use super::report::Refusal;
use super::shared::Shared;
use crate::hello::{self, HelloError};
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
            shared.record(None, Refusal::NoDestination);
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
    let reason = match &destination {
        Err(reason) => Err(*reason),
        Ok(destination) => pass(shared, &mut client, destination).await,
    };
    if let Err(reason) = reason {
        shared.record(destination.ok(), reason);
        reset(&client);
    }
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

async fn pass(shared: &Shared, client: &mut TcpStream, destination: &Destination) -> Result<(), Refusal> {
    // Subscribed before the decision, so that no change falls between the two.
    let changes = shared.policy_changes();
    let policy = shared.policy();
    let permit = destination.permit(&policy).ok_or(Refusal::NotAllowed)?;
    let mut first = Vec::new();
    let mut unread_name = match destination {
        Destination::Name { name, .. } if *policy != NetworkPolicy::Open => Some(name),
        // Where the address was matched, or everything is, one name inside the connection is as good as another.
        _ => None,
    };
    // On this port the client speaks first, so its name is checked before anyone outside hears of the connection. On
    // others the server may speak first: there the check waits inside the relay for the client's first bytes.
    if destination.port() == TLS_PORT
        && let Some(name) = unread_name.take()
    {
        first = check_hello(shared, client, name, first).await?;
    }
    let (mut server, address) = dial(shared, destination, permit).await?;
    shared.count_connected();
    let held = relay::Held { first, name: unread_name };
    relay::relay(shared, client, &mut server, held, changes, |policy| {
        destination.permit(policy).is_some_and(|permit| permit.reaches(address))
    })
    .await
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
        Ok(hello) if strict && hello.encrypted => Err(Refusal::EncryptedHello),
        Ok(hello) => match hello.server_name {
            Some(sent) if sent.eq_ignore_ascii_case(name.as_str().as_bytes()) => Ok(read),
            Some(_) => Err(Refusal::OtherServerName),
            None if strict => Err(Refusal::NoServerName),
            None => Ok(read),
        },
        Err(HelloError::NotTls) if strict => Err(Refusal::NotTls),
        Err(HelloError::NotTls) => Ok(read),
        Err(_) => Err(Refusal::MalformedHello),
    }
}

/// Resolves, drops the addresses that this permit does not reach, and dials the first of the rest that answers.
async fn dial(
    shared: &Shared,
    destination: &Destination,
    permit: Permit,
) -> Result<(TcpStream, IpAddr), Refusal> {
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
    let mut refusal = Refusal::ForbiddenAddress;
    for address in addresses.into_iter().filter(|&address| permit.reaches(address)).take(MAX_ADDRESSES) {
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
