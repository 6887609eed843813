//! Programs on a terminal.

use super::trial::{Trial, Verdict, ensure, same, same_bytes};
use super::{Case, case};
use crate::{ExecRequest, ExecSignal, ExecStatus, Stdin, TtySize};

pub(super) const CASES: &[Case] = &[
    case!("exec_tty", a_terminal_is_one, needs [exec, exec_tty]),
    case!("exec_tty", output_is_one_stream, needs [exec, exec_tty]),
    case!("exec_tty", size_is_given_and_changed, needs [exec, exec_tty, exec_stdin]),
];

fn on_terminal(line: &str) -> ExecRequest {
    let mut req = ExecRequest::shell(line);
    req.tty = Some(TtySize { rows: 40, cols: 100 });
    req
}

async fn a_terminal_is_one(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let with = t.run(&id, on_terminal("test -t 1")).await?;
    same("the status on a terminal", with.end.status, ExecStatus::Code(0))?;
    let without = t.run(&id, ExecRequest::shell("test -t 1")).await?;
    same("the status without one", without.end.status, ExecStatus::Code(1))
}

async fn output_is_one_stream(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let done = t.run(&id, on_terminal("echo out; echo err >&2")).await?;
    let text = String::from_utf8_lossy(&done.stdout).replace("\r\n", "\n");
    same("standard output", &text[..], "out\nerr\n")?;
    same_bytes("standard error", done.stderr, b"")
}

async fn size_is_given_and_changed(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = on_terminal("stty size; read go; stty size");
    req.stdin = Stdin::Stream;
    let exec = t.provider.exec(&t.cx, &id, req).await?;
    t.provider.signal(&t.cx, &exec.id, ExecSignal::Resize(TtySize { rows: 50, cols: 120 })).await?;
    exec.input.write("\n").await?;
    let done = exec.collect().await?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    // Whether the first line comes before or after the change is a race that nobody promises to win.
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    ensure!(last.trim() == "50 120", "the terminal says {text:?}");
    let first = t.output(&id, on_terminal("stty size")).await?;
    same("the first size", String::from_utf8_lossy(&first).trim(), "40 100")
}
