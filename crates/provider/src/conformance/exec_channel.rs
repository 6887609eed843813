//! A program's own byte channel, which interpreter kernels speak on.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::trial::{Failure, Trial, Verdict, ensure, same, same_bytes};
use super::{Case, case};
use crate::{ExecRequest, ExecStatus};

pub(super) const CASES: &[Case] = &[
    case!("exec_channel", it_carries_bytes_apart_from_output, needs [exec, exec_channel]),
    case!("exec_channel", there_is_none_unless_asked_for, needs [exec, exec_channel]),
];

async fn it_carries_bytes_apart_from_output(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::shell("cat <&3 >&3; echo done");
    req.channel = true;
    let mut exec = t.provider.exec(&t.cx, &id, req).await?;
    let Some(mut channel) = exec.channel.take() else {
        return Err(Failure::Failed("there is no channel".to_owned()));
    };
    let broken = |error: std::io::Error| Failure::Failed(format!("the channel breaks: {error}"));
    for word in [&b"ping"[..], b"\0\xff\n"] {
        channel.write_all(word).await.map_err(broken)?;
        let mut echo = vec![0; word.len()];
        channel.read_exact(&mut echo).await.map_err(broken)?;
        same_bytes("the echo", echo, word)?;
    }
    channel.shutdown().await.map_err(broken)?;
    let done = exec.collect().await?;
    same_bytes("standard output", done.stdout, b"done\n")?;
    same("the status", done.end.status, ExecStatus::Code(0))
}

async fn there_is_none_unless_asked_for(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::shell("cat <&3")).await?;
    ensure!(exec.channel.is_none(), "there is a channel that nobody asked for");
    let done = exec.collect().await?;
    ensure!(done.end.status != ExecStatus::Code(0), "descriptor 3 is open in a program that was given none");
    Ok(())
}
