//! Where connections come from.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A peer of which nothing is heard is asked whether it is there: after so long, so often, so many times. A client that
/// vanished without a word would otherwise keep its connection, and what is done for it, until something is sent to it.
const QUIET: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_secs(10);
const ASK: u32 = 3;

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

fn notice_absence(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(stream, QUIET)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASK)?;
    sockopt::set_socket_keepalive(stream, true)
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
                let _ = notice_absence(&stream);
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
