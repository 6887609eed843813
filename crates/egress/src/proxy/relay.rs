//! Moves bytes both ways until both sides have said all, or something cuts the connection off.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandstorm_types::{HostName, NetworkPolicy};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::connection::check_hello;
use super::report::Refusal;
use super::shared::{Direction, Shared};
use crate::hello;

/// Per direction: with the kernel's own buffers, all that a connection can hold in memory.
const BUFFER: usize = 16 * 1024;

/// What happens before the client's bytes flow freely.
#[derive(Debug)]
pub(super) struct Held<'a> {
    /// Bytes already read from the client.
    pub(super) first: Vec<u8>,
    /// If the client opens with TLS, it must name this server.
    pub(super) name: Option<&'a HostName>,
}

pub(super) async fn relay(
    shared: &Shared,
    client: &mut TcpStream,
    server: &mut TcpStream,
    held: Held<'_>,
    changes: watch::Receiver<Arc<NetworkPolicy>>,
    permitted: impl Fn(&NetworkPolicy) -> bool,
) -> Result<(), Refusal> {
    let (mut from_client, to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let activity = Activity::new(shared.limits().idle_timeout);
    let up = async {
        let first = opening(shared, &mut from_client, held).await?;
        shared.spend(Direction::Up, first.len())?;
        to_server.write_all(&first).await.map_err(|_| Cut::Closed)?;
        pump(shared, Direction::Up, from_client, to_server, &activity).await
    };
    let down = pump(shared, Direction::Down, from_server, to_client, &activity);
    let both = async { tokio::try_join!(up, down).map(|_| ()) };
    let cut = tokio::select! {
        outcome = both => outcome,
        () = activity.idle() => Err(Cut::Refused(Refusal::Idle)),
        () = no_longer(changes, permitted) => Err(Cut::Refused(Refusal::PolicyChanged)),
    };
    match cut {
        Err(Cut::Refused(reason)) => Err(reason),
        Ok(()) => Ok(()),
        Err(Cut::Closed) => {
            // A broken connection must not look like a finished one.
            let _ = client.set_zero_linger();
            Ok(())
        }
    }
}

/// Why a direction stopped before its end.
#[derive(Debug)]
enum Cut {
    Refused(Refusal),
    /// One of the two sides closed or reset the connection.
    Closed,
}

impl From<Refusal> for Cut {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason)
    }
}

/// The client's first bytes, checked if they are to be.
async fn opening(
    shared: &Shared,
    client: &mut (impl AsyncRead + Unpin),
    held: Held<'_>,
) -> Result<Vec<u8>, Cut> {
    let Held { mut first, name } = held;
    let Some(name) = name else { return Ok(first) };
    // Two bytes tell TLS from what is not; a client that sends one and then waits does not speak TLS for long.
    while first.len() < 2 && hello::looks_like_tls(&first) {
        match client.read_buf(&mut first).await {
            Ok(0) => return Ok(first),
            Ok(_) => {}
            Err(_) => return Err(Cut::Closed),
        }
    }
    if hello::looks_like_tls(&first) {
        first = check_hello(shared, client, name, first).await?;
    }
    Ok(first)
}

async fn pump(
    shared: &Shared,
    direction: Direction,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> Result<(), Cut> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await.map_err(|_| Cut::Closed)?;
        if length == 0 {
            // The other direction goes on: a client may close its side and wait for the answer.
            return to.shutdown().await.map_err(|_| Cut::Closed);
        }
        shared.spend(direction, length)?;
        match (to.write_all(&buffer[..length]).await, direction) {
            (Ok(()), _) => activity.note(),
            // A server that stops listening may have answered already: its answer must still come down.
            (Err(_), Direction::Up) => return Ok(()),
            (Err(_), Direction::Down) => return Err(Cut::Closed),
        }
    }
}

async fn no_longer(
    mut changes: watch::Receiver<Arc<NetworkPolicy>>,
    permitted: impl Fn(&NetworkPolicy) -> bool,
) {
    while changes.changed().await.is_ok() {
        if !permitted(&changes.borrow_and_update()) {
            return;
        }
    }
}

/// When bytes last moved in either direction.
#[derive(Debug)]
struct Activity {
    last: Mutex<Instant>,
    patience: Duration,
}

impl Activity {
    fn new(patience: Duration) -> Self {
        Self { last: Mutex::new(Instant::now()), patience }
    }

    fn last(&self) -> Instant {
        *self.last.lock().expect("nothing panics while it is held")
    }

    fn note(&self) {
        *self.last.lock().expect("nothing panics while it is held") = Instant::now();
    }

    async fn idle(&self) {
        loop {
            let deadline = self.last() + self.patience;
            if Instant::now() >= deadline {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::NetworkPolicy;

    use super::*;
    use crate::limits::Options;
    use crate::upstream::Upstream;

    #[tokio::test]
    async fn a_deaf_server_may_still_speak_but_a_deaf_client_ends_it() {
        let shared = Shared::new(NetworkPolicy::None, Upstream::default(), Options::default());
        let activity = Activity::new(Duration::from_secs(1));
        let deaf = || tokio::io::duplex(16).0;
        assert!(pump(&shared, Direction::Up, &b"question"[..], deaf(), &activity).await.is_ok());
        let down = pump(&shared, Direction::Down, &b"answer"[..], deaf(), &activity).await;
        assert!(matches!(down, Err(Cut::Closed)));
    }
}
