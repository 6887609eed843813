//! Serves a sandbox's queries over UDP and TCP.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::message::{Query, RecordType, Rejected};
use crate::proxy::Shared;

/// No query for one name is longer; what is cut off here does not parse.
const MAX_QUERY: usize = 1024;
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
fn answer(shared: &Shared, message: &[u8]) -> Option<Vec<u8>> {
    if !shared.take_query() {
        return None;
    }
    let query = match Query::parse(message) {
        Ok(query) => query,
        Err(Rejected(reply)) => {
            shared.count_query(false);
            return reply;
        }
    };
    let allowed = shared.policy().resolves(&query.name) && query.kind != RecordType::Other;
    shared.count_query(allowed);
    Some(match query.kind {
        _ if !allowed => query.refused(),
        RecordType::A => query.address(shared.address_for(&query.name)),
        // Every name has an IPv4 address here, so programs need no other; without HTTPS records they are not
        // tempted by an encrypted hello either.
        _ => query.empty(),
    })
}

#[cfg(test)]
mod tests;
