//! Moves bytes both ways until both sides have said all, or something cuts the connection off.

use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::answer::{Heard, Turned};
use super::opening::{self, Held, Speech};
use super::report::Refusal;
use super::shared::{Direction, Shared};
use crate::http::FirstStatus;

/// Per direction: with the kernel's own buffers, all that a connection can hold in memory.
const BUFFER: usize = 16 * 1024;

pub(super) async fn relay(
    shared: &Shared,
    client: &mut TcpStream,
    server: &mut TcpStream,
    held: Held<'_>,
) -> Result<(), Turned> {
    let (mut from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let activity = Activity::new(shared.limits().idle_timeout);
    let (mut first_status, switched) = FirstStatus::new();
    let up = async {
        let (speech, first) = opening::listen(shared, &mut from_client, held).await?;
        let client = first.chain(from_client);
        match speech {
            Speech::Free => pump(shared, Direction::Up, client, to_server, &activity, |_| ()).await,
            speech => pump_checked(shared, client, to_server, &activity, speech, switched).await,
        }
    };
    let down =
        pump(shared, Direction::Down, from_server, to_client, &activity, |bytes| first_status.see(bytes));
    let both = async { tokio::try_join!(up, down).map(|_| ()) };
    let cut = tokio::select! {
        outcome = both => outcome,
        () = activity.idle() => Err(Cut::Refused(Refusal::Idle)),
    };
    match cut {
        // To a client that heard nothing yet, an answer of ours is the first.
        Err(Cut::Refused(reason)) => {
            let heard =
                if reason.is_of_http() && first_status.is_silent() { Heard::Http } else { Heard::Other };
            Err(Turned { reason, heard })
        }
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
pub(super) enum Cut {
    Refused(Refusal),
    /// One of the two sides closed or reset the connection.
    Closed,
}

impl From<Refusal> for Cut {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason)
    }
}

async fn pump(
    shared: &Shared,
    direction: Direction,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
    mut look: impl FnMut(&[u8]),
) -> Result<(), Cut> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await.map_err(|_| Cut::Closed)?;
        if length == 0 {
            // The other direction goes on: a client may close its side and wait for the answer.
            return to.shutdown().await.map_err(|_| Cut::Closed);
        }
        shared.spend(direction, length)?;
        look(&buffer[..length]);
        match (to.write_all(&buffer[..length]).await, direction) {
            (Ok(()), _) => activity.note(),
            // A server that stops listening may have answered already: its answer must still come down.
            (Err(_), Direction::Up) => return Ok(()),
            (Err(_), Direction::Down) => return Err(Cut::Closed),
        }
    }
}

/// Passes on what the client says as far as it is known to be for this server.
async fn pump_checked(
    shared: &Shared,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
    mut speech: Speech<'_>,
    switched: oneshot::Receiver<bool>,
) -> Result<(), Cut> {
    let mut buffer = vec![0; BUFFER];
    let mut switched = Some(switched);
    loop {
        let length = from.read(&mut buffer).await.map_err(|_| Cut::Closed)?;
        if length == 0 {
            return match speech.unfinished() {
                Some(reason) => Err(reason.into()),
                None => to.shutdown().await.map_err(|_| Cut::Closed),
            };
        }
        let passed = speech.take(shared, &buffer[..length])?;
        shared.spend(Direction::Up, passed.len())?;
        if to.write_all(&passed).await.is_err() {
            return Ok(());
        }
        activity.note();
        if let Speech::Http(requests) = &mut speech
            && requests.waits_for_answer()
            && let Some(switched) = switched.take()
        {
            // An error is the end of a server that said less than a status.
            requests.answered(switched.await.unwrap_or(false))?;
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
        assert!(pump(&shared, Direction::Up, &b"question"[..], deaf(), &activity, |_| ()).await.is_ok());
        let down = pump(&shared, Direction::Down, &b"answer"[..], deaf(), &activity, |_| ()).await;
        assert!(matches!(down, Err(Cut::Closed)));
    }
}
