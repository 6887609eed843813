//! Listening to an exec: the numbered events, from the place where the listener left off.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::{AttachFrom, ExecEvent, OpContext, Result};
use sandstorm_types::{Event, EventBody, ExecId};
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use super::Inner;
use super::cell_log::{CellLog, Reader};
use super::ended::Ended;
use super::execs::STREAM;
use super::executions::{Execution, Stage};
use super::numbering::{Numbering, from_stored};

pub(super) type Heard = BoxStream<'static, Result<ExecEvent>>;

/// Where a listener hears from.
pub(super) enum Feed {
    /// The listener for whom the program runs. It sets the pace, and the program ends with it unless it is to be kept.
    Own(oneshot::Receiver<Heard>),
    /// One of those who attached.
    Attached,
    Open(Heard),
    Over,
}

/// The end: known, or to be waited for.
pub(super) enum Outcome {
    Known(Arc<Ended>),
    Coming(Arc<Execution>),
}

impl Outcome {
    async fn wait(&self) -> Arc<Ended> {
        match self {
            Self::Known(ended) => Arc::clone(ended),
            Self::Coming(execution) => execution.wait_end().await,
        }
    }
}

/// One listener to a program.
struct Listener {
    inner: Arc<Inner>,
    exec: ExecId,
    feed: Feed,
    outcome: Outcome,
    numbering: Numbering,
    heard: VecDeque<Event>,
    /// Where to begin in output that is not kept.
    stream_from: Option<u64>,
    over: bool,
    /// Ends what has not become a program yet when the listener for whom it is made goes away.
    _guard: Option<DropGuard>,
}

/// The events of a program in flight, for who attaches or, with `own`, for whom it runs.
pub(super) fn of_program(
    inner: &Arc<Inner>,
    execution: &Arc<Execution>,
    own: Option<oneshot::Receiver<Heard>>,
    ends_with_it: bool,
    after: Option<u64>,
) -> BoxStream<'static, Event> {
    let stream_from = (execution.row.kind == STREAM).then(|| next_to(after));
    let numbering = match stream_from {
        Some(from) => Numbering::as_told(execution.id(), from, from),
        None => Numbering::new(execution.id(), false),
    };
    let listener = Listener {
        inner: Arc::clone(inner),
        exec: execution.id(),
        feed: own.map_or(Feed::Attached, Feed::Own),
        outcome: Outcome::Coming(Arc::clone(execution)),
        numbering,
        heard: VecDeque::new(),
        stream_from,
        over: false,
        _guard: ends_with_it.then(|| execution.cancel.clone().drop_guard()),
    };
    listener.into_stream()
}

/// The events of a program that ended: what its provider keeps, else what is stored.
pub(super) async fn of_ended(
    inner: &Arc<Inner>,
    cx: &OpContext,
    exec: ExecId,
    stage: Stage,
    ended: Ended,
) -> BoxStream<'static, Event> {
    if let Stage::Log { log, complaints } = stage
        && let Ok(attached) = inner.provider.attach(cx, &log, AttachFrom::START).await
        && attached.first == 0
    {
        let listener = Listener {
            inner: Arc::clone(inner),
            exec,
            feed: Feed::Open(attached.events),
            outcome: Outcome::Known(Arc::new(ended)),
            numbering: Numbering::new(exec, complaints),
            heard: VecDeque::new(),
            stream_from: None,
            over: false,
            _guard: None,
        };
        return listener.into_stream();
    }
    stream::iter(ended.events.clone().map_or_else(|| from_stored(exec, &ended), VecDeque::from)).boxed()
}

/// What is left of the events of a program whose output was not kept: at least its end.
pub(super) async fn of_ended_stream(
    inner: &Arc<Inner>,
    cx: &OpContext,
    exec: ExecId,
    ended: Ended,
    after: Option<u64>,
) -> BoxStream<'static, Event> {
    let from = next_to(after);
    let (feed, numbering) = match inner.provider.attach(cx, &exec, AttachFrom::Seq(from)).await {
        Ok(attached) => (Feed::Open(attached.events), Numbering::as_told(exec, from, attached.first)),
        // What was told behind that is not known.
        Err(_) => (Feed::Over, Numbering::as_told(exec, 0, from)),
    };
    let listener = Listener {
        inner: Arc::clone(inner),
        exec,
        feed,
        outcome: Outcome::Known(Arc::new(ended)),
        numbering,
        heard: VecDeque::new(),
        stream_from: Some(from),
        over: false,
        _guard: None,
    };
    listener.into_stream()
}

/// The number behind those that a listener has heard.
fn next_to(after: Option<u64>) -> u64 {
    after.map_or(0, |after| after.saturating_add(1))
}

/// The events of a cell, as far as they are kept.
pub(super) fn of_cell(log: Arc<CellLog>) -> BoxStream<'static, Event> {
    read(Reader::new(log), None)
}

/// The events of a cell for the client for whom it runs: all of them. `guard` ends the cell when the client goes away.
pub(super) fn of_clients_cell(log: Arc<CellLog>, guard: Option<DropGuard>) -> BoxStream<'static, Event> {
    read(Reader::of_client(log), guard)
}

fn read(reader: Reader, guard: Option<DropGuard>) -> BoxStream<'static, Event> {
    stream::unfold((reader, guard), |(mut reader, guard)| async move {
        let event = reader.next().await?;
        Some((event, (reader, guard)))
    })
    .boxed()
}

/// Leaves out what a listener has heard before. The one that a program ran for may have heard more than others do, and so
/// counted further than they: the end of such a program is told whatever its number.
pub(super) fn after(events: BoxStream<'static, Event>, after: Option<u64>) -> BoxStream<'static, Event> {
    let is_new = |event: &Event, after: u64| {
        event.seq > after || matches!(&event.body, EventBody::End(end) if end.is_cut())
    };
    match after {
        Some(after) => events.filter(move |event| std::future::ready(is_new(event, after))).boxed(),
        None => events,
    }
}

impl Listener {
    fn into_stream(self) -> BoxStream<'static, Event> {
        stream::unfold(self, |mut listener| async move {
            let event = listener.next().await?;
            Some((event, listener))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.heard.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            match &mut self.feed {
                Feed::Own(coming) => {
                    self.feed = match coming.await {
                        Ok(heard) => Feed::Open(heard),
                        // It became something else than the program that was to run: see where it is.
                        Err(_) => Feed::Attached,
                    };
                }
                Feed::Attached => self.feed = self.attach().await,
                Feed::Open(heard) => match heard.next().await {
                    Some(Ok(event)) => {
                        if self.numbering.take(event, &mut self.heard) {
                            self.feed = Feed::Over;
                        }
                    }
                    Some(Err(error)) => {
                        tracing::debug!(exec = %self.exec, %error, "a listener lost sight of its program");
                        self.feed = Feed::Over;
                    }
                    None => self.feed = Feed::Over,
                },
                Feed::Over => {
                    // Nobody hears of an end that is not stored.
                    let ended = self.outcome.wait().await;
                    self.numbering.end(&ended, &mut self.heard);
                    self.over = true;
                }
            }
        }
    }

    /// Waits until there is something to listen to.
    async fn attach(&mut self) -> Feed {
        let Outcome::Coming(execution) = &self.outcome else { return Feed::Over };
        let Stage::Log { log, complaints } = execution.wait_stage().await else {
            self.numbering = Numbering::new(self.exec, false);
            self.numbering.push(EventBody::Start { exec: self.exec }, &mut self.heard);
            return Feed::Over;
        };
        let cx = OpContext::new(execution.row.tenant);
        let from = self.stream_from.map_or(AttachFrom::START, AttachFrom::Seq);
        match self.inner.provider.attach(&cx, &log, from).await {
            Ok(attached) => {
                self.numbering = match self.stream_from {
                    Some(from) => Numbering::as_told(self.exec, from, attached.first),
                    None => Numbering::new(self.exec, complaints),
                };
                Feed::Open(attached.events)
            }
            Err(error) => {
                tracing::debug!(exec = %self.exec, %error, "a program cannot be listened to");
                Feed::Over
            }
        }
    }
}
