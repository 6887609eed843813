//! One program from its start to its end: it runs, freezes, takes signals and meets its limits.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::{GuestPath, LimitName, LimitSet, PerStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::error::MemoryError;
use super::programs::{self, Channel, Input, Program, Sink};
use super::world::{Place, Running, World};
use crate::{EndCause, ExecEnd, ExecLog, ExecRequest, ExecStatus, InputFrame, Usage};

const SIGKILL: i32 = 9;

#[derive(Debug)]
pub(super) struct Process {
    program: Program,
    argv: Vec<String>,
    place: Place,
    log: ExecLog,
    signals: mpsc::Receiver<i32>,
    wall: Duration,
}

impl Process {
    pub(super) fn new(
        world: World,
        place: Place,
        running: &Running,
        signals: mpsc::Receiver<i32>,
        stdin: Input,
        channel: Option<mpsc::Receiver<InputFrame>>,
        req: &ExecRequest,
    ) -> Result<Self, MemoryError> {
        let argv = req.argv();
        let name = argv.first().map(String::as_str).unwrap_or_default();
        if programs::name_of(name).is_none() {
            return Err(MemoryError::NoProgram(name.to_owned()));
        }
        let cwd = req.cwd.clone().unwrap_or_else(GuestPath::workspace);
        if !world.read_tree(&place.sandbox.id, |tree| tree.is_folder(&cwd))? {
            return Err(MemoryError::NotDirectory(cwd));
        }
        let env: BTreeMap<_, _> = place
            .env
            .iter()
            .chain(req.env.iter())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let program = Program {
            world,
            sandbox: place.sandbox.id,
            env,
            cwd,
            stdin,
            stdout: Sink::stdout(&running.log),
            stderr: if req.tty.is_some() { Sink::stdout(&running.log) } else { Sink::stderr(&running.log) },
            channel: channel.map(|messages| Channel::new(messages, &running.log)),
            terminal: running.terminal(),
        };
        let wall = req.timeout.unwrap_or(place.sandbox.limits.wall);
        Ok(Self { program, argv, place, log: running.log.clone(), signals, wall })
    }

    pub(super) async fn run_to_end(self) {
        let log = self.log.clone();
        let (status, cause) = self.supervise().await;
        // In memory nothing can fail to be kept.
        let _ = log.end(ExecEnd {
            status,
            cause,
            limits_hit: LimitSet::EMPTY,
            denied: Vec::new(),
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage: Usage::default(),
        });
    }

    async fn supervise(self) -> (ExecStatus, EndCause) {
        let Self { mut program, argv, place, log, mut signals, wall } = self;
        let Place { ended, mut paused, .. } = place;
        let killed_by = |limit| (ExecStatus::Signal(SIGKILL), EndCause::Limit(limit));
        let mut deadline = Instant::now() + wall;
        let mut frozen_since: Option<Instant> = None;
        let run = program.run(&argv);
        tokio::pin!(run);
        loop {
            tokio::select! {
                biased;
                () = ended.cancelled() => return (ExecStatus::Signal(SIGKILL), EndCause::Sandbox),
                Some(signal) = signals.recv() => return (ExecStatus::Signal(signal), EndCause::Caller),
                () = log.flooded().cancelled() => return killed_by(LimitName::Output),
                Ok(()) = paused.changed() => {
                    // Time in the freezer does not count.
                    match (*paused.borrow_and_update(), frozen_since) {
                        (true, None) => frozen_since = Some(Instant::now()),
                        (false, Some(since)) => {
                            deadline += since.elapsed();
                            frozen_since = None;
                        }
                        _ => {}
                    }
                }
                () = tokio::time::sleep_until(deadline), if frozen_since.is_none() => return killed_by(LimitName::Wall),
                status = &mut run, if frozen_since.is_none() => {
                    // The last write may have been the one too many.
                    let flooded = log.flooded().is_cancelled();
                    return if flooded { killed_by(LimitName::Output) } else { (status, EndCause::Program) };
                }
            }
        }
    }
}
