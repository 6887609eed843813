//! What an exec does, as it happens.

use sandstorm_types::{Event, EventBody, ExecId, SandboxId};

use crate::event_stream::EventStream;
use crate::{Client, Error, Result};

/// Events of one exec, from `start` to `end`. Those of an exec that is kept go on after a broken connection, without
/// loss and without repetition. Dropping it ends a foreground exec that it started.
#[derive(Debug)]
pub struct ExecEvents {
    events: EventStream<Event>,
    client: Client,
    sandbox: SandboxId,
    exec: Option<ExecId>,
    /// Whether the exec goes on without us, so that it can be found again.
    kept: bool,
    ended: bool,
}

impl ExecEvents {
    pub(crate) fn started(
        client: &Client,
        sandbox: SandboxId,
        events: EventStream<Event>,
        kept: bool,
    ) -> Self {
        Self { events, client: client.clone(), sandbox, exec: None, kept, ended: false }
    }

    pub(crate) fn attached(
        client: &Client,
        sandbox: SandboxId,
        exec: ExecId,
        events: EventStream<Event>,
    ) -> Self {
        Self { events, client: client.clone(), sandbox, exec: Some(exec), kept: true, ended: false }
    }

    /// The id, once the first event has told it.
    pub fn exec(&self) -> Option<ExecId> {
        self.exec
    }

    /// The next event; `None` after `end`. A stream that stops before `end` is an error.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        if self.ended {
            return None;
        }
        let Some(event) = self.events.next().await else {
            self.ended = true;
            return Some(Err(Error::Broken { server: self.client.server(), source: None }));
        };
        match &event {
            Ok(Event { body: EventBody::Start { exec }, .. }) => {
                self.exec = Some(*exec);
                if self.kept {
                    self.events.resume_at(self.client.exec_events_url(self.sandbox, *exec));
                }
            }
            Ok(Event { body: EventBody::End(_), .. }) | Err(_) => {
                self.ended = true;
                self.events.finish();
            }
            Ok(_) => {}
        }
        Some(event)
    }
}
