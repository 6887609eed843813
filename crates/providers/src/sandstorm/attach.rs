//! Listening to a program that runs, or ran, there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sandstorm_provider::{AttachFrom, Exec, ExecInput, Result};
use sandstorm_types::ExecId;

use super::client::Far;
use super::error::of;
use super::exec_events::Listener;

impl Far {
    /// The events are always asked for from the first one on: only who heard all of them can say what is missing.
    pub(super) async fn attach(self: &Arc<Self>, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let running = self.running(exec).await?;
        let events = self.client.attach(running.place.theirs(), *exec, None).await.map_err(of)?;
        let forgotten = running.forgotten.load(Ordering::Acquire);
        let (from, first) = match from {
            AttachFrom::Seq(number) => (AttachFrom::Seq(number.max(forgotten)), number.max(forgotten)),
            AttachFrom::Offset(_) if forgotten == 0 => (from, 0),
            // Numbers are all that is known of what was forgotten.
            AttachFrom::Offset(_) => (AttachFrom::Seq(forgotten), forgotten),
        };
        let input = running.input.clone().unwrap_or_else(ExecInput::none);
        let listener = Listener::new(Arc::clone(self), running, events, from, false);
        Ok(Exec { id: *exec, first, events: listener.into_stream(), input, channel: None })
    }
}
