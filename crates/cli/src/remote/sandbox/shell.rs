//! `sandstorm sandbox shell`: a terminal in a sandbox at the terminal that we sit at.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use sandstorm_client::{Client, Keyboard, Screen, Terminal, TerminalOptions, TerminalOutput};
use sandstorm_types::{End, Stream, User};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::super::ending::{self, Bounds};
use super::super::interrupts::{Asked, Interrupts};
use super::super::printer::Printer;
use super::super::raw_mode::{self, RawMode};
use super::super::{ids, paths};
use super::create::UserName;
use crate::pipe;

/// Ctrl-D: the end of input, as a terminal has it.
const END_OF_INPUT: &[u8] = b"\x04";
/// What a shell says of a program that SIGTERM ended.
const TERMINATED: u8 = 143;
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(
    after_help = "Every key goes to the sandbox, Ctrl-C too; `exit` or Ctrl-D ends the shell.\n\nExit codes: \
                        those of the shell; 125 when the connection breaks."
)]
pub(crate) struct ShellCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// Whom it runs as
    #[arg(long, value_name = "USER")]
    user: Option<UserName>,
    /// Folder to start in, instead of `/workspace`
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,
    /// Program to run there instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) async fn shell(client: &Client, command: ShellCommand) -> anyhow::Result<ExitCode> {
    let sandbox = ids::sandbox(client, &command.sandbox).await?;
    let line = (!command.command.is_empty()).then(|| shell_line(&command.command));
    let options = TerminalOptions {
        command: line,
        cwd: command.cwd.as_deref().map(paths::guest).transpose()?,
        user: command.user.map(User::from),
        ..TerminalOptions::new(raw_mode::size())
    };
    let Terminal { mut keyboard, mut screen } = client.terminal(sandbox, &options).await?;
    let raw = RawMode::enter()?;
    let input = pipe::stdin();
    let ended = tokio::select! {
        ended = show(&mut screen) => ended,
        ended = type_in(&mut keyboard, input, raw.is_some()) => ended,
        () = asked_to_end() => Ok(Ended::Asked),
    };
    if raw.is_some() && ended.is_err() {
        RawMode::tidy();
    }
    drop(raw);
    // The program is gone or shall go; a server that does not hear it sees the connection end.
    let _ = tokio::time::timeout(GOODBYE, keyboard.close()).await;
    match ended? {
        Ended::Program(end) => ending::conclude(&end, &Bounds::of_terminal(client, sandbox, &end).await),
        Ended::Asked => Ok(ExitCode::from(TERMINATED)),
    }
}

/// Why a terminal ended.
enum Ended {
    Program(Box<End>),
    /// We were asked to.
    Asked,
}

/// Writes what comes until the program ends.
async fn show(screen: &mut Screen) -> anyhow::Result<Ended> {
    let printer = Printer::start();
    while let Some(output) = screen.next().await {
        match output? {
            TerminalOutput::Bytes(bytes) => {
                if !printer.print(Stream::Stdout, bytes).await {
                    break;
                }
            }
            TerminalOutput::End(end) => {
                printer.finish().await?;
                return Ok(Ended::Program(end));
            }
        }
    }
    printer.finish().await?;
    anyhow::bail!("the terminal ended without an exit code")
}

/// Sends what is typed and what becomes of our window. Ends only when the connection does.
async fn type_in(
    keyboard: &mut Keyboard,
    mut input: mpsc::Receiver<Bytes>,
    terminal: bool,
) -> anyhow::Result<Ended> {
    let mut resized = signal(SignalKind::window_change())?;
    if terminal {
        // The window may have changed while we connected.
        keyboard.resize(raw_mode::size()).await?;
    }
    let mut open = true;
    loop {
        tokio::select! {
            bytes = input.recv(), if open => match bytes {
                Some(bytes) => keyboard.write(bytes).await?,
                None => {
                    open = false;
                    keyboard.write(Bytes::from_static(END_OF_INPUT)).await?;
                }
            },
            _ = resized.recv() => keyboard.resize(raw_mode::size()).await?,
        }
    }
}

async fn asked_to_end() {
    let Ok(mut interrupts) = Interrupts::catch() else { return std::future::pending().await };
    let mut next = pin!(async {
        while interrupts.next().await != Asked::End {
            // Ctrl-C is a key here; one that comes as a signal was meant for somebody else.
        }
    });
    next.as_mut().await;
}

/// Words as a shell reads them back.
fn shell_line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let words = ["printf", "%s", "it's $HOME", "", "a b"].map(str::to_owned);
        assert_eq!(shell_line(&words), r"printf %s 'it'\''s $HOME' '' 'a b'");
    }
}
