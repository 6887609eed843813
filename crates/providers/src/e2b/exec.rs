//! Listening to programs and speaking to them.

use std::sync::Arc;

use sandstorm_e2b_wire::process::{Selected, SignalRequest, UpdateRequest};
use sandstorm_e2b_wire::signal::Signal;
use sandstorm_provider::{AttachFrom, EndCause, Error, Exec, ExecInput, ExecLog, ExecSignal, Keep, Result};
use sandstorm_types::{ByteSize, ErrorKind, ExecId, Unmet};
use serde::{Deserialize, Serialize};

use super::cloud::Cloud;
use super::envd::PROCESS;
use super::error::{Failure, of};
use super::exec_start::pty;
use super::execs::Running;
use super::list::Pages;
use super::places::Place;
use super::view::{Condition, Marks};

/// The programs that an agent knows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Processes {
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct Process {
    pid: u32,
    #[serde(default)]
    tag: Option<String>,
}

impl Cloud {
    pub(super) async fn attach(self: &Arc<Self>, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let running = self.running(exec).await?;
        let (first, events) = running.log.events(from);
        Ok(Exec {
            id: *exec,
            first,
            events,
            input: running.input.clone().unwrap_or_else(ExecInput::none),
            channel: None,
        })
    }

    pub(super) async fn signal(self: &Arc<Self>, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let running = self.running(exec).await?;
        match signal {
            ExecSignal::Forget { before } => {
                return running.log.forget(before).map_err(|error| {
                    Error::new(ErrorKind::Internal, "the log cannot be cut").with_source(error)
                });
            }
            ExecSignal::CloseStdin => match &running.input {
                // Behind what was written before.
                Some(input) => return input.close().await,
                None => {
                    let request = Selected { process: Some(running.selector()) };
                    return self.steer(&running, "CloseStdin", &request).await;
                }
            },
            ExecSignal::Resize(size) => {
                let request = UpdateRequest { process: Some(running.selector()), pty: Some(pty(size)) };
                return self.steer(&running, "Update", &request).await;
            }
            _ => {}
        }
        let signal = match signal.number() {
            Some(9) => Signal::Kill,
            Some(15) => Signal::Terminate,
            _ => return Err(no_signal(signal)),
        };
        running.blame(EndCause::Caller);
        let request = SignalRequest { process: Some(running.selector()), signal };
        self.steer(&running, "SendSignal", &request).await
    }

    /// A message to a program; one that has ended takes it in silence.
    async fn steer(&self, running: &Running, method: &str, message: &impl Serialize) -> Result<()> {
        let place = &running.place;
        let sent = self.client.unary::<serde::de::IgnoredAny>(place, PROCESS, method, message);
        match sent.await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(self.of_agent(place, failure, of).await),
        }
    }

    /// One of our programs, looked for in our sandboxes if it is not remembered.
    async fn running(self: &Arc<Self>, exec: &ExecId) -> Result<Arc<Running>> {
        if let Some(running) = self.execs.get(exec) {
            return Ok(running);
        }
        let mut pages = Pages::of(self);
        let mut failure = None;
        while let Some(page) = pages.next().await? {
            for theirs in page {
                // Nobody can ask one that sleeps.
                let awake = theirs.state == Condition::Running;
                let Some(ours) = Marks(&self.owner).id(&theirs).filter(|_| awake) else { continue };
                match self.look_for(exec, &self.place(&ours).await?).await {
                    Ok(Some(running)) => return Ok(running),
                    Ok(None) => {}
                    Err(error) => failure = Some(of(error)),
                }
            }
        }
        // Where somebody could not be asked, nobody knows that it is not there.
        Err(failure.unwrap_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such program").with("exec", exec)
        }))
    }

    /// A program that an earlier one of us started. It can be signalled; what it wrote is gone, and that is said.
    async fn look_for(&self, exec: &ExecId, place: &Place) -> Result<Option<Arc<Running>>, Failure> {
        let known: Processes = self.client.unary(place, PROCESS, "List", &serde_json::json!({})).await?;
        let tag = exec.to_string();
        let found = known.processes.into_iter().find(|process| process.tag.as_deref() == Some(&tag));
        let Some(found) = found else { return Ok(None) };
        let log = ExecLog::new(Keep::UpTo(ByteSize::bytes(0)));
        let running = Running::new(*exec, place.clone(), log, None, false, ByteSize::bytes(0));
        running.set_pid(found.pid);
        running.log.fail("the program was started before a restart: what it writes is heard by nobody");
        let running = Arc::new(running);
        self.execs.add(&running);
        Ok(self.execs.get(exec))
    }
}

fn no_signal(signal: ExecSignal) -> Error {
    let wanted = signal.number().map_or_else(|| format!("{signal:?}"), |number| number.to_string());
    let why = "the agent sends SIGKILL and SIGTERM only";
    Error::unmet(vec![Unmet::new("exec_signals", wanted, "9 and 15", why)])
}
