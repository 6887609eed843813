//! Starting a program there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sandstorm_e2b_wire::process::{Config, EventMessage, Pty, SignalRequest, Size, StartRequest};
use sandstorm_e2b_wire::signal::Signal;
use sandstorm_provider::{
    EndCause, Error, Exec, ExecInput, ExecLog, ExecRequest, InputFrame, Keep, Result, Stdin, TtySize,
};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId, Unmet};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cloud::Cloud;
use super::envd::PROCESS;
use super::error::{Failure, of};
use super::execs::Running;
use super::follow::Follower;
use super::input;
use super::places::Place;
use super::rpc_stream::RpcStream;

/// The agent ends a program by itself so long after we should have: then this side is gone.
const BACKSTOP: Duration = Duration::from_secs(30);
/// How long and how often it is tried to end a program that nobody heard of.
const ENDING: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(500);

/// A start that was not answered yet. Dropped before that, a program that may have begun is ended.
struct Starting {
    cloud: Arc<Cloud>,
    running: Arc<Running>,
    open: bool,
}

impl Starting {
    fn answered(mut self) {
        self.open = false;
    }

    fn failed(mut self, error: Error) -> Error {
        if error.is_not_started() {
            self.open = false;
            self.cloud.execs.forget(&self.running.id);
        }
        error
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        self.running.fail("the program was not waited for");
        self.cloud.execs.ended(&self.running);
        // Without a runtime everything ends anyway.
        if tokio::runtime::Handle::try_current().is_ok() {
            let (cloud, running) = (Arc::clone(&self.cloud), Arc::clone(&self.running));
            self.cloud.tasks.start("end an exec that nobody heard of", async move {
                cloud.end_unheard(&running).await;
            });
        }
    }
}

impl Cloud {
    pub(super) async fn exec(self: &Arc<Self>, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let request = request(&req)?;
        let place = self.place(id).await?;
        for (path, content) in &req.files {
            self.write_bytes(&place, path, content.clone()).await?;
        }
        let output = req.output.unwrap_or(place.limits().output);
        let keep = match Keep::of(&req, output) {
            // Nobody can come back to it after a restart, so what its listener has is kept for nobody.
            Keep::UntilForgotten => Keep::UntilTaken,
            keep => keep,
        };
        let (input, frames) = way_in(&req.stdin);
        let log = ExecLog::new(keep);
        if req.is_streamed() {
            log.pass_on_beyond();
        }
        let running =
            Running::new(req.id, place.clone(), log, Some(input.clone()), req.tty.is_some(), output);
        let running = Arc::new(running);
        if !self.execs.add(&running) {
            let message = "there is such a program already";
            return Err(Error::new(ErrorKind::Conflict, message).with("exec", req.id).with_not_started());
        }
        let starting = Starting { cloud: Arc::clone(self), running: Arc::clone(&running), open: true };
        let span = req.timeout.unwrap_or(place.limits().wall);
        let stream = match self.start(&running, &req, &request, span).await {
            Ok(stream) => stream,
            Err(error) => return Err(starting.failed(error)),
        };
        starting.answered();
        if let Some(frames) = frames {
            let feeding = input::feed(Arc::clone(self), Arc::clone(&running), frames);
            self.tasks.start("feed a program", feeding);
        }
        let guard = (!req.background).then(|| self.ends_with_listener(&running));
        let events = running.log.paced_events(guard);
        let deadline = Instant::now().checked_add(span);
        let follower = Follower::new(Arc::clone(self), running, stream, deadline, req.background);
        self.tasks.start("follow a program", follower.follow());
        Ok(Exec { id: req.id, first: 0, events, input, channel: None })
    }

    /// Starts the program and waits until it has begun.
    async fn start(
        &self,
        running: &Running,
        req: &ExecRequest,
        request: &StartRequest,
        span: Duration,
    ) -> Result<RpcStream> {
        let place = &running.place;
        let user = req.user.unwrap_or(place.user());
        let lasts = u64::try_from(span.saturating_add(BACKSTOP).as_millis()).ok();
        let call = (PROCESS, "Start");
        let begun = async {
            let mut stream = self.client.stream(place, call, user, lasts, request).await?;
            let first = stream.next::<EventMessage>().await?;
            match first.and_then(|message| message.event.start) {
                Some(start) => Ok((stream, start.pid)),
                None => Err(Failure::Senseless("the program does something before it starts")),
            }
        };
        match begun.await {
            Ok((stream, pid)) => {
                running.set_pid(pid);
                Ok(stream)
            }
            Err(failure) => Err(self.of_agent(place, failure, of).await),
        }
    }

    /// Ends a program, whatever it does.
    pub(super) async fn kill(&self, running: &Running) -> Result<(), Failure> {
        let request = SignalRequest { process: Some(running.selector()), signal: Signal::Kill };
        let sent =
            self.client.unary::<serde::de::IgnoredAny>(&running.place, PROCESS, "SendSignal", &request);
        match sent.await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the start of it was heard, and when it takes effect, nobody knows: it is asked for more than once.
    async fn end_unheard(&self, running: &Running) {
        let until = Instant::now() + ENDING;
        while Instant::now() < until && !running.place.ended().is_cancelled() {
            let request = SignalRequest { process: Some(running.selector()), signal: Signal::Kill };
            let sent =
                self.client.unary::<serde::de::IgnoredAny>(&running.place, PROCESS, "SendSignal", &request);
            if sent.await.is_ok() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// What ends a program when it is let go of.
    fn ends_with_listener(self: &Arc<Self>, running: &Arc<Running>) -> sandstorm_provider::ListenerGuard {
        Box::new(EndOnDrop { cloud: Arc::clone(self), running: Arc::clone(running) })
    }
}

/// Held by the one listener for whom a program runs.
struct EndOnDrop {
    cloud: Arc<Cloud>,
    running: Arc<Running>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if self.running.over.is_cancelled() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.running.blame(EndCause::Caller);
        let (cloud, running) = (Arc::clone(&self.cloud), Arc::clone(&self.running));
        self.cloud.tasks.start("end a program without a listener", async move {
            tokio::select! {
                () = running.place.awake() => {}
                () = running.place.ended().cancelled() => return,
            }
            if let Err(failure) = cloud.kill(&running).await {
                tracing::debug!(exec = %running.id, error = %failure, "a program without a listener was not ended");
            }
        });
    }
}

/// What is asked of them; refuses what their API cannot carry.
fn request(req: &ExecRequest) -> Result<StartRequest> {
    if req.channel {
        let why = "the agent carries no channel beside a program's streams";
        return Err(Error::unmet(vec![Unmet::new("exec_channel", "yes", "no", why)]));
    }
    let mut argv = req.argv().into_iter();
    let Some(cmd) = argv.next().filter(|cmd| !cmd.is_empty()) else {
        return Err(Error::new(ErrorKind::InvalidRequest, "there is no program to run").with_not_started());
    };
    let cwd = req.cwd.clone().unwrap_or_else(GuestPath::workspace);
    let envs = req.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(StartRequest {
        process: Some(Config { cmd, args: argv.collect(), envs, cwd: Some(cwd.to_string()) }),
        pty: req.tty.map(pty),
        tag: Some(req.id.to_string()),
        stdin: Some(req.stdin != Stdin::Empty),
    })
}

pub(super) fn pty(size: TtySize) -> Pty {
    Pty { size: Size { cols: size.cols.into(), rows: size.rows.into() } }
}

/// The way to the program's input, and its other end where there is something to hand over.
fn way_in(stdin: &Stdin) -> (ExecInput, Option<mpsc::Receiver<InputFrame>>) {
    match stdin {
        Stdin::Empty => (ExecInput::none(), None),
        Stdin::Given(bytes) => (ExecInput::none(), Some(given(bytes))),
        Stdin::Stream => {
            let (input, frames) = ExecInput::channel(input::WAITING);
            (input, Some(frames))
        }
    }
}

/// Input that is known goes after the start.
fn given(bytes: &Bytes) -> mpsc::Receiver<InputFrame> {
    let (sender, frames) = mpsc::channel(2);
    // There is room for both.
    let _ = sender.try_send(InputFrame::Data(bytes.clone()));
    let _ = sender.try_send(InputFrame::Close);
    frames
}

impl Cloud {
    /// Runs a small program of our own and gives its exit code and its complaints.
    pub(super) async fn run(&self, place: &Place, argv: &[&str]) -> Result<(i32, String), Failure> {
        let mut words = argv.iter().map(|word| (*word).to_owned());
        let cmd = words.next().unwrap_or_default();
        let process = Config { cmd, args: words.collect(), cwd: Some("/".to_owned()), ..Config::default() };
        let request = StartRequest { process: Some(process), stdin: Some(false), ..StartRequest::default() };
        let lasts = u64::try_from(self.client.answer.as_millis()).ok();
        let running = async {
            let mut stream =
                self.client.stream(place, (PROCESS, "Start"), place.user(), lasts, &request).await?;
            let mut said = Vec::new();
            while let Some(EventMessage { event }) = stream.next().await? {
                if let Some(sandstorm_e2b_wire::process::Data::Stderr(text)) = &event.data
                    && said.len() < 500
                {
                    said.extend(data_encoding::BASE64.decode(text.as_bytes()).unwrap_or_default());
                }
                if let Some(end) = event.end {
                    return Ok((end.exit_code, super::error::plain(&String::from_utf8_lossy(&said))));
                }
            }
            Err(Failure::Senseless("the program has no end"))
        };
        let done = tokio::time::timeout(self.client.answer, running).await;
        done.unwrap_or(Err(Failure::Silent(self.client.answer)))
    }
}
