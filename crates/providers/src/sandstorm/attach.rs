//! Listening to a program that runs, or ran, there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::{AttachFrom, Error, Exec, ExecEvent, ExecInput, Result};
use sandstorm_types::{ErrorKind, ExecId};

use super::client::Far;
use super::error::{of, senseless};
use super::exec_events::Listener;
use super::places::Running;

/// How often it is looked whether a program has ended.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

impl Far {
    /// The events of a program whose output is kept are always asked for from the first one on: only who heard all of them can
    /// say what is missing.
    pub(super) async fn attach(self: &Arc<Self>, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let running = self.running(exec).await?;
        let input = running.input.clone().unwrap_or_else(ExecInput::none);
        let forgotten = running.forgotten.load(Ordering::Acquire);
        let (from, first) = match from {
            AttachFrom::End => {
                let events = Arc::clone(self).end_alone(running);
                return Ok(Exec { id: *exec, first: forgotten, events, input, channel: None });
            }
            AttachFrom::Seq(number) => (AttachFrom::Seq(number.max(forgotten)), number.max(forgotten)),
            AttachFrom::Offset(_) if forgotten == 0 => (from, 0),
            // Numbers are all that is known of what was forgotten.
            AttachFrom::Offset(_) => (AttachFrom::Seq(forgotten), forgotten),
        };
        let listener = self.listen(running, from).await?;
        Ok(Exec { id: *exec, first, events: listener.into_stream(), input, channel: None })
    }

    async fn listen(self: &Arc<Self>, running: Arc<Running>, from: AttachFrom) -> Result<Listener> {
        let heard = match (&running.output, from) {
            (None, AttachFrom::Seq(number)) => number.checked_sub(1),
            _ => None,
        };
        let events = self.client.attach(running.place.theirs(), running.id, heard).await.map_err(of)?;
        Ok(Listener::new(Arc::clone(self), running, events, from, false))
    }

    /// Waits until a program has ended. A server that is away for a moment has not ended it.
    async fn ended(&self, running: &Running) -> Result<()> {
        loop {
            match self.client.exec_view(running.place.theirs(), running.id).await.map_err(of) {
                Ok(view) if !view.running => return Ok(()),
                Ok(_) => {}
                Err(error) if !is_passing(error.kind()) || running.place.ended().is_cancelled() => {
                    return Err(error);
                }
                Err(error) => tracing::debug!(exec = %running.id, %error, "nobody can tell whether it runs"),
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// How a program ends, without a listener there before it has: such a one would set its pace.
    fn end_alone(self: Arc<Self>, running: Arc<Running>) -> BoxStream<'static, Result<ExecEvent>> {
        stream::once(async move {
            self.ended(&running).await?;
            // What was forgotten before an earlier one of us went away is known there only.
            let mut events = self.listen(running, AttachFrom::End).await?.into_stream();
            while let Some(event) = events.next().await {
                if let end @ ExecEvent::Exited(_) = event? {
                    return Ok(end);
                }
            }
            Err::<_, Error>(senseless("the program ended, and its events do not"))
        })
        .boxed()
    }
}

/// Whether the same question may be answered a little later.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Provider | ErrorKind::Timeout | ErrorKind::Capacity | ErrorKind::Quota)
}
