//! From a request to a program of the agent, and what its start may come to.

use std::time::Duration;

use sandstorm_agent::protocol::{PayloadWalls, Program, StartFailure, Task, TerminalSize};
use sandstorm_provider::{Error, ExecRequest, Result, TtySize, WriteOptions};
use sandstorm_types::{ErrorKind, SandboxSpec, User};
use serde_bytes::ByteBuf;

use crate::{AgentClient, files};

/// Bytes of files that travel in the message that starts a program.
const FILES_WITH_PROGRAM: usize = 128 * 1024;

/// Where programs work unless the caller says otherwise.
pub const WORKSPACE: &str = "/workspace";

/// What every program starts with, unless the caller says otherwise.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("PATH", "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/home/user"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("LANG", "C.UTF-8"),
    // What programs install goes into the home: nothing else of the machine's can be written to.
    ("NPM_CONFIG_PREFIX", "/home/user/.local"),
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
];

/// The same of a program that runs as root, as far as it differs.
const OF_ROOT: [(&str, &str); 3] = [("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root")];

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
    let root = request.user.unwrap_or(spec.user) == User::Root;
    let own = |(name, value)| match OF_ROOT.into_iter().find(|(other, _)| root && *other == name) {
        Some(of_root) => of_root,
        None => (name, value),
    };
    let usual = ENVIRONMENT.into_iter().map(own).chain(term);
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
            let options = WriteOptions::default();
            Box::pin(files::write(agent, User::User, &path, options, content.into())).await?;
        }
    }
    Ok(())
}

/// When to try again what there was no room for.
const SOON: Duration = Duration::from_secs(1);

/// Characters of a name that a message shows.
const LONGEST_NAME: usize = 200;

/// Kernel errors of `execve` that say what the caller can do.
const ENOENT: i32 = 2;
const ENOEXEC: i32 = 8;
const EACCES: i32 = 13;

/// The names that messages about a program's start are about. Empty where they are not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    program: String,
    cwd: String,
}

impl Named {
    pub fn of(task: &Task) -> Self {
        match task {
            Task::Program(program) => Self {
                program: program.argv.first().map(|name| shown(name)).unwrap_or_default(),
                cwd: shown(&program.cwd),
            },
            _ => Self::default(),
        }
    }

    fn program(&self) -> String {
        if self.program.is_empty() { "the program".to_owned() } else { format!("`{}`", self.program) }
    }

    /// Says on a program's error stream why the kernel did not execute it, and what to do.
    pub fn not_executed(&self, errno: i32) -> String {
        let why = match errno {
            ENOENT if self.program.contains('/') => {
                "there is no such file, or the interpreter that its first line names is missing; look at the path"
                    .to_owned()
            }
            ENOENT => "no folder of PATH has it; install it, or give its path".to_owned(),
            EACCES => "it is not a file that may be executed; `chmod +x` makes it one".to_owned(),
            ENOEXEC => "it is neither a program for this machine nor a script that begins with a line such as #!/bin/sh"
                .to_owned(),
            other => std::io::Error::from_raw_os_error(other).to_string(),
        };
        format!("sandstorm: cannot execute {}: {why}\n", self.program())
    }
}

/// A name on one line, and not longer than people read.
fn shown(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(LONGEST_NAME).collect()
}

/// Why a program could not be started.
pub fn start_failure(failure: &StartFailure, named: &Named) -> Error {
    let cause = std::io::Error::from_raw_os_error(failure.errno);
    let kind = match failure.step.as_str() {
        "execute" | "working directory" | "arguments" | "program" => ErrorKind::InvalidRequest,
        "files" => ErrorKind::FileSystem,
        // A guest that ended over its program before that began, as it does where there is no memory for it.
        "fork" | "streams" | "status pipe" | "guest" => ErrorKind::Capacity,
        _ => ErrorKind::Isolation,
    };
    let what = match failure.step.as_str() {
        "working directory" => {
            format!(
                "cannot start {} in the folder {}: make it first, or name another",
                named.program(),
                named.cwd
            )
        }
        _ => format!("{} could not be started", named.program()),
    };
    let error = Error::new(kind, what).with("step", &failure.step).with_source(cause);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn named(program: &str) -> Named {
        let program =
            Program { argv: vec![program.to_owned()], cwd: "/nope".to_owned(), ..Program::default() };
        Named::of(&Task::Program(program))
    }

    #[test]
    fn what_is_not_executed_is_named_with_what_to_do() {
        for (program, errno, said) in [
            (
                "nothing",
                ENOENT,
                "cannot execute `nothing`: no folder of PATH has it; install it, or give its path",
            ),
            (
                "./nothing",
                ENOENT,
                "cannot execute `./nothing`: there is no such file, or the interpreter that its first line names is \
                 missing; look at the path",
            ),
            (
                "/etc",
                EACCES,
                "cannot execute `/etc`: it is not a file that may be executed; `chmod +x` makes it one",
            ),
            (
                "./notes",
                ENOEXEC,
                "cannot execute `./notes`: it is neither a program for this machine nor a script that begins with a line \
                 such as #!/bin/sh",
            ),
            ("x", 40, "cannot execute `x`: Too many levels of symbolic links (os error 40)"),
        ] {
            assert_eq!(named(program).not_executed(errno), format!("sandstorm: {said}\n"));
        }
        let odd = named(&"\u{1b}[2J".repeat(1000)).not_executed(ENOENT);
        assert!(!odd.contains('\u{1b}') && odd.len() < 2000, "{odd}");
        assert!(Named::default().not_executed(ENOENT).starts_with("sandstorm: cannot execute the program: "));
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let failure = StartFailure { step: "working directory".to_owned(), errno: ENOENT };
        let error = start_failure(&failure, &named("ls"));
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert_eq!(error.message(), "cannot start `ls` in the folder /nope: make it first, or name another");
    }
}
