//! A program's own byte channel, which interpreter kernels speak on.

use futures_util::stream::TryStreamExt;

use super::trial::{Failure, Trial, Verdict, ensure, same, same_bytes};
use super::{Case, case};
use crate::{AttachFrom, Exec, ExecEvent, ExecRequest, ExecSignal, ExecStatus};

pub(super) const CASES: &[Case] = &[
    case!("exec_channel", it_carries_bytes_apart_from_output, needs [exec, exec_channel]),
    case!("exec_channel", it_keeps_its_order_with_output, needs [exec, exec_channel]),
    case!("exec_channel", later_listeners_hear_the_same_events, needs [exec, exec_channel, exec_attach]),
    case!("exec_channel", what_is_forgotten_is_gone, needs [exec, exec_channel, exec_attach]),
    case!("exec_channel", there_is_none_unless_asked_for, needs [exec, exec_channel]),
];

async fn it_carries_bytes_apart_from_output(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::shell("cat <&3 >&3; echo done");
    req.channel = true;
    let mut exec = t.provider.exec(&t.cx, &id, req).await?;
    let Some(channel) = exec.channel.take() else {
        return Err(Failure::Failed("there is no channel".to_owned()));
    };
    let mut heard = 0;
    for word in [&b"ping"[..], b"\0\xff\n", &[b'x'; 300_000]] {
        channel.send(word.to_vec()).await?;
        let echo = read_channel(&mut exec, heard, word.len()).await?;
        heard += word.len() as u64;
        ensure!(echo == word, "the echo of {} bytes differs", word.len());
    }
    channel.close().await;
    let done = exec.collect().await?;
    same_bytes("standard output", done.stdout, b"done\n")?;
    same("the status", done.end.status, ExecStatus::Code(0))
}

/// Bytes from the channel, which have to go on at `offset`.
async fn read_channel(exec: &mut Exec, mut offset: u64, wanted: usize) -> Verdict<Vec<u8>> {
    let mut seen = Vec::new();
    while seen.len() < wanted {
        match exec.events.try_next().await? {
            Some(ExecEvent::Channel { offset: at, bytes }) => {
                same("the offset on the channel", at, offset)?;
                offset += bytes.len() as u64;
                seen.extend_from_slice(&bytes);
            }
            Some(ExecEvent::Started) => {}
            other => return Err(Failure::Failed(format!("there is {other:?} instead of the channel"))),
        }
    }
    Ok(seen)
}

/// All events of a program that says each word on both ways.
const BOTH: &str = "echo one; echo two >&3; echo three; echo four >&3; read x; exit 3";

async fn it_keeps_its_order_with_output(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::shell(BOTH);
    req.channel = true;
    let exec = t.provider.exec(&t.cx, &id, req).await?;
    let events: Vec<_> = exec.events.try_collect().await?;
    let said: Vec<u8> = events
        .iter()
        .filter_map(|event| match event {
            ExecEvent::Output { bytes, .. } | ExecEvent::Channel { bytes, .. } => Some(bytes.to_vec()),
            ExecEvent::Started | ExecEvent::Exited(_) => None,
        })
        .flatten()
        .collect();
    // Output may come earlier than what was said on the channel before it, never later than what was said after it.
    let text = String::from_utf8_lossy(&said).into_owned();
    let at = |word: &str| text.find(word);
    ensure!(
        at("one") < at("two") && at("three") < at("four") && at("two") < at("four"),
        "the order is {text:?}"
    );
    ensure!(at("one").is_some(), "output is missing: {text:?}");
    Ok(())
}

async fn later_listeners_hear_the_same_events(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::shell(BOTH);
    req.channel = true;
    let exec = t.provider.exec(&t.cx, &id, req).await?;
    let (exec_id, first) = (exec.id, exec.first);
    same("the number of the first event", first, 0)?;
    let all: Vec<_> = exec.events.try_collect().await?;
    for from in 0..=all.len() {
        let again = t.provider.attach(&t.cx, &exec_id, AttachFrom::Seq(from as u64)).await?;
        same("the number of the first event", again.first, from as u64)?;
        ensure!(again.channel.is_some(), "whoever attaches gets no way to the channel");
        let rest: Vec<_> = again.events.try_collect().await?;
        same("the events from a number on", rest.as_slice(), &all[from..])?;
    }
    Ok(())
}

async fn what_is_forgotten_is_gone(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::shell(BOTH);
    req.channel = true;
    let exec = t.provider.exec(&t.cx, &id, req).await?;
    let exec_id = exec.id;
    let all: Vec<_> = exec.events.try_collect().await?;
    t.provider.signal(&t.cx, &exec_id, ExecSignal::Forget { before: 2 }).await?;
    let again = t.provider.attach(&t.cx, &exec_id, AttachFrom::START).await?;
    same("the number of the first event", again.first, 2)?;
    let rest: Vec<_> = again.events.try_collect().await?;
    same("the events that are left", rest.as_slice(), &all[2..])
}

async fn there_is_none_unless_asked_for(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::shell("cat <&3")).await?;
    ensure!(exec.channel.is_none(), "there is a channel that nobody asked for");
    let done = exec.collect().await?;
    ensure!(done.end.status != ExecStatus::Code(0), "descriptor 3 is open in a program that was given none");
    Ok(())
}
