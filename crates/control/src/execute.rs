//! Following one program in a sandbox and keeping what it says.

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_provider::{Error, ExecEnd, ExecEvent, ExecInput, ExecRequest, OpContext, Provider, Result};
use sandstorm_types::{ErrorKind, PerStream, SandboxId, Stream};
use tokio::sync::mpsc;
use tracing::{Instrument, debug_span};

use crate::run::{RunEvent, RunInput};
use crate::spool::{Collected, Collector, Spools, Whole};

/// What a program wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Executed {
    /// All that is kept, or the beginning of it.
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Which of them are only the beginning.
    pub(crate) cut: PerStream<bool>,
    /// All that is kept, where that is more.
    pub(crate) whole: Option<Whole>,
    pub(crate) end: ExecEnd,
}

/// Runs a program to its end, passing output on as it comes; `spools` keeps it. A listener hears all of it, also what is past
/// the limit. Cancelling the context ends the program.
pub(crate) async fn execute(
    provider: &dyn Provider,
    cx: &OpContext,
    sandbox: &SandboxId,
    mut request: ExecRequest,
    input: RunInput,
    events: Option<&mpsc::Sender<RunEvent>>,
    spools: Spools,
) -> Result<Executed> {
    // A listener may make us wait; without one there is nothing else to wait for.
    request.attended = events.is_none();
    request.streamed = events.is_some();
    let mut exec = provider.exec(cx, sandbox, request).instrument(debug_span!("start_program")).await?;
    let feeding = feed(exec.input.clone(), input);
    let following = async {
        let mut said = Collector::new(spools);
        let cancelled = cx.cancellation().cancelled();
        tokio::pin!(cancelled);
        let mut killed = false;
        loop {
            let event = tokio::select! {
                biased;
                () = &mut cancelled, if !killed => {
                    killed = true;
                    // In a context of its own: the one that was cancelled refuses everything.
                    let last = OpContext::new(cx.tenant());
                    provider.signal(&last, &exec.id, sandstorm_provider::ExecSignal::Kill).await?;
                    continue;
                }
                event = exec.events.next() => event,
            };
            match event {
                Some(Ok(ExecEvent::Started | ExecEvent::Channel { .. })) => {}
                Some(Ok(ExecEvent::Output { stream, bytes, .. })) => {
                    said.add(stream, &bytes, cx.cancellation()).await;
                    pass_on(cx, events, stream, bytes).await;
                }
                Some(Ok(ExecEvent::Exited(end))) => {
                    let Collected { stdout, stderr, cut, whole } = said.finish(end.truncated);
                    return Ok(Executed { stdout, stderr, cut, whole, end });
                }
                Some(Err(error)) => return Err(error),
                None => {
                    return Err(Error::new(
                        ErrorKind::Provider,
                        "the program's events ended without its end",
                    ));
                }
            }
        }
    };
    let program = async {
        tokio::pin!(feeding, following);
        tokio::select! {
            done = &mut following => done,
            () = &mut feeding => following.await,
        }
    };
    program.instrument(debug_span!("program")).await
}

/// Waits for room with the listener, but not once the run is cancelled: a reader that does not read may be why.
async fn pass_on(cx: &OpContext, events: Option<&mpsc::Sender<RunEvent>>, stream: Stream, bytes: Bytes) {
    if let Some(events) = events {
        tokio::select! {
            biased;
            // Nobody listening is no reason to stop the program: its result is still wanted.
            _ = events.send(RunEvent::Output { stream, bytes }) => {}
            () = cx.cancellation().cancelled() => {}
        }
    }
}

/// Feeds a program that takes its input as it comes.
async fn feed(to: ExecInput, input: RunInput) {
    if let RunInput::Stream(mut pieces) = input {
        while let Some(piece) = pieces.recv().await {
            if to.write(piece).await.is_err() {
                return;
            }
        }
        let _ = to.close().await;
    }
}
