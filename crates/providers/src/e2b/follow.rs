//! Following a program from its start to its end, and keeping what it says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_e2b_wire::Code;
use sandstorm_e2b_wire::process::{Data, End, Event, EventMessage, Selected};
use sandstorm_e2b_wire::signal;
use sandstorm_provider::{EndCause, ExecEnd, ExecStatus, Usage};
use sandstorm_types::{LimitName, LimitSet, PerStream, Stream};
use tokio::time::Instant;

use super::cloud::Cloud;
use super::envd::PROCESS;
use super::error::Failure;
use super::execs::Running;
use super::rpc_stream::RpcStream;
use super::view::Condition;

/// How long a program that we ended may take to end.
const GRACE: Duration = Duration::from_secs(15);
/// Most bytes of one event.
const PIECE: usize = 64 << 10;
const KILLED: ExecStatus = ExecStatus::Signal(9);

pub(super) struct Follower {
    cloud: Arc<Cloud>,
    running: Arc<Running>,
    stream: RpcStream,
    /// When its time is over.
    deadline: Option<Instant>,
    background: bool,
    /// Since when we are ending it.
    ending: Option<Instant>,
}

/// What comes next.
enum Next {
    Event(Box<Event>),
    /// The stream ended or broke before the program did.
    Lost(Option<Failure>),
    /// The program has to be ended.
    Over(LimitName),
    /// It was ended and does not end.
    Stuck,
}

/// However it comes to an end, nobody waits for more.
impl Drop for Follower {
    fn drop(&mut self) {
        self.running.fail("the program is not followed any more: this side is closing");
        self.cloud.execs.ended(&self.running);
    }
}

impl Follower {
    pub(super) fn new(
        cloud: Arc<Cloud>,
        running: Arc<Running>,
        stream: RpcStream,
        deadline: Option<Instant>,
        background: bool,
    ) -> Self {
        Self { cloud, running, stream, deadline, background, ending: None }
    }

    pub(super) async fn follow(mut self) {
        loop {
            let done = match self.next().await {
                Next::Event(event) => self.hear(*event).await,
                Next::Over(limit) => {
                    self.end_it(EndCause::Limit(limit));
                    false
                }
                Next::Stuck => {
                    self.running.fail("the program was to be ended, but nobody knows whether it did");
                    true
                }
                Next::Lost(failure) => !self.go_on(failure).await,
            };
            if done {
                break;
            }
        }
    }

    async fn next(&mut self) -> Next {
        let (deadline, ending) = (self.deadline, self.ending);
        let running = Arc::clone(&self.running);
        let due = async {
            match deadline.filter(|_| ending.is_none()) {
                Some(deadline) => {
                    tokio::time::sleep_until(deadline).await;
                    // One that sleeps cannot be spoken to, and does nothing.
                    running.place.awake().await;
                }
                None => std::future::pending().await,
            }
        };
        let stuck = async {
            match ending {
                Some(since) => tokio::time::sleep_until(since + GRACE).await,
                None => std::future::pending().await,
            }
        };
        let flooded = async {
            match ending {
                None => running.log.flooded().cancelled().await,
                Some(_) => std::future::pending().await,
            }
        };
        let stream = &mut self.stream;
        let event = async {
            // A listener that does not read holds up the program; whoever is ended is not waited for.
            if ending.is_none() {
                running.log.pace().await;
            }
            match stream.next::<EventMessage>().await {
                Ok(Some(message)) => Next::Event(Box::new(message.event)),
                Ok(None) => Next::Lost(None),
                Err(failure) => Next::Lost(Some(failure)),
            }
        };
        tokio::select! {
            biased;
            () = flooded => Next::Over(LimitName::Output),
            () = due => Next::Over(LimitName::Wall),
            () = stuck => Next::Stuck,
            next = event => next,
        }
    }

    /// Takes an event in. Whether it was the last one.
    async fn hear(&mut self, event: Event) -> bool {
        if let Some(end) = event.end {
            self.end(&end);
            return true;
        }
        if event.start.is_some() {
            return self.nonsense("the program starts twice");
        }
        let Some(data) = event.data else { return false };
        let (stream, text) = match data {
            Data::Stdout(text) | Data::Pty(text) => (Stream::Stdout, text),
            Data::Stderr(text) => (Stream::Stderr, text),
        };
        match BASE64.decode(text.as_bytes()) {
            Ok(bytes) if bytes.is_empty() => false,
            Ok(bytes) => {
                let mut rest = Bytes::from(bytes);
                while !rest.is_empty() {
                    let piece = rest.split_to(rest.len().min(PIECE));
                    if self.running.log.write(stream, piece).is_err() {
                        return self.nonsense("its output cannot be kept");
                    }
                }
                false
            }
            Err(_) => self.nonsense("its output cannot be read"),
        }
    }

    fn nonsense(&self, what: &'static str) -> bool {
        self.running.fail(format!("the service gave an answer that makes no sense: {what}"));
        self.end_unseen();
        true
    }

    fn end(&self, end: &End) {
        let status = match (end.exited, signal::number_in(&end.status)) {
            (false, Some(number)) => ExecStatus::Signal(number),
            (true, _) | (false, None) if end.exit_code >= 0 => ExecStatus::Code(end.exit_code),
            _ => {
                self.nonsense("the program ended with neither a code nor a signal");
                return;
            }
        };
        let flooded = self.running.log.flooded().is_cancelled();
        match (self.running.blamed(), status) {
            // It may have come to its end before it heard of ours, after all that it wrote.
            _ if flooded => self.over(KILLED, EndCause::Limit(LimitName::Output)),
            (Some(cause), ExecStatus::Signal(_)) => self.over(status, cause),
            (_, ExecStatus::Signal(_)) if self.running.place.is_ending() => {
                self.over(status, EndCause::Sandbox)
            }
            _ => self.over(status, EndCause::Program),
        }
    }

    fn over(&self, status: ExecStatus, cause: EndCause) {
        let end = ExecEnd {
            status,
            cause,
            limits_hit: LimitSet::EMPTY,
            denied: Vec::new(),
            // The log knows.
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage: Usage::default(),
        };
        // In memory nothing can fail.
        let _ = self.running.log.end(end);
    }

    /// Sets about to end the program.
    fn end_it(&mut self, cause: EndCause) {
        self.running.blame(cause);
        self.ending = Some(Instant::now());
        self.end_unseen();
    }

    fn end_unseen(&self) {
        let (cloud, running) = (Arc::clone(&self.cloud), Arc::clone(&self.running));
        self.cloud.tasks.start("end a program", async move {
            if let Err(failure) = cloud.kill(&running).await {
                tracing::warn!(exec = %running.id, error = %failure, "a program could not be ended");
            }
        });
    }

    /// What to do without a stream. Whether there is one again.
    async fn go_on(&mut self, failure: Option<Failure>) -> bool {
        let place = self.running.place.clone();
        if place.is_ending() || place.ended().is_cancelled() {
            self.over(KILLED, EndCause::Sandbox);
            return false;
        }
        if failure.as_ref().is_some_and(|failure| failure.has_code(Code::DeadlineExceeded)) {
            self.over(KILLED, EndCause::Limit(LimitName::Wall));
            return false;
        }
        if place.is_paused() {
            return self.listen_again().await;
        }
        match self.cloud.look(&place).await {
            Ok(None) => self.running.fail("the sandbox of the program is gone"),
            Ok(Some(Condition::Paused)) => return self.listen_again().await,
            Ok(Some(Condition::Running)) | Err(_) => {
                let why = match failure {
                    Some(failure) => failure.to_string(),
                    None => "the events end before the program".to_owned(),
                };
                self.running.fail(format!("the program is out of sight: {why}"));
                // Nobody would ever hear of one in the foreground again.
                if !self.background {
                    self.end_unseen();
                }
            }
        }
        false
    }

    /// Its sandbox sleeps, and so does the program. What it writes between waking up and our hearing of it is lost.
    async fn listen_again(&mut self) -> bool {
        let place = self.running.place.clone();
        tokio::select! {
            () = place.awake() => {}
            () = place.ended().cancelled() => {
                self.over(KILLED, EndCause::Sandbox);
                return false;
            }
        }
        let request = Selected { process: Some(self.running.selector()) };
        let call = (PROCESS, "Connect");
        let connected = async {
            let mut stream = self.cloud.client.stream(&place, call, place.user(), None, &request).await?;
            match stream.next::<EventMessage>().await? {
                Some(EventMessage { event: Event { start: Some(_), .. } }) => Ok(stream),
                _ => Err(Failure::Senseless("the program does something before it starts")),
            }
        };
        match connected.await {
            Ok(stream) => {
                self.running.log.miss();
                self.stream = stream;
                true
            }
            Err(failure) => {
                self.running.fail(format!("the program is out of sight since its sandbox woke: {failure}"));
                false
            }
        }
    }
}
