//! From a request to a program of the agent, and what its start may come to.

use std::time::Duration;

use sandstorm_agent::protocol::{PayloadWalls, Program, StartFailure, TerminalSize};
use sandstorm_provider::{Error, ExecRequest, Result, TtySize};
use sandstorm_types::{ErrorKind, SandboxSpec, User};
use serde_bytes::ByteBuf;

use crate::{AgentClient, files};

/// Bytes of files that travel in the message that starts a program.
const FILES_WITH_PROGRAM: usize = 128 * 1024;

/// Where programs work unless the caller says otherwise.
pub const WORKSPACE: &str = "/workspace";

/// What every program starts with, unless the caller says otherwise.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/home/user"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("LANG", "C.UTF-8"),
];

/// The program that a request is about. Its files are taken out of the request.
pub fn program(spec: &SandboxSpec, request: &mut ExecRequest) -> Program {
    Program {
        argv: request.argv(),
        env: environment(spec, request),
        cwd: request.cwd.as_ref().map_or_else(|| WORKSPACE.to_owned(), |cwd| cwd.as_str().to_owned()),
        root: request.user.unwrap_or(spec.user) == User::Root,
        terminal: request.tty.map(terminal_size),
        side_channel: request.channel,
        last: request.last,
        files: std::mem::take(&mut request.files)
            .into_iter()
            .map(|(path, content)| {
                (ByteBuf::from(path.as_str().as_bytes()), ByteBuf::from(Vec::from(content)))
            })
            .collect(),
        guest: None,
    }
}

/// Each variable once: as the request says, else as the sandbox does, else as is usual. In the order of their names, which
/// is how a guest has rehearsed the usual ones.
fn environment(spec: &SandboxSpec, request: &ExecRequest) -> Vec<(String, String)> {
    let (of_sandbox, of_request) = (&spec.env, &request.env);
    let term = request.tty.map(|_| ("TERM", "xterm-256color"));
    let usual = ENVIRONMENT.into_iter().chain(term);
    let usual = usual.filter(|(name, _)| of_sandbox.get(name).is_none());
    let below = usual.chain(of_sandbox.iter()).filter(|(name, _)| of_request.get(name).is_none());
    let all = below.chain(of_request.iter()).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut env: Vec<(String, String)> = all.collect();
    env.sort_unstable();
    env
}

/// Files that fit travel with the program; larger ones go before it.
pub async fn lay_out_large(agent: &AgentClient, request: &mut ExecRequest) -> Result<()> {
    let total: usize = request.files.iter().map(|(path, content)| path.as_str().len() + content.len()).sum();
    if total > FILES_WITH_PROGRAM {
        for (path, content) in std::mem::take(&mut request.files) {
            Box::pin(files::write(agent, &path, content.into())).await?;
        }
    }
    Ok(())
}

/// When to try again what there was no room for.
const SOON: Duration = Duration::from_secs(1);

/// Why a program could not be started.
pub fn start_failure(failure: &StartFailure) -> Error {
    let cause = std::io::Error::from_raw_os_error(failure.errno);
    let kind = match failure.step.as_str() {
        "execute" | "working directory" | "arguments" | "program" => ErrorKind::InvalidRequest,
        "files" => ErrorKind::FileSystem,
        // A guest that ended over its program before that began, as it does where there is no memory for it.
        "fork" | "streams" | "status pipe" | "guest" => ErrorKind::Capacity,
        _ => ErrorKind::Isolation,
    };
    let error =
        Error::new(kind, "the program could not be started").with("step", &failure.step).with_source(cause);
    // There may be room for it a little later, or elsewhere.
    if kind == ErrorKind::Capacity { error.with_not_started().with_retry_after(SOON) } else { error }
}

pub fn terminal_size(size: TtySize) -> TerminalSize {
    TerminalSize { rows: size.rows, columns: size.cols }
}

/// Whether a program has the walls that were promised.
pub fn check_walls(walls: &PayloadWalls) -> Result<()> {
    if walls.capabilities == 0 && walls.no_new_privs && walls.seccomp_mode == 2 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Isolation, "the program measured more rights than it should have")
        .with("measured", format!("{walls:?}")))
}
