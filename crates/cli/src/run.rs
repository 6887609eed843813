//! `sandstorm run`.

mod files;
mod packages;
pub(crate) mod request;
mod screen;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_control::{CompileCache, RunInput, Runner, Tools};
use sandstorm_provider::OpContext;
use sandstorm_types::{ByteSize, Enforcement, RunResult, Status, TenantId, cli_exit_code, exit_code_after};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::arguments::{RunCommand, Shared};
use crate::complaint::note;
use crate::{configuration, local, pipe};
pub(crate) use packages::layers;
use request::Request;
use screen::Screen;

/// How long output may still take after the run was cancelled.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) fn run(shared: &Shared, command: RunCommand) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    let request = Request::read(&command, &loaded.config)?;
    let cache = local::state_dir(&loaded)
        .map(|dir| CompileCache::new(dir.join("cache/compile"), loaded.config.cache.max_bytes.as_u64()));
    let layers = match local::state_dir(&loaded) {
        Some(dir) if !request.spec.requirements.is_empty() => Some(packages::layers(&loaded, dir)?),
        _ => None,
    };
    let roots = local::roots(&loaded.config);
    let engine = local::Local::start(&loaded)?;
    let runner = Runner::new(Tools {
        provider: Arc::clone(&engine.provider) as Arc<_>,
        limits: loaded.config.limits,
        roots,
        cache,
        layers,
    });
    let done = engine.runtime.block_on(execute(&runner, request, &command));
    drop(runner);
    engine.stop()?;
    let Done { result, limit, screen, brought } = done?;
    let cut = if command.json {
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer(&mut stdout, &result)?;
        writeln!(stdout)?;
        result.truncated.stdout || result.truncated.stderr
    } else {
        screen.is_some_and(|screen| screen.conclude(&result))
    };
    if cut {
        note(&format!("output was cut at {limit}"));
    }
    brought?;
    Ok(ExitCode::from(exit_code(&result, cut)))
}

/// The exit code of a run. A caller that reads only this must not take a part of the output for all of it.
fn exit_code(result: &RunResult, cut: bool) -> u8 {
    match result.status {
        Status::Ok if cut => exit_code_after(Status::Output, None, None),
        _ => cli_exit_code(result),
    }
}

/// How long bringing files back may take.
const FILES_TAKE: Duration = Duration::from_secs(60);

/// What is there to tell after a run.
struct Done {
    result: RunResult,
    /// The limit of output that is kept.
    limit: ByteSize,
    /// `None`: nobody reads what we write.
    screen: Option<Screen>,
    /// Whether its files came back; a failure does not take the result away.
    brought: anyhow::Result<()>,
}

async fn execute(runner: &Runner, mut request: Request, command: &RunCommand) -> anyhow::Result<Done> {
    let stop = CancellationToken::new();
    let cx = OpContext::new(TenantId::LOCAL).with_cancellation(stop.clone());
    request.spec.enforcement.get_or_insert(Enforcement::BestEffort);
    let prepared = runner.prepare(&request.spec, request.main.as_deref())?;
    let out = command.out.as_deref().map(files::target).transpose()?;
    let limits = prepared.limits;
    let (events, received) = mpsc::channel(64);
    let mut screen = Screen::start(received, stop.clone(), limits);
    let input = request.take_input();
    // A result in JSON has the output that is kept; a terminal or a pipe hears all of it.
    let events = (!command.json).then_some(events);
    let running = runner.run(&cx, &request.spec, prepared, input, events);
    tokio::pin!(running);
    let finished = loop {
        tokio::select! {
            finished = &mut running => break finished,
            () = interrupted() => stop.cancel(),
        }
    };
    let read = tokio::select! {
        () = screen.flush() => true,
        () = given_up(&stop) => false,
    };
    let finished = finished?;
    // The run may have been cancelled; bringing files back is work of its own.
    let last = OpContext::new(TenantId::LOCAL);
    let brought = match out {
        Some(target) => tokio::select! {
            brought = files::bring_back(&finished, &last, target, &limits) => brought,
            () = interrupted() => Err(anyhow::anyhow!("cancelled while the program's files were brought back")),
            () = tokio::time::sleep(FILES_TAKE) => Err(anyhow::anyhow!("the program's files did not come back in time")),
        },
        None => Ok(()),
    };
    let screen = read.then_some(screen);
    Ok(Done { result: finished.release().await?, limit: limits.output, screen, brought })
}

/// Who has cancelled waits no longer for somebody to read the rest of the output, and neither does who cancels now.
async fn given_up(stop: &CancellationToken) {
    if !stop.is_cancelled() {
        return interrupted().await;
    }
    tokio::time::sleep(PATIENCE).await;
}

/// Ctrl-C, or a polite request to end.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

impl Request {
    /// Standard input: a file that was named, or whatever comes on ours.
    fn take_input(&mut self) -> RunInput {
        match self.stdin.take() {
            Some(bytes) => RunInput::Bytes(bytes),
            None if self.code_from_stdin => RunInput::Empty,
            None => RunInput::Stream(pipe::stdin()),
        }
    }
}
