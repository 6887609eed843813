//! Following a program to its end, so that the end is stored whether anybody listens or not.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use sandstorm_provider::{AttachFrom, EndCause, Error, ExecEnd as ProgramEnd, ExecEvent, OpContext, Result};
use sandstorm_store::{ContextChanges, ExecEnd, UsageDelta};
use sandstorm_types::{ErrorKind, ExecId, PerStream, Problem, State, Status, Stream, Timestamp, Walls};
use serde::Deserialize;

use super::Inner;
use super::beginning::Beginning;
use super::ended::{Ended, KEPT_OUTPUT};
use super::events::ending;
use super::execs::STREAM;
use super::executions::{Execution, Stage};
use crate::execute::Executed;
use crate::outcome::{self, Times};
use crate::run::SANDBOX_ENDED;

/// Output up to this many bytes is kept on the way; of a program that writes more it is read once more at the end, so
/// that thousands of programs that stream for hours cost nothing.
const SMALL: usize = 16 << 10;
/// How long the end of a program is waited for once its sandbox is gone.
const GRACE: Duration = Duration::from_millis(500);

/// What is known of a program besides what the provider tells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Story {
    pub(super) compile_ms: Option<f64>,
    /// The program is a compiler that refused.
    pub(super) complaints: bool,
}

/// What the end of a cell changes of its context.
#[derive(Debug)]
pub(super) struct CellEnd<'a> {
    pub(super) changes: ContextChanges,
    /// Unless that is on record.
    pub(super) beginning: Option<Beginning<'a>>,
}

#[derive(Debug, Default)]
struct Said {
    stdout: BytesMut,
    stderr: BytesMut,
}

impl Said {
    fn add(&mut self, stream: Stream, bytes: &[u8], most: usize) -> bool {
        let into = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = most.saturating_sub(into.len());
        into.extend_from_slice(&bytes[..bytes.len().min(room)]);
        bytes.len() <= room
    }
}

fn gone_because(reason: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("{SANDBOX_ENDED}: {reason}"))
}

/// What to say of a program whose sandbox failed, whatever was said of it there: that the sandbox failed is on record before
/// what is left of it is removed, and only then is everything in it told.
pub(super) fn failed(execution: &Execution) -> Option<Error> {
    match &execution.living.row().state {
        State::Failed { reason } => Some(gone_because(reason)),
        _ => None,
    }
}

impl Inner {
    /// Follows a program to its end and stores it.
    pub(super) async fn follow(self: &Arc<Self>, execution: &Arc<Execution>, log: ExecId, story: Story) {
        let ended = match self.watch_to_end(execution, log).await {
            Ok((end, said)) => {
                let early = end.cause == EndCause::Sandbox;
                let early = if early { self.ended_early(execution).await } else { None };
                self.ended(execution, end, said, story, early)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let unknown =
                    Error::new(ErrorKind::Provider, "the program was lost with the server that started it");
                self.lost(execution, &unknown)
            }
            Err(error) => self.lost(execution, &error),
        };
        self.record(execution, ended, None).await;
    }

    /// The end of what could not be carried out.
    pub(super) fn lost(&self, execution: &Execution, error: &Error) -> Ended {
        let doom = execution.doomed.borrow().clone();
        let row = execution.living.row();
        let info = self.holder(&row);
        match doom {
            // Ended with its sandbox, as somebody asked for.
            Some(reason) if reason.is_empty() => Ended::killed(execution.id(), info, walls(execution)),
            Some(reason) => Ended::by_problem(execution.id(), info, walls(execution), &gone_because(&reason)),
            None => Ended::by_problem(
                execution.id(),
                info,
                walls(execution),
                failed(execution).as_ref().unwrap_or(error),
            ),
        }
    }

    async fn watch_to_end(&self, execution: &Execution, log: ExecId) -> Result<(ProgramEnd, Option<Said>)> {
        let cx = OpContext::new(execution.row.tenant);
        // Of one whose output waits for its listener, another listener would take the pace.
        let streams = execution.row.kind == STREAM;
        let from = if streams { AttachFrom::End } else { AttachFrom::START };
        let mut exec = self.provider.attach(&cx, &log, from).await?;
        if execution.input().is_none() {
            execution.set_input(exec.input.clone());
        }
        let mut said = Some(Said::default());
        let mut doomed = execution.doomed.subscribe();
        let doom = async {
            let _ = doomed.wait_for(Option::is_some).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::pin!(doom);
        loop {
            let event = tokio::select! {
                event = exec.events.next() => event,
                () = &mut doom => return Err(Error::new(ErrorKind::Provider, SANDBOX_ENDED)),
            };
            match event {
                Some(Ok(ExecEvent::Output { stream, bytes, .. })) => {
                    if let Some(kept) = &mut said
                        && !kept.add(stream, &bytes, SMALL)
                    {
                        said = None;
                    }
                }
                Some(Ok(ExecEvent::Started | ExecEvent::Channel { .. })) => {}
                Some(Ok(ExecEvent::Exited(end))) => {
                    let said = match said {
                        Some(said) => Some(said),
                        None => self.read_again(&cx, log).await,
                    };
                    return Ok((end, said));
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
    }

    /// What a program said, as much of it as is stored. `None`: it is gone.
    async fn read_again(&self, cx: &OpContext, log: ExecId) -> Option<Said> {
        let mut exec = self.provider.attach(cx, &log, AttachFrom::START).await.ok()?;
        let mut said = Said::default();
        while let Some(Ok(event)) = exec.events.next().await {
            if let ExecEvent::Output { stream, bytes, .. } = event {
                said.add(stream, &bytes, KEPT_OUTPUT);
                if said.stdout.len() >= KEPT_OUTPUT && said.stderr.len() >= KEPT_OUTPUT {
                    break;
                }
            }
        }
        Some(said)
    }

    /// What to say of a program whose sandbox ended first; `None`: that was asked for.
    async fn ended_early(&self, execution: &Execution) -> Option<Problem> {
        if matches!(execution.living.row().state, State::Terminating | State::Terminated) {
            return None;
        }
        let cx = OpContext::new(execution.row.tenant).with_timeout(GRACE);
        let error = crate::run::lost_with_sandbox(&*self.provider, &cx, &execution.living.id).await;
        Some(Problem { code: error.kind(), detail: error.to_string() })
    }

    fn ended(
        &self,
        execution: &Execution,
        end: ProgramEnd,
        said: Option<Said>,
        story: Story,
        early: Option<Problem>,
    ) -> Ended {
        let gone = said.is_none();
        let Said { stdout, stderr } = said.unwrap_or_default();
        let (stdout, stderr) = (Vec::from(stdout), Vec::from(stderr));
        let exec_ms = execution.ran_for().as_secs_f64() * 1000.0;
        let times = Times {
            create: 0.0,
            compile: story.compile_ms,
            exec: if story.complaints { 0.0 } else { exec_ms - story.compile_ms.unwrap_or(0.0) },
            total: exec_ms,
        };
        let kept = PerStream { stdout: stdout.len() as u64, stderr: stderr.len() as u64 };
        let (written, cause) = (end.written, end.cause);
        let executed = Executed { stdout, stderr, cut: PerStream::default(), whole: None, end };
        let row = execution.living.row();
        let (info, walls) = (self.holder(&row), walls(execution));
        let mut result = match story.complaints {
            true => outcome::of_refused_compile(executed, walls, info, times),
            false => outcome::of_exec(executed, walls, info, times),
        };
        if self.runner.fleet.is_some() {
            "where the sandbox is".clone_into(&mut result.route.reason);
        }
        if !story.complaints {
            result.truncated.stdout |= written.stdout > kept.stdout;
            result.truncated.stderr |= written.stderr > kept.stderr;
        }
        result.truncated.stdout |= gone;
        // The kernel counts for the sandbox as a whole: what it counted before this program began is not its own.
        let cpu_ms = result.metrics.cpu_ms;
        result.metrics.cpu_ms = (cpu_ms - execution.cpu_before_ms as f64).max(0.0);
        execution.living.see_cpu_ms(cpu_ms as u64);
        result.id = execution.id().to_string();
        if cause == EndCause::Sandbox {
            result.status = Status::Killed;
        }
        Ended::new(result, early)
    }

    /// Stores the end or puts it on file, then tells it. While the store is not available nobody hears of it.
    pub(super) async fn record(
        self: &Arc<Self>,
        execution: &Arc<Execution>,
        mut ended: Ended,
        cell: Option<CellEnd<'_>>,
    ) {
        let (tenant, id) = (execution.row.tenant, execution.id());
        let status = ended.result.status;
        let end =
            ExecEnd { status: status.name().to_owned(), result: ended.stored_text(), at: Timestamp::now() };
        let told = ending(Some(id), None, Some(status).filter(|_| ended.problem.is_none()));
        match cell {
            Some(CellEnd { changes, beginning: Some(beginning) }) => {
                let recording = self.record_whole_cell(execution, beginning, end, changes, &told);
                if let Err(problem) = recording.await {
                    // Of this one there is no record at all, so it is not answered as if there were.
                    ended.problem = Some(problem);
                }
            }
            Some(CellEnd { changes, .. }) => self.record_end(execution, &end, Some(&changes), &told).await,
            None => self.record_end(execution, &end, None, &told).await,
        }
        metrics::counter!("sandstorm_execs_total", "status" => status.name()).increment(1);
        metrics::histogram!("sandstorm_exec_seconds").record(execution.began.elapsed().as_secs_f64());
        self.add_usage(tenant, UsageDelta { execs: 1, ..UsageDelta::default() });
        self.executions.remove(id);
        execution.tell_end(ended);
        self.events.wake(tenant);
        self.clock.arm(&execution.living, self.settings.paused_for);
    }

    /// Goes on following what an earlier server started.
    pub(super) fn follow_again(self: &Arc<Self>, execution: &Arc<Execution>, story: Story) {
        let Stage::Log { log, .. } = *execution.stage.borrow() else { return };
        let (inner, execution) = (Arc::clone(self), Arc::clone(execution));
        self.tasks.start("follow an exec", async move { inner.follow(&execution, log, story).await });
    }
}

pub(super) fn walls(execution: &Execution) -> Walls {
    let row = execution.living.row();
    row.walls.as_ref().and_then(|walls| Walls::deserialize(walls).ok()).unwrap_or_default()
}
