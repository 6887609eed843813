//! Serves a sandbox's queries over UDP and TCP.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_types::{HostName, HostPattern, NetworkPolicy, Rule, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::message::{Query, RecordType, Rejected};
use crate::denial::{Denial, Host};
use crate::proxy::{Refusal, Shared};

/// No query for one name is longer; what is cut off here does not parse.
const MAX_QUERY: usize = 1024;
/// A name of which the sandbox chose a part, under a wildcard or an open policy, may be no longer: connecting to it has
/// it looked up outside. How random it looks is not judged, since content networks use names that look so; its length and
/// the rate of new names bound what it carries.
const MAX_CHOSEN_NAME: usize = 160;
const TCP_CONNECTIONS: usize = 8;
const TCP_IDLE: Duration = Duration::from_secs(10);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

pub(crate) async fn serve_udp(shared: Arc<Shared>, socket: UdpSocket) {
    let mut buffer = vec![0; MAX_QUERY];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, client)) => {
                if let Some(answer) = answer(&shared, &buffer[..length]) {
                    // A client that does not read its answers loses them, as with any resolver.
                    let _ = socket.try_send_to(&answer, client);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a query could not be received");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

pub(crate) async fn serve_tcp(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= TCP_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    // The error is the client's: it closed, stalled or sent nonsense.
                    let _ = timeout(TCP_IDLE, converse(&shared, stream)).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a query connection could not be accepted");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(shared: &Shared, mut stream: TcpStream) -> std::io::Result<()> {
    let mut query = vec![0; MAX_QUERY];
    loop {
        let length = usize::from(stream.read_u16().await?);
        let Some(query) = query.get_mut(..length) else { return Ok(()) };
        stream.read_exact(query).await?;
        let Some(answer) = answer(shared, query) else { return Ok(()) };
        let length = u16::try_from(answer.len()).expect("an answer is a query and 16 bytes");
        stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
    }
}

/// The answer to one message; `None` is silence.
pub(crate) fn answer(shared: &Shared, message: &[u8]) -> Option<Vec<u8>> {
    if !shared.take_query() {
        return None;
    }
    let refuse = |name: Option<&HostName>, reason| {
        shared.count_query(false);
        shared.record(Denial::new(name.cloned().map(Host::Name), None, reason));
    };
    let query = match Query::parse(message) {
        Ok(query) => query,
        Err(Rejected(reply)) => {
            refuse(None, Refusal::MalformedQuery);
            return reply;
        }
    };
    if let Err(reason) = may_ask(&shared.policy(), &query) {
        refuse(Some(&query.name), reason);
        return Some(query.refused());
    }
    let answer = match query.kind {
        RecordType::A => query.address(shared.address_for(&query.name)?),
        // Every name has an IPv4 address here, so programs need no other; without HTTPS records they are not
        // tempted by an encrypted hello either.
        _ => query.empty(),
    };
    shared.count_query(true);
    Some(answer)
}

fn may_ask(policy: &NetworkPolicy, query: &Query<'_>) -> Result<(), Refusal> {
    if !policy.resolves(&query.name) {
        return Err(Refusal::NotAllowed);
    }
    if query.kind == RecordType::Other {
        return Err(Refusal::RecordType);
    }
    let exact =
        |rule: &Rule| matches!(rule.target(), Target::Host(HostPattern::Exact(name)) if *name == query.name);
    if query.name.as_str().len() > MAX_CHOSEN_NAME && !policy.rules().iter().any(exact) {
        return Err(Refusal::LongName);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
