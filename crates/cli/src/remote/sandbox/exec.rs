//! `sandstorm sandbox exec`.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use sandstorm_client::{Client, NewExec};
use sandstorm_types::User;

use super::super::ending::{self, Bounds};
use super::super::following::{Collected, Followed, Following, OnInterrupt};
use super::super::raw_mode::{self, RawMode};
use super::super::{Output, ids, paths};
use super::create::{UserName, time};
use crate::complaint::misuse;
use crate::pipe;
use crate::run::request;

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C interrupts the program; a second one kills it.\n\nExit codes: the program's own; 128 + n for signal n; 1 compile error; 124 time \
                        limit; 137 memory or output limit, output that was cut, or cancelled; 2 bad usage; 125 sandstorm itself failed."
)]
pub(crate) struct ExecCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// Program and its arguments; `sh -c '…'` for a line of shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Print the id of the exec and leave it running; `sandbox logs` shows its output
    #[arg(short, long)]
    detach: bool,
    /// Pass standard input to the program
    #[arg(short, long, conflicts_with = "detach")]
    interactive: bool,
    /// Give the program a terminal
    #[arg(short, long, conflicts_with = "detach")]
    tty: bool,
    /// Whom the program runs as
    #[arg(long, value_name = "USER")]
    user: Option<UserName>,
    /// Folder to start in, instead of `/workspace`
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,
    /// Variable of the program's environment, `NAME=VALUE`; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Time by the clock, such as `2s` or `1m30s`
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
}

pub(super) async fn exec(client: &Client, output: Output, command: ExecCommand) -> anyhow::Result<ExitCode> {
    let new = command.request()?;
    let sandbox = ids::sandbox(client, &command.sandbox).await?;
    if command.detach {
        let exec = client.start(sandbox, &new).await?;
        output.line(&exec, &exec.id.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut events = client.exec(sandbox, &new).await?;
    // Keys go to the program one by one only if it has a terminal and gets our input.
    let raw = if command.tty && command.interactive { RawMode::enter()? } else { None };
    let mut collected = Collected::default();
    let following = Following {
        client,
        sandbox,
        on_interrupt: OnInterrupt::Pass,
        input: command.interactive.then(pipe::stdin),
        tty: command.tty,
        shown: !output.json,
        collected: output.json.then_some(&mut collected),
    };
    let followed = following.follow(&mut events, |_| None).await;
    if raw.is_some() && followed.is_err() {
        RawMode::tidy();
    }
    drop(raw);
    match followed? {
        Followed::Left(code) => Ok(code),
        Followed::Ended(mut end) if output.json => {
            let exec = events.exec().context("the exec never told its id")?;
            let view = client.exec_view(sandbox, exec).await?;
            let mut result = view.result.context("the server kept no result")?;
            collected.complete(&mut result, &mut end);
            output.show(&result, String::new)?;
            ending::conclude(&end, &Bounds::of(client, sandbox, &end, new.timeout).await)
        }
        Followed::Ended(end) => ending::conclude(&end, &Bounds::of(client, sandbox, &end, new.timeout).await),
    }
}

impl ExecCommand {
    fn request(&self) -> anyhow::Result<NewExec> {
        let mut env = request::environment(&self.env)?;
        if self.tty && env.get("TERM").is_none() {
            // What nearly every terminal understands, and nearly every program knows.
            let name = "TERM".parse().expect("a plain name");
            env.insert(name, "xterm-256color".to_owned()).map_err(|e| misuse(e.to_string()))?;
        }
        Ok(NewExec {
            env,
            cwd: self.cwd.as_deref().map(paths::guest).transpose()?,
            user: self.user.map(User::from),
            timeout: self.timeout.as_deref().map(|text| time("--timeout", text)).transpose()?,
            tty: self.tty.then(raw_mode::size),
            stdin_stream: self.interactive,
            ..NewExec::program(self.command.clone())
        })
    }
}
