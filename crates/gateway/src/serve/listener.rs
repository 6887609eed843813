//! Where connections come from.

use std::io;
use std::net::IpAddr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// A socket for processes of these users alone, whatever the file's mode lets through.
    Unix {
        listener: UnixListener,
        users: Vec<u32>,
    },
}

/// A connection and where it comes from; Unix sockets have no address.
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) peer: Option<IpAddr>,
}

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Whether only this machine can reach it. A server without keys must have no other listener.
    pub fn is_local(&self) -> io::Result<bool> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.ip().to_canonical().is_loopback()),
            Self::Unix { .. } => Ok(true),
        }
    }

    /// The next connection; `None` when it was one that may not be.
    pub(super) async fn accept(&self) -> io::Result<Option<Accepted>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Output should be seen when it is written, not when a segment is full. It fails only for a connection
                // that is gone already.
                let _ = stream.set_nodelay(true);
                let peer = Some(peer.ip().to_canonical());
                Ok(Some(Accepted { stream: Stream::Tcp(stream), peer }))
            }
            Self::Unix { listener, users } => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                if user.is_none_or(|user| !users.contains(&user)) {
                    tracing::warn!(user, "a process of another user tried the socket");
                    return Ok(None);
                }
                Ok(Some(Accepted { stream: Stream::Unix(stream), peer: None }))
            }
        }
    }
}
