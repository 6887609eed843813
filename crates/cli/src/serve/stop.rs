//! How a server is told to end.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// What becomes of the sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The next server takes them over.
    KeepSandboxes,
    /// They end too.
    ForGood,
    /// Nobody told it to: what it cannot work without is gone.
    Lost,
}

impl How {
    /// How long the last steps may take once nothing is under way any more.
    pub(crate) fn last_steps(self) -> Duration {
        Duration::from_secs(match self {
            Self::KeepSandboxes => 30,
            // There may be many to end.
            Self::ForGood => 300,
            Self::Lost => 5,
        })
    }
}

/// Waits for the signals that end a server.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<Option<How>>);

impl Stop {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be listened to");
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let (sender, receiver) = watch::channel(None);
        let listening = async move {
            loop {
                let how = next(&mut terminate, &mut interrupt).await;
                // A stop for good stays one; the other way round a person lost patience.
                sender.send_if_modified(|told| {
                    let news = *told != Some(How::ForGood) && *told != Some(how);
                    if news {
                        *told = Some(how);
                    }
                    news
                });
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "lives as long as the process, and ends nothing when it does"
        )]
        tokio::spawn(listening);
        Ok(Self(receiver))
    }

    /// Resolves when the server is told to end.
    pub(crate) async fn told(&mut self) -> How {
        match self.0.wait_for(Option::is_some).await.map(|how| *how) {
            Ok(Some(how)) => how,
            _ => std::future::pending().await,
        }
    }

    /// What was asked for last; for a server that was told to end.
    pub(crate) fn how(&self) -> How {
        self.0.borrow().unwrap_or(How::KeepSandboxes)
    }
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> How {
    tokio::select! {
        _ = terminate.recv() => How::KeepSandboxes,
        _ = interrupt.recv() => How::ForGood,
    }
}
