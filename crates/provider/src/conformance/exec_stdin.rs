//! Programs read what they are given, when they are given it.

use std::time::Duration;

use bytes::Bytes;
use sandstorm_types::ErrorKind;

use super::trial::{Trial, Verdict, ensure, fails, read_output, same, same_bytes};
use super::{Case, case};
use crate::{ExecRequest, ExecSignal, ExecStatus, Stdin};

pub(super) const CASES: &[Case] = &[
    case!("exec_stdin", given_input_is_read, needs[exec]),
    case!("exec_stdin", no_input_is_an_end, needs[exec]),
    case!("exec_stdin", input_streams, needs [exec, exec_stdin]),
    case!("exec_stdin", a_megabyte_goes_both_ways, needs [exec, exec_stdin]),
    case!("exec_stdin", a_signal_closes_input, needs [exec, exec_stdin]),
    case!("exec_stdin", input_is_delivered_once, needs [exec, exec_stdin]),
    case!("exec_stdin", input_ends_with_the_program, needs [exec, exec_stdin]),
];

fn cat(stdin: Stdin) -> ExecRequest {
    let mut req = ExecRequest::program(["/bin/cat"]);
    req.stdin = stdin;
    req
}

async fn given_input_is_read(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let given = Bytes::from_static(b"line\n\0\xff end");
    same("the echo", t.output(&id, cat(Stdin::Given(given.clone()))).await?, given)
}

async fn no_input_is_an_end(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    same("the echo", t.output(&id, cat(Stdin::Empty)).await?, Bytes::new())?;
    let exec = t.provider.exec(&t.cx, &id, cat(Stdin::Empty)).await?;
    fails("writing to no input", exec.input.write("x").await, ErrorKind::InvalidRequest)
}

async fn input_streams(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut exec = t.provider.exec(&t.cx, &id, cat(Stdin::Stream)).await?;
    for word in ["first", "second"] {
        exec.input.write(word).await?;
        same("the echo", read_output(&mut exec, word.len()).await?, word.as_bytes().to_vec())?;
    }
    exec.input.close().await?;
    same("the status", exec.collect().await?.end.status, ExecStatus::Code(0))
}

async fn a_megabyte_goes_both_ways(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, cat(Stdin::Stream)).await?;
    let input = exec.input.clone();
    let piece: Bytes = (0..1 << 16).map(|place: u32| place as u8).collect();
    let write = async {
        for _ in 0..16 {
            input.write(piece.clone()).await?;
        }
        input.close().await
    };
    let (written, read) = futures_util::future::join(write, exec.collect()).await;
    written?;
    let read = read?.stdout;
    ensure!(read == piece.repeat(16), "{} bytes came back, not the {} written", read.len(), piece.len() * 16);
    Ok(())
}

async fn a_signal_closes_input(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, cat(Stdin::Stream)).await?;
    exec.input.write("last words").await?;
    t.provider.signal(&t.cx, &exec.id, ExecSignal::CloseStdin).await?;
    let done = exec.collect().await?;
    same_bytes("the echo", done.stdout, b"last words")?;
    same("the status", done.end.status, ExecStatus::Code(0))
}

async fn input_is_delivered_once(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, cat(Stdin::Stream)).await?;
    let counted = exec.input.deliver("one ", None).await?;
    if let Some(count) = counted {
        same("the count", count, 4)?;
        // Who does not know what became of bytes sends them again.
        same("the count", exec.input.deliver("one two ", Some(0)).await?, Some(8))?;
        same("the count", exec.input.deliver("", None).await?, Some(8))?;
        fails("writing behind a gap", exec.input.deliver("x", Some(9)).await, ErrorKind::Conflict)?;
    } else {
        same("the count", exec.input.deliver("two ", None).await?, None)?;
        fails("writing at a place", exec.input.deliver("x", Some(0)).await, ErrorKind::InvalidRequest)?;
    }
    exec.input.close().await?;
    same_bytes("the echo", exec.collect().await?.stdout, b"one two ")
}

async fn input_ends_with_the_program(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::program(["/bin/true"]);
    req.stdin = Stdin::Stream;
    let exec = t.provider.exec(&t.cx, &id, req).await?;
    let input = exec.input.clone();
    same("the status", exec.collect().await?.end.status, ExecStatus::Code(0))?;
    // The news of the end may reach the input a little later than the listener.
    for _ in 0..1000 {
        if let Err(error) = input.write("too late").await {
            return fails::<()>("writing after the end", Err(error), ErrorKind::Conflict);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(false, "input is still taken long after the program's end");
    Ok(())
}
