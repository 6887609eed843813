//! A program's events as they tell them, checked and told as ours.

mod story;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_client::ExecEvents;
use sandstorm_provider::{AttachFrom, EndCause, Error, ExecEvent, Result};
use sandstorm_types::{End, ErrorKind, Status};
use tokio_util::sync::DropGuard;

use self::story::{Heard, Story};
use super::client::Far;
use super::error::{of, words};
use super::places::Running;
use super::view;

/// One listener.
pub(super) struct Listener {
    far: Arc<Far>,
    running: Arc<Running>,
    events: ExecEvents,
    story: Story,
    over: bool,
    /// Let go of with the listener for whom the program runs: it ends with it, so nobody has to feed it.
    _own: Option<DropGuard>,
}

impl Listener {
    pub(super) fn new(
        far: Arc<Far>,
        running: Arc<Running>,
        events: ExecEvents,
        from: AttachFrom,
        own: bool,
    ) -> Self {
        let story = match (running.output, from) {
            (Some(most), from) => Story::new(running.id, most, from),
            (None, AttachFrom::Seq(first)) => Story::passing(running.id, first),
            (None, AttachFrom::End) => Story::anywhere(running.id),
            (None, _) => Story::passing(running.id, 0),
        };
        let _own = own.then(|| running.over.clone().drop_guard());
        Self { far, running, events, story, over: false, _own }
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Result<ExecEvent>> {
        stream::unfold(self, |mut listener| async move {
            if listener.over {
                return None;
            }
            let event = listener.next().await;
            listener.over = !matches!(event, Ok(ExecEvent::Started | ExecEvent::Output { .. }));
            if matches!(event, Ok(ExecEvent::Exited(_))) {
                listener.running.over.cancel();
            }
            let name = &listener.far.info.name;
            let event = event.map_err(|error| error.with_operation("exec").with_provider(name));
            Some((event, listener))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<ExecEvent> {
        loop {
            if let Some(fault) = self.running.fault() {
                return Err(lost_input(&fault));
            }
            let event = tokio::select! {
                biased;
                event = self.events.next() => event,
                fault = failed_input(&self.running) => return Err(lost_input(&fault)),
            };
            let event = match event {
                Some(Ok(event)) => event,
                Some(Err(error)) => return Err(lost_sight(of(error))),
                None => return Err(lost_sight(super::error::senseless("the events end before the program"))),
            };
            match self.story.hear(event)? {
                Heard::Event(event) => return Ok(event),
                Heard::Known => {}
                Heard::End(end) => {
                    let cause = self.cause(&end).await?;
                    return Ok(ExecEvent::Exited(self.story.end(&end, cause)?));
                }
            }
        }
    }

    /// Who ended the program. They tell one that was killed and one whose sandbox was deleted alike.
    async fn cause(&self, end: &End) -> Result<EndCause> {
        if let Some(problem) = &end.problem {
            return Err(lost_sight(words(problem.code, &problem.detail)));
        }
        match end.status {
            Status::Killed if self.running.place.is_ending() => Ok(EndCause::Sandbox),
            Status::Killed if self.running.signalled.load(Ordering::Acquire) => Ok(EndCause::Caller),
            Status::Killed => match self.far.client.sandbox(self.running.place.theirs()).await {
                Ok(theirs) if view::is_gone(theirs.state) => Ok(EndCause::Sandbox),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(EndCause::Sandbox),
                // Its listener went away, or somebody else killed it.
                _ => Ok(EndCause::Caller),
            },
            status => story::cause(status),
        }
    }
}

/// Waits until the program's input could not be handed over; for ever if that does not happen.
async fn failed_input(running: &Running) -> String {
    running.over.cancelled().await;
    match running.fault() {
        Some(fault) => fault,
        None => std::future::pending().await,
    }
}

fn lost_input(fault: &str) -> Error {
    Error::new(ErrorKind::Provider, "the program's input was lost on the way").with("reason", fault)
}

/// A failure after the program had begun, whatever it would prove of a start.
fn lost_sight(error: Error) -> Error {
    let kind = match error.kind() {
        // What is unknown or out of time now was there before.
        ErrorKind::NotFound | ErrorKind::Timeout => ErrorKind::Provider,
        kind => kind,
    };
    Error::new(kind, "the program is out of sight").with_retry(error.retry()).with_source(error)
}
