//! `sandstorm context`: living interpreters.

mod rich;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandstorm_client::{Client, Context, NewContext};
use sandstorm_types::{ContextId, EventBody, SandboxId, Status, Timestamp, duration};

use super::ending::{self, Bounds};
use super::following::{Collected, Followed, Following, OnInterrupt};
use super::table::{Cell, Table};
use super::{Connection, Output, ids, paths, units};
use crate::complaint::misuse;
use crate::run::request;
use rich::Rich;

#[derive(Debug, Args)]
pub(crate) struct ContextGroup {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: ContextCommand,
}

/// A context by its id.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// Context: its id, or the beginning of it
    #[arg(value_name = "CONTEXT")]
    context: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Start an interpreter whose variables stay, and print its id
    Create {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// Language, such as `python` or `javascript`
        #[arg(short, long, value_name = "NAME")]
        language: String,
        /// Folder to start in, instead of `/workspace`
        #[arg(long, value_name = "PATH")]
        cwd: Option<String>,
        /// Variable of its environment, `NAME=VALUE`; may be repeated
        #[arg(long, value_name = "NAME=VALUE")]
        env: Vec<String>,
    },
    /// List the contexts of a sandbox
    #[command(visible_alias = "ls")]
    List {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
    },
    /// Run code in a context
    Exec(ExecCommand),
    /// Stop the code that runs and keep the variables
    Interrupt(One),
    /// Start the interpreter anew, without its variables
    Restart(One),
    /// End a context
    Rm(One),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C interrupts the code; variables stay.\n\nExit codes: 0; 1 when the code raised an \
                        exception; 124 time limit; 137 memory or output limit, output that was cut, or cancelled; 2 bad usage; 125 \
                        sandstorm itself failed."
)]
pub(crate) struct ExecCommand {
    #[command(flatten)]
    one: One,
    /// File with the code; `-` reads it from standard input
    #[arg(value_name = "FILE", required_unless_present = "code")]
    file: Option<PathBuf>,
    /// Code to run
    #[arg(short, long, conflicts_with = "file")]
    code: Option<String>,
    /// Time by the clock, such as `2s` or `1m30s`
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Folder to keep pictures and other values in that are no text
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

pub(super) async fn serve(
    client: Client,
    output: Output,
    command: ContextCommand,
) -> anyhow::Result<ExitCode> {
    let client = &client;
    match command {
        ContextCommand::Create { sandbox, language, cwd, env } => {
            let new = NewContext {
                language: language.parse().map_err(|e| misuse(format!("--language {language}: {e}")))?,
                cwd: cwd.as_deref().map(paths::guest).transpose()?,
                env: request::environment(&env)?,
            };
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let context = client.create_context(sandbox, &new).await?;
            output.line(&context, &context.id.to_string())?;
        }
        ContextCommand::List { sandbox } => {
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let contexts = client.contexts(sandbox).await?;
            output.list("contexts", &contexts, || table(&contexts, Timestamp::now()))?;
        }
        ContextCommand::Exec(command) => return execute(client, output, command).await,
        ContextCommand::Interrupt(one) => {
            let (sandbox, context) = find(client, &one).await?;
            client.interrupt_context(sandbox, context).await?;
            done(output, context)?;
        }
        ContextCommand::Restart(one) => {
            let (sandbox, context) = find(client, &one).await?;
            let context = client.restart_context(sandbox, context).await?;
            output.line(&context, &context.id.to_string())?;
        }
        ContextCommand::Rm(one) => {
            let (sandbox, context) = find(client, &one).await?;
            client.delete_context(sandbox, context).await?;
            done(output, context)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(output: Output, context: ContextId) -> std::io::Result<()> {
    output.line(&serde_json::json!({ "id": context }), &context.to_string())
}

async fn find(client: &Client, one: &One) -> anyhow::Result<(SandboxId, ContextId)> {
    let sandbox = ids::sandbox(client, &one.sandbox).await?;
    Ok((sandbox, ids::context(client, sandbox, &one.context).await?))
}

fn table(contexts: &[Context], now: Timestamp) -> Table {
    let mut table = Table::new(&["CONTEXT", "LANGUAGE", "STATE", "AGE", "CELLS"]);
    for context in contexts {
        let colour = match context.state.as_str() {
            "idle" => "32",
            "busy" => "1;32",
            _ => "31",
        };
        table.row([
            context.id.to_string().into(),
            context.language.to_string().into(),
            Cell::painted(context.state.clone(), colour),
            units::age(context.created_at, now).into(),
            context.execution_count.to_string().into(),
        ]);
    }
    table
}

async fn execute(client: &Client, output: Output, command: ExecCommand) -> anyhow::Result<ExitCode> {
    let code = code(&command)?;
    let timeout = command.timeout.as_deref();
    let timeout =
        timeout.map(|text| duration::parse(text).map_err(|e| misuse(format!("--timeout {text}: {e}"))));
    let timeout = timeout.transpose()?;
    let mut rich = Rich::new(command.save.as_deref(), output.json)?;
    let (sandbox, context) = find(client, &command.one).await?;
    let mut events = client.execute(sandbox, context, &code, timeout).await?;
    let mut collected = Collected::default();
    let following = Following {
        client,
        sandbox,
        on_interrupt: OnInterrupt::Pass,
        input: None,
        tty: false,
        shown: !output.json,
        collected: output.json.then_some(&mut collected),
    };
    let mut values = Vec::new();
    let followed = following
        .follow(&mut events, |body| match body {
            EventBody::Result(value) => {
                if output.json {
                    values.push(value.clone());
                }
                rich.result(value)
            }
            EventBody::Error(error) => rich.error(&error),
            _ => None,
        })
        .await?;
    let mut end = match followed {
        Followed::Left(code) => return Ok(code),
        Followed::Ended(end) => end,
    };
    rich.failure()?;
    if output.json
        && let Some(exec) = events.exec()
    {
        let mut view = client.exec_view(sandbox, exec).await?;
        if let Some(result) = &mut view.result {
            collected.complete(result, &mut end);
            // The server keeps less of long ones. The main value is the first of a result, and the last that is told.
            values.sort_by_key(|value| !value.main);
            result.results = values;
        }
        output.show(&view.result, String::new)?;
    }
    let ended = ending::conclude(&end, &Bounds::of(client, sandbox, &end, timeout).await)?;
    // An exception of a cell has no exit code of its own.
    let raised = end.status == Status::Error && end.exit_code.is_none() && end.signal.is_none();
    Ok(if raised { ExitCode::FAILURE } else { ended })
}

fn code(command: &ExecCommand) -> anyhow::Result<String> {
    let failed = |name: &str, e: std::io::Error| misuse(format!("could not read {name}: {e}"));
    match (&command.code, &command.file) {
        (Some(code), _) => Ok(code.clone()),
        (None, Some(file)) if file.as_os_str() == "-" => {
            std::io::read_to_string(std::io::stdin()).map_err(|e| failed("the code on standard input", e))
        }
        (None, Some(file)) => {
            std::fs::read_to_string(file).map_err(|e| failed(&file.display().to_string(), e))
        }
        (None, None) => Err(misuse("no code: give FILE, - or --code")),
    }
}
