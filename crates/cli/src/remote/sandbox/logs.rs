//! `sandstorm sandbox ps` and `logs`.

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use sandstorm_client::{Client, Exec};
use sandstorm_types::{EventBody, Status, Stream, Timestamp};

use super::super::following::{Followed, Following, OnInterrupt};
use super::super::printer::Printer;
use super::super::table::{Cell, Table};
use super::super::{Output, ending, ids, units};
use super::One;

/// What was written up to now comes at once; a pause this long means that there is no more of it.
pub(super) const QUIET: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct LogsCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// Exec: its id, or the beginning of it; `sandbox ps` lists them
    #[arg(value_name = "EXEC")]
    exec: String,
    /// Go on until the program ends
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn list(client: &Client, output: Output, one: &One) -> anyhow::Result<ExitCode> {
    let sandbox = ids::sandbox(client, &one.sandbox).await?;
    let execs = client.execs(sandbox, false).await?;
    output.list("execs", &execs, || table(&execs, Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

fn table(execs: &[Exec], now: Timestamp) -> Table {
    let mut table = Table::new(&["EXEC", "STATUS", "STARTED", "COMMAND"]);
    for exec in execs {
        let title: String = exec.title.chars().take(60).collect();
        table.row([
            exec.id.to_string().into(),
            status(exec.status, exec.running),
            units::age(exec.started_at, now).into(),
            title.into(),
        ]);
    }
    table
}

/// How something ended, or that it has not.
pub(in crate::remote) fn status(status: Option<Status>, running: bool) -> Cell {
    match status {
        None if !running => Cell::painted("failed", "31"),
        None => Cell::painted("running", "1;32"),
        Some(Status::Ok) => Cell::painted("ok", "32"),
        Some(Status::Error) => Cell::painted("error", "31"),
        Some(Status::CompileError) => Cell::painted("compile_error", "31"),
        Some(Status::Timeout) => Cell::painted("timeout", "33"),
        Some(Status::Cpu) => Cell::painted("cpu", "33"),
        Some(Status::Memory) => Cell::painted("memory", "33"),
        Some(Status::Output) => Cell::painted("output", "33"),
        Some(Status::Killed) => Cell::painted("killed", "33"),
    }
}

pub(super) async fn show(client: &Client, output: Output, command: LogsCommand) -> anyhow::Result<ExitCode> {
    let sandbox = ids::sandbox(client, &command.sandbox).await?;
    let exec = ids::exec(client, sandbox, &command.exec).await?;
    let ended = !client.exec_view(sandbox, exec).await?.running;
    let mut events = client.attach(sandbox, exec, None).await?;
    if !output.json && (command.follow || ended) {
        let following = Following {
            client,
            sandbox,
            on_interrupt: OnInterrupt::Leave,
            input: None,
            tty: false,
            shown: true,
            collected: None,
        };
        return match following.follow(&mut events, |_| None).await? {
            Followed::Ended(end) if ending::is_said_to_be_cut(&end) => Ok(ending::cut_code()),
            Followed::Ended(_) => Ok(ExitCode::SUCCESS),
            Followed::Left(code) => Ok(code),
        };
    }
    let patience = if command.follow || ended { None } else { Some(QUIET) };
    let printer = Printer::start();
    while let Some(event) = until_quiet(events.next(), patience).await {
        let event = event?;
        let (stream, bytes) = if output.json {
            let mut line = serde_json::to_vec(&event)?;
            line.push(b'\n');
            (Stream::Stdout, Bytes::from(line))
        } else {
            match event.body {
                EventBody::Stdout(chunk) => (Stream::Stdout, Bytes::copy_from_slice(chunk.data.as_bytes())),
                EventBody::Stderr(chunk) => (Stream::Stderr, Bytes::copy_from_slice(chunk.data.as_bytes())),
                _ => continue,
            }
        };
        if !printer.print(stream, bytes).await {
            break;
        }
    }
    printer.finish().await?;
    Ok(ExitCode::SUCCESS)
}

/// What comes next; `None` also when nothing came for as long as somebody is patient.
pub(super) async fn until_quiet<T>(
    next: impl Future<Output = Option<T>>,
    patience: Option<Duration>,
) -> Option<T> {
    match patience {
        Some(patience) => tokio::time::timeout(patience, next).await.unwrap_or(None),
        None => next.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execs_for_people() {
        let exec = |bare: &str, title: &str, status: Option<&str>| -> Exec {
            serde_json::from_value(serde_json::json!({
                "id": format!("exec_{bare}"), "title": title, "status": status, "background": true, "running": status.is_none(),
                "started_at": "2026-11-15T12:00:00.000Z",
            }))
            .unwrap()
        };
        let execs = [
            exec("aaaaaaaaaaaaaaaaaaaaaaaaaa", "python3 -m http.server 8000", None),
            exec("bbbbbbbbbbbbbbbbbbbbbbbbba", &"x".repeat(100), Some("timeout")),
        ];
        let now = execs[0].started_at.after(Duration::from_secs(30));
        insta::assert_snapshot!(table(&execs, now).text(false));
    }
}
