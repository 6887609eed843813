//! Starting programs there and speaking to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_client::{Command as TheirCommand, NewExec, Signal, StdinForm, TtySize as TheirSize};
use sandstorm_provider::{
    AttachFrom, Command, Error, Exec, ExecInput, ExecRequest, ExecSignal, InputFrame, Result, Stdin,
};
use sandstorm_types::{ErrorKind, ExecId, SandboxId, Unmet};
use tokio::sync::mpsc;

use super::client::Far;
use super::error::of;
use super::exec_events::Listener;
use super::input;
use super::places::{Place, Running};

/// Input up to this many bytes goes with the request; more goes after it.
const WITH_REQUEST: usize = 1 << 20;
/// How often it is looked whether a program began, and how long in between.
const LOOKS: u32 = 8;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How long ending a program may take that nobody heard of.
const ENDING: Duration = Duration::from_secs(30);

/// A start that was not answered yet. Dropped before that, a program that may have begun in the background is ended.
struct Starting {
    far: Arc<Far>,
    running: Arc<Running>,
    background: bool,
    open: bool,
}

impl Starting {
    fn answered(mut self) {
        self.open = false;
    }

    fn failed(mut self, error: Error) -> Error {
        if error.is_not_started() {
            self.open = false;
            self.far.places.forget_exec(&self.running.id);
        }
        error
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        self.running.over.cancel();
        // One in the foreground ends with its connection; without a runtime everything ends anyway.
        if self.background && tokio::runtime::Handle::try_current().is_ok() {
            let (far, running) = (Arc::clone(&self.far), Arc::clone(&self.running));
            self.far.tasks.start("end an exec that nobody heard of", async move {
                let killing = far.client.kill(running.place.theirs(), running.id);
                let _ = tokio::time::timeout(ENDING, killing).await;
            });
        }
    }
}

impl Far {
    pub(super) async fn exec(self: &Arc<Self>, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        check_wanted(&req)?;
        if self.places.exec(&req.id).is_some() {
            return Err(
                Error::new(ErrorKind::Conflict, "there is such a program already").with("exec", req.id)
            );
        }
        // Up to the request itself nothing was begun, whatever else is wrong.
        let place = self.place(id).await.map_err(Error::with_not_started)?;
        for (path, content) in &req.files {
            let written = self.write_bytes(&place, path, content.clone()).await;
            written.map_err(Error::with_not_started)?;
        }
        let (new, input, frames) = request(&req, self.limits.lifetime_max);
        let output = if req.replay { Some(req.output.unwrap_or(place.output())) } else { None };
        let running = Arc::new(Running::new(req.id, place.clone(), Some(input.clone()), output));
        self.places.add_exec(Arc::clone(&running));
        let (far, background) = (Arc::clone(self), req.background);
        let starting = Starting { far, running: Arc::clone(&running), background, open: true };
        let begun = match background {
            true => self.start_in_background(&place, &new, req.id).await,
            false => self.client.exec(place.theirs(), &new).await.map_err(of),
        };
        let events = match begun {
            Ok(events) => events,
            Err(error) if req.last && !error.is_not_started() => {
                match self.look_into(&place, req.id, error).await {
                    Ok(events) => events,
                    Err(error) => return Err(starting.failed(error)),
                }
            }
            Err(error) => return Err(starting.failed(error)),
        };
        starting.answered();
        if let Some(frames) = frames {
            self.tasks.start("feed a program", input::feed(Arc::clone(self), Arc::clone(&running), frames));
        }
        let events = Listener::new(Arc::clone(self), running, events, AttachFrom::START, !background);
        Ok(Exec { id: req.id, first: 0, events: events.into_stream(), input, channel: None })
    }

    /// Finds out whether the only program of a sandbox began, when its start was not answered. One that did is listened to.
    /// Before it is said that one did not, its sandbox is ended, so that a request on its way finds nothing to begin in;
    /// every program is on record before it begins.
    async fn look_into(
        &self,
        place: &Place,
        exec: ExecId,
        error: Error,
    ) -> Result<sandstorm_client::ExecEvents> {
        let mut ended = false;
        for _ in 0..LOOKS {
            match self.client.exec_view(place.theirs(), exec).await {
                // Ended by us before it could do its work.
                Ok(_) if ended => return Err(error),
                Ok(_) => {
                    if let Ok(events) = self.client.attach(place.theirs(), exec, None).await {
                        return Ok(events);
                    }
                }
                Err(unknown) if unknown.kind() == ErrorKind::NotFound && ended => {
                    return Err(error.with_not_started());
                }
                Err(unknown) if unknown.kind() == ErrorKind::NotFound => {
                    ended = self.end(&place.ours(), place.theirs()).await.is_ok();
                    continue;
                }
                Err(_) => {}
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Err(error)
    }

    async fn start_in_background(
        &self,
        place: &Place,
        new: &NewExec,
        id: ExecId,
    ) -> Result<sandstorm_client::ExecEvents> {
        let started = self.client.start(place.theirs(), new).await.map_err(of)?;
        if started.id != id {
            return Err(super::error::senseless("the program has another id than asked for"));
        }
        // It runs: whatever goes wrong from here on is no proof of the opposite.
        self.client.attach(place.theirs(), id, None).await.map_err(|error| began(of(error)))
    }

    pub(super) async fn signal(self: &Arc<Self>, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let running = self.running(exec).await?;
        let number = match signal {
            ExecSignal::Forget { before } => {
                running.forgotten.fetch_max(before, Ordering::AcqRel);
                if running.output.is_some() {
                    return Ok(());
                }
                Signal::Forget { before }
            }
            // Behind what was written before.
            ExecSignal::CloseStdin => match &running.input {
                Some(input) => return input.close().await,
                None => return Ok(()),
            },
            ExecSignal::Resize(size) => Signal::Resize(TheirSize { rows: size.rows, cols: size.cols }),
            ExecSignal::Kill => Signal::Kill,
            ExecSignal::Interrupt => Signal::Interrupt,
            ExecSignal::Terminate => Signal::Terminate,
            ExecSignal::Number(number) => Signal::Number(number),
        };
        if signal.number().is_some() {
            running.signalled.store(true, Ordering::Release);
        }
        self.client.signal(running.place.theirs(), *exec, number).await.map_err(of)
    }
}

/// The same failure of something that had begun.
fn began(error: Error) -> Error {
    match error.is_not_started() {
        true => {
            Error::new(error.kind(), "the program was started, but cannot be listened to").with_source(error)
        }
        false => error,
    }
}

/// Refuses what the API cannot carry.
fn check_wanted(req: &ExecRequest) -> Result<()> {
    let mut unmet = Vec::new();
    if req.channel {
        let why = "the API of the server carries no channel beside a program's streams";
        unmet.push(Unmet::new("exec_channel", "yes", "no", why));
    }
    if !req.replay && (!req.background || req.portable.is_some()) {
        let why = "the server keeps the output of every program but commands in the background";
        unmet.push(Unmet::new("replay", "no", "yes", why));
    }
    if unmet.is_empty() { Ok(()) } else { Err(Error::unmet(unmet)) }
}

/// What is asked of them, the way to the program's input, and its other end where there is something to hand over.
fn request(req: &ExecRequest, longest: Duration) -> (NewExec, ExecInput, Option<mpsc::Receiver<InputFrame>>) {
    let (stdin, input, frames) = match &req.stdin {
        Stdin::Empty => (None, ExecInput::none(), None),
        Stdin::Given(bytes) if bytes.len() <= WITH_REQUEST => (Some(form(bytes)), ExecInput::none(), None),
        Stdin::Given(bytes) => (None, ExecInput::none(), Some(given(bytes))),
        Stdin::Stream => {
            let (input, frames) = ExecInput::channel(input::WAITING);
            (None, input, Some(frames))
        }
    };
    let command = match &req.command {
        Command::Shell(line) => TheirCommand::Shell(line.clone()),
        Command::Program(argv) => TheirCommand::Program(argv.clone()),
    };
    let (command, language, code, args) = match &req.portable {
        Some(portable) => {
            let (language, code) = (portable.language.clone(), portable.code.clone());
            (None, Some(language), Some(code), portable.args.clone())
        }
        None => (Some(command), None, None, Vec::new()),
    };
    let new = NewExec {
        command,
        language,
        code,
        args,
        // A connection that breaks is no reason to end it: its sandbox is ended with it either way.
        keep: req.last,
        env: req.env.clone(),
        cwd: req.cwd.clone(),
        user: req.user,
        stdin,
        stdin_stream: frames.is_some(),
        tty: req.tty.map(|size| TheirSize { rows: size.rows, cols: size.cols }),
        // Who lives on has no time limit of its own, and there is a longest one that they take.
        timeout: req.timeout.map(|timeout| if req.background { timeout.min(longest) } else { timeout }),
        id: Some(req.id),
        output: req.output.filter(|_| req.replay),
        passing: !req.replay,
    };
    (new, input, frames)
}

fn form(bytes: &Bytes) -> StdinForm {
    match std::str::from_utf8(bytes) {
        Ok(text) => StdinForm::Text(text.to_owned()),
        Err(_) => StdinForm::Base64 { base64: BASE64.encode(bytes) },
    }
}

/// Input that is known but too long to go with the request.
fn given(bytes: &Bytes) -> mpsc::Receiver<InputFrame> {
    let (sender, frames) = mpsc::channel(2);
    // There is room for both.
    let _ = sender.try_send(InputFrame::Data(bytes.clone()));
    let _ = sender.try_send(InputFrame::Close);
    frames
}
